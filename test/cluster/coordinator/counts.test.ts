/** What the protocol costs, counted between the coordinator and the API server. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Caller, heldBy } from "../../support/fenceline/caller.ts";
import { type Controller, install } from "../../support/fenceline/install.ts";
import type { Call } from "../../support/faultproxy/call.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { behindProxy, callerFor, readyResource } from "./support.ts";

/** Of its own: controllers elect one leader per cluster, and these are killed. */
let cluster: Lab;
collectOnFailure(() => cluster);
let proxies: HttpProxy[];
let replicas: Controller[];
let callers: Caller[];

/**
 * Everything that `proxies` let through for one resource from now on, but lists and watches. The election's Lease lives
 * elsewhere and is not counted; sequences are cluster-scoped, so tests that count them run alone.
 */
const record = (namespace: string): string[] => {
  const calls: string[] = [];
  const counted = ({ verb, resource, namespace: where }: Call) =>
    verb !== "list" &&
    verb !== "watch" &&
    (where === namespace || resource.startsWith("fencedsequences") || resource.endsWith("reviews"));
  for (const proxy of proxies)
    proxy.fault({ when: counted }, (call, forward) => {
      calls.push(`${call.verb} ${call.resource}`);
      return forward();
    });
  return calls;
};

/** Mirrors and events are off the path of a call, and counted apart. */
const aside = /fencedresources\/status$|events$/;
const protocol = (calls: readonly string[]) => calls.filter((call) => !aside.test(call));
const tally = (calls: readonly string[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const call of calls) counts[call] = (counts[call] ?? 0) + 1;
  return counts;
};

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  const both = [await behindProxy(cluster, "counts-0"), await behindProxy(cluster, "counts-1")];
  proxies = both.map(({ proxy }) => proxy);
  replicas = both.map(({ controller }) => controller);
});
afterEach(async () => {
  await Promise.all((callers ?? []).map((caller) => caller.close()));
  callers = [];
  for (const proxy of proxies ?? []) proxy.heal();
});
afterAll(async () => {
  await Promise.all((replicas ?? []).map((replica) => replica.kill()));
  await Promise.all((proxies ?? []).map((proxy) => proxy[Symbol.asyncDispose]()));
  await cluster?.[Symbol.asyncDispose]();
});

/** A resource that only these tests use, and a caller for each replica whose verdicts are warm. */
const warm = async (spec: object = {}) => {
  const resource = await readyResource(cluster, spec);
  callers = await Promise.all(replicas.map((replica) => callerFor(cluster, replica, resource)));
  for (const caller of callers) {
    const first = await caller.acquire(resource, { waitMs: 20_000 });
    expect(first.status).toBe(200);
    await caller.release(resource, heldBy(first));
  }
  return resource;
};

/** What follows is recorded once the leader has said what it had to say about what came before. */
const quietRecord = async (resource: string): Promise<string[]> => {
  const calls = record(resource.split("/")[0] ?? "");
  let before = -1;
  await expect
    .poll(
      () => {
        const still = calls.length === before;
        before = calls.length;
        return still;
      },
      { timeout: 20_000, interval: 2_000 },
    )
    .toBe(true);
  calls.length = 0;
  return calls;
};

const firstCaller = (): Caller => {
  const [caller] = callers;
  if (caller === undefined) throw new Error("no caller");
  return caller;
};

describe("requests on the path of a call", () => {
  it("S2-17 acquire, token included, renew and release are one Lease write each, and nothing else", async () => {
    const resource = await warm();
    const caller = firstCaller();
    const calls = await quietRecord(resource);
    const granted = await caller.acquire(resource);
    expect(protocol(calls)).toEqual(["update leases"]);
    await caller.renew(resource, heldBy(granted));
    expect(protocol(calls)).toEqual(["update leases", "update leases"]);
    await caller.release(resource, heldBy(granted));
    expect(tally(protocol(calls))).toEqual({ "update leases": 3 });
  });

  it("S1-18 1,000 acquires cost 1 + 1/reserve writes each, at most 2 requests, and tokens only grow", async () => {
    const resource = await warm();
    const caller = firstCaller();
    const calls = await quietRecord(resource);
    const acquires = 1_000;
    let last = 0n;
    let costliest = 0;
    for (let round = 0; round < acquires; round += 1) {
      const before = protocol(calls).length;
      const granted = await caller.acquire(resource);
      expect(granted.status).toBe(200);
      costliest = Math.max(costliest, protocol(calls).length - before);
      expect(BigInt(String(granted.body["token"]))).toBeGreaterThan(last);
      last = BigInt(String(granted.body["token"]));
      await caller.release(resource, heldBy(granted));
    }
    expect(costliest).toBeLessThanOrEqual(2);
    const {
      "update leases": leases,
      "update fencedsequences/status": sequences,
      ...others
    } = tally(protocol(calls));
    expect(leases).toBe(2 * acquires);
    expect(sequences).toBeLessThanOrEqual(Math.ceil(acquires / 64) + 1);
    // Who calls and what they may is asked for again once a minute.
    expect(Object.keys(others).filter((what) => !what.endsWith("reviews"))).toEqual([]);
  }, 300_000);

  it("S1-17 FM-13 of 40 contenders on two replicas one wins, and no loser costs more than one request", async () => {
    const resource = await warm();
    const contenders = 40;
    const calls = await quietRecord(resource);
    const answers = await Promise.all(
      Array.from({ length: contenders }, async (_, index) =>
        callers[index % callers.length]?.acquire(resource),
      ),
    );
    expect(answers.filter((answer) => answer?.status === 200)).toHaveLength(1);
    expect(protocol(calls).length - 1).toBeLessThanOrEqual(contenders - 1);
  });

  it("a held resource costs its renewals and nothing more, over three intervals", async () => {
    const resource = await warm({ lease: { durationSeconds: 9, renewIntervalSeconds: 2 } });
    const caller = firstCaller();
    const held = heldBy(await caller.acquire(resource));
    const calls = await quietRecord(resource);
    for (let interval = 0; interval < 3; interval += 1) {
      // The intervals themselves are what is measured.
      await sleep(2_000);
      expect(await caller.renew(resource, held)).toMatchObject({ status: 200 });
    }
    expect(tally(calls)).toEqual({ "update leases": 3 });
  });
});

it("never logs an error while all is well", async () => {
  for (const replica of replicas)
    expect(replica.log.filter((line) => line.includes('"level":"error"'))).toEqual([]);
});
