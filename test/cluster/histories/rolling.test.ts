/** Two replicas are replaced, one after the other, while a hundred holders renew and others come and go. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { leaderLease, leaseName, systemNamespace } from "../../../src/api/names.ts";
import { makeCoordinatorClient } from "../../../src/holder/client.ts";
import { type Holding, makeHolder } from "../../../src/holder/holder.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { makeHttpClient } from "../../../src/runtime/httpclient.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { type Caller, heldBy, makeCaller } from "../../support/fenceline/caller.ts";
import { type Front, startFront } from "../../support/fenceline/front.ts";
import {
  type Controller,
  coordinatorCertificate,
  install,
  killAll,
  workerToken,
} from "../../support/fenceline/install.ts";
import { behindProxy } from "../coordinator/support.ts";

const holders = 100;
const contended = 5;
const contenders = 10;

let cluster: Lab;
collectOnFailure(() => cluster);
let namespace: string;
let tokenFile: string;
let front: Front;
interface Replica {
  proxy: HttpProxy;
  controller: Controller;
}
let serving: Replica[] = [];
const all: Replica[] = [];
const certificate = coordinatorCertificate();

const start = async (name: string): Promise<Replica> => {
  const replica = await behindProxy(cluster, name, { certificate });
  all.push(replica);
  return replica;
};

interface LeaseJson {
  metadata: { name: string; annotations: Record<string, string> };
  spec: { leaseTransitions: number; holderIdentity?: string; renewTime: string };
}

const resource = (name: string, spec: object) => ({
  apiVersion: "fenceline.dev/v1alpha1",
  kind: "FencedResource",
  metadata: { name, namespace },
  spec,
});
const names = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  serving = await Promise.all([start("roll-a"), start("roll-b")]);
  namespace = await cluster.namespace("shop");
  tokenFile = await workerToken(cluster, namespace, "worker");
  const every = [...names("held", holders), ...names("busy", contended)];
  await cluster.apply(...every.map((name) => resource(name, {})));
  await cluster.kubectl(["wait", "fr", "--all", "-n", namespace, "--for=condition=Ready", "--timeout=60s"]);
  front = await startFront(serving.map(({ controller }) => controller));
});
afterAll(async () => {
  await front?.[Symbol.asyncDispose]();
  await killAll(
    cluster,
    all.map(({ controller }) => controller),
  );
  await Promise.all(all.map(({ proxy }) => proxy[Symbol.asyncDispose]()));
  await cluster?.[Symbol.asyncDispose]();
});

const leader = async (): Promise<string> => {
  const args = ["get", "lease", leaderLease, "-n", systemNamespace, "-o=jsonpath={.spec.holderIdentity}"];
  return (await cluster.kubectl(args)).split("/")[0] ?? "";
};

/** What only the leader writes. */
const leaderWrites = ({ proxy }: Replica): number => {
  const { "update fencedresources/status": status = 0, "create events": events = 0 } = proxy.writes();
  return status + events;
};

