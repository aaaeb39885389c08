/**
 * Histories of real coordinator processes on a real API server, recorded from outside while processes are killed and
 * stopped, proxies lose, hold and repeat writes, and the API server restarts. Judged by the checks of the simulation.
 *
 * One history per resource and episode; the resources of an episode go through it together.
 */
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type HolderId, holderId } from "../../../src/core/lease.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { type Answer, type Caller, type Held, heldBy, makeCaller } from "../../support/fenceline/caller.ts";
import { type Controller, install, killAll, workerToken } from "../../support/fenceline/install.ts";
import { checkHistory } from "../../support/histories/check.ts";
import { grantsOf, type HistoryEvent } from "../../support/histories/history.ts";
import { behindProxy } from "../coordinator/support.ts";

const long = process.env["FENCELINE_LONG"] !== undefined;
const resources = 25;
const rounds = long ? 6 : 1;
const episodeMs = 9_000;

interface Replica {
  proxy: HttpProxy;
  controller: Controller;
}

let cluster: Lab;
collectOnFailure(() => cluster);
let namespace = "";
let bearer = "";
let replicas: Replica[] = [];
const everStarted: Replica[] = [];
const callers = new Map<Controller, Caller>();

const start = async (name: string): Promise<Replica> => {
  const replica = await behindProxy(cluster, name);
  everStarted.push(replica);
  const { server, caFile } = replica.controller;
  callers.set(replica.controller, makeCaller({ server, caFile, bearer }));
  return replica;
};

const nameOf = (index: number) => `r-${index}`;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const between = (least: number, most: number) => least + Math.random() * (most - least);

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  namespace = await cluster.namespace("shop");
  bearer = await readFile(await workerToken(cluster, namespace, "worker"), "utf8");
  replicas = await Promise.all([start("histories-a"), start("histories-b")]);
  const spec = { lease: { durationSeconds: 3, renewIntervalSeconds: 1 }, tokens: { reserve: 4 } };
  const every = Array.from({ length: resources }, (_, index) => ({
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    metadata: { name: nameOf(index), namespace },
    spec,
  }));
  await cluster.apply(...every);
  await cluster.kubectl(["wait", "fr", "--all", "-n", namespace, "--for=condition=Ready", "--timeout=60s"]);
});
afterAll(async () => {
  await Promise.all([...callers.values()].map((caller) => caller.close()));
  for (const { controller } of everStarted) controller.child.kill("SIGCONT");
  await killAll(
    cluster,
    everStarted.map(({ controller }) => controller),
  );
  await Promise.all(everStarted.map(({ proxy }) => proxy[Symbol.asyncDispose]()));
  await cluster?.[Symbol.asyncDispose]();
});

/** An answer, or undefined where none came within the time of a patient caller. */
const answered = async (call: Promise<Answer>): Promise<Answer | undefined> => {
  const late = pause(10_000).then(() => undefined);
  return Promise.race([call.catch(() => undefined), late]);
};

const anyCaller = (): Caller => {
  const replica = replicas[Math.random() < 0.5 ? 0 : 1] ?? replicas[0];
  const caller = replica && callers.get(replica.controller);
  if (caller === undefined) throw new Error("no replica");
  return caller;
};

/** Somebody who acquires, renews, gives back or forgets to, and asks again whatever was not answered. */
const work = async (resource: string, history: HistoryEvent[], until: number): Promise<void> => {
  const now = () => performance.now();
  let past: { held: Held; me: HolderId } | undefined;
  const keep = async (kind: "renew" | "release", { held, me }: { held: Held; me: HolderId }) => {
    const event = { kind, resource, attempt: me, token: BigInt(held.token), start: now() } as const;
    const answer = await answered(anyCaller()[kind](resource, held));
    const end = answer === undefined ? undefined : now();
    const done = answer?.status === 200 && answer.body["released"] !== false;
    const refused = answer?.status === 409 || (answer?.status === 200 && !done);
    history.push({ ...event, end, outcome: done ? "done" : refused ? "refused" : "unknown" });
    return done;
  };
  while (now() < until) {
    const attempt = randomUUID();
    const me = holderId("user:worker", attempt);
    let held: Held | undefined;
    for (let asked = 0; asked < 4 && held === undefined && now() < until; asked += 1) {
      const begun = now();
      const answer = await answered(anyCaller().acquire(resource, { attempt, waitMs: 2_000 }));
      const end = answer === undefined ? undefined : now();
      const event = { kind: "acquire", resource, attempt: me, start: begun, end } as const;
      if (answer?.status === 200) {
        held = heldBy(answer);
        history.push({ ...event, outcome: "granted", token: BigInt(held.token) });
      } else history.push({ ...event, outcome: answer?.status === 409 ? "refused" : "unknown" });
    }
    if (held === undefined) continue;
    for (let renewals = Math.floor(between(0, 4)); renewals > 0; renewals -= 1) {
      await pause(between(50, 700));
      if (!(await keep("renew", { held, me }))) break;
    }
    // Whoever held it before comes late, and changes nothing.
    if (past !== undefined) await keep(Math.random() < 0.5 ? "renew" : "release", past);
    if (Math.random() < 0.7) await keep("release", { held, me });
    past = { held, me };
  }
};

const leaseWrites = { verb: "update", resource: "leases" } as const;

/** What goes wrong while they work. Each leaves everything mended. */
const episodes: Record<string, () => Promise<void>> = {
  async "a replica is killed and replaced"() {
    await pause(1_500);
    const [victim, other] = replicas;
    if (victim === undefined || other === undefined) throw new Error("no replicas");
    await victim.controller.kill();
    replicas = [await start(`histories-${randomUUID().slice(0, 8)}`), other];
  },
  async "a replica is stopped beyond the lease, and goes on"() {
    await pause(1_000);
    const child = replicas[0]?.controller.child;
    child?.kill("SIGSTOP");
    await pause(5_000);
    child?.kill("SIGCONT");
  },
  async "answers to Lease writes get lost"() {
    for (const { proxy } of replicas) proxy.loseAnswer(leaseWrites, { chance: 0.3 });
    await pause(episodeMs - 2_000);
    for (const { proxy } of replicas) proxy.heal();
  },
  async "Lease writes are dropped, repeated and late"() {
    for (const { proxy } of replicas) {
      proxy.drop(leaseWrites, { chance: 0.15 });
      proxy.duplicate(leaseWrites, { chance: 0.15 });
      proxy.delay(leaseWrites, { beforeMs: 700 }, { chance: 0.3 });
    }
    await pause(episodeMs - 2_000);
    for (const { proxy } of replicas) proxy.heal();
  },
  async "the API server restarts"() {
    await pause(1_500);
    await cluster.apiserver.stop();
    await pause(500);
    await cluster.apiserver.start();
  },
};

it("FM-05 FM-12 FM-25 a hundred histories and more break no invariant", { timeout: 600_000 }, async () => {
  let judged = 0;
  for (let round = 0; round < rounds; round += 1)
    for (const [name, happen] of Object.entries(episodes)) {
      const until = performance.now() + episodeMs;
      const histories = Array.from({ length: resources }, (): HistoryEvent[] => []);
      await Promise.all([
        happen(),
        ...histories.flatMap((history, index) => {
          const resource = `${namespace}/${nameOf(index)}`;
          return [work(resource, history, until), work(resource, history, until)];
        }),
      ]);
      for (const history of histories)
        expect({ name, violations: checkHistory(history) }).toEqual({ name, violations: [] });
      judged += histories.filter((history) => grantsOf(history).length > 0).length;
    }
  expect(judged).toBeGreaterThanOrEqual(100 * rounds);
});