/** Acquires and releases without a pause until told to stop; returns the tokens in the order of their grants. */
const contend = async (caller: Caller, name: string, stop: AbortSignal) => {
  const tokens: bigint[] = [];
  const strange: unknown[] = [];
  let retries = 0;
  while (!stop.aborted) {
    const answer = await caller.acquire(`${namespace}/${name}`).catch(() => undefined);
    // A connection that broke under a replaced replica, and what says "ask again", is no failure.
    if (answer === undefined || answer.status === 503) retries += 1;
    else if (answer.status === 200) {
      tokens.push(BigInt(heldBy(answer).token));
      for (;;) {
        const released = await caller.release(`${namespace}/${name}`, heldBy(answer)).catch(() => undefined);
        if (released?.status === 200) break;
        retries += 1;
      }
    } else if (answer.status !== 409) strange.push(answer.body);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return { tokens, strange, retries };
};

describe("FM-36 a rolling update", () => {
  it("changes no owner, loses no lease, and fails no renewal for good", { timeout: 180_000 }, async () => {
    const caFile = serving[0]?.controller.caFile ?? "";
    const http = makeHttpClient({
      server: front.server,
      caFile,
      bearerFile: tokenFile,
      clock: systemClock,
    });
    const holder = makeHolder({
      client: makeCoordinatorClient({ http, clock: systemClock }),
      clock: systemClock,
      random: systemRandom,
      log: silentLogger,
    });
    const held: Holding[] = names("held", holders).map((name) =>
      holder.hold({ resource: `${namespace}/${name}`, waitMs: 20_000 }),
    );
    const tokens = new Map<string, bigint>();
    for (const holding of held) {
      const end = await holding.granted;
      if (end.kind !== "granted") throw new Error(`${holding.resource}: ${end.kind}`);
      tokens.set(holding.resource, end.token);
    }
    const ended: string[] = [];
    let again = 0;
    for (const holding of held) {
      holding.lost.addEventListener("abort", () => ended.push(String(holding.lost.reason)));
      holding.subscribe(({ state }) => (again += state === "uncertain" ? 1 : 0));
    }

    const bearer = await readFile(tokenFile, "utf8");
    const caller = makeCaller({ server: front.server, caFile, bearer });
    const stop = new AbortController();
    const load = Array.from({ length: contenders }, (_, index) =>
      contend(caller, `busy-${index % contended}`, stop.signal),
    );

    // The leader first: its work moves. Then one that leads nothing.
    const first = await leader();
    serving.sort((a) => (a.controller.replica === first ? -1 : 1));
    for (const [index, old] of [...serving].entries()) {
      const next = await start(`roll-${index}-next`);
      front.add(next.controller);
      const leads = (await leader()) === old.controller.replica;
      old.proxy.reset();
      const direct = makeCaller({ server: old.controller.server, caFile, bearer });
      const stopped = old.controller.stop();
      await expect
        .poll(async () => (await direct.acquire(`${namespace}/busy-0`)).headers["connection"])
        .toBe("close");
      expect(await stopped).toBe(128 + 15);
      await direct.close();
      expect(leads || leaderWrites(old) === 0, "a standby on its way out does no leader's work").toBe(true);
      front.remove(old.controller);
      serving[index] = next;
    }
    // Everybody renews through the new ones.
    const rolled = new Date().toISOString();
    const leases = async () => {
      const text = await cluster.kubectl(["get", "leases", "-n", namespace, "-o", "json"]);
      return new Map(
        (JSON.parse(text) as { items: LeaseJson[] }).items.map((item) => [item.metadata.name, item]),
      );
    };
    const stale = async () => {
      const seen = await leases();
      return names("held", holders).filter(
        (name) => (seen.get(leaseName(name))?.spec.renewTime ?? "") < rolled,
      );
    };
    await expect.poll(stale, { timeout: 30_000, interval: 500 }).toEqual([]);

    stop.abort();
    const results = await Promise.all(load);
    expect(ended).toEqual([]);
    for (const holding of held)
      expect(holding.view()).toMatchObject({ state: "held", token: tokens.get(holding.resource) });
    const after = await leases();
    for (const holding of held) {
      const lease = after.get(leaseName(holding.resource.split("/")[1] ?? ""));
      expect(lease?.spec).toMatchObject({ leaseTransitions: 1 });
      expect(lease?.spec.holderIdentity).toContain(holding.attempt);
      expect(lease?.metadata.annotations["fenceline.dev/token"]).toBe(String(tokens.get(holding.resource)));
    }
    expect(results.flatMap(({ strange }) => strange)).toEqual([]);
    for (let index = 0; index < contended; index += 1) {
      const granted = results
        .filter((_, contender) => contender % contended === index)
        .flatMap((result) => result.tokens);
      expect(new Set(granted).size).toBe(granted.length);
      expect(granted.length).toBeGreaterThan(0);
    }
    const grants = results.reduce((sum, result) => sum + result.tokens.length, 0);
    const retries = results.reduce((sum, result) => sum + result.retries, 0);
    console.log(
      `FM-36: ${holders} holders kept, ${again} renewals sent again; ${grants} other grants, ${retries} requests sent again`,
    );
    for (const holding of held) await holding.release();
    await caller.close();
  });
});
