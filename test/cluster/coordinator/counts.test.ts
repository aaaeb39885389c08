/** What the protocol costs, counted between the coordinator and the API server. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { type Caller, heldBy } from "../../support/fenceline/caller.ts";
import { type Controller, install } from "../../support/fenceline/install.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { behindProxy, callerFor, readyResource } from "./support.ts";

const cluster = sharedCluster();
let proxies: HttpProxy[];
let replicas: Controller[];
let callers: Caller[];

/** The part of the counts that is the protocol's: no watches, no mirrors, no events, no election. */
const protocol = (proxy: HttpProxy): Record<string, number> =>
  Object.fromEntries(
    Object.entries(proxy.counts()).filter(([what]) =>
      /^(get|create|update|patch|delete) (leases|fencedresources|fencedsequences\/status|fencedsequences|tokenreviews|subjectaccessreviews)$/.test(
        what,
      ),
    ),
  );

beforeAll(async () => {
  await install(cluster);
  const both = [await behindProxy(cluster, "counts-0"), await behindProxy(cluster, "counts-1")];
  proxies = both.map(({ proxy }) => proxy);
  replicas = both.map(({ controller }) => controller);
});
afterEach(async () => {
  await Promise.all((callers ?? []).map((caller) => caller.close()));
  callers = [];
});
afterAll(async () => {
  await Promise.all((replicas ?? []).map((replica) => replica.kill()));
  await Promise.all((proxies ?? []).map((proxy) => proxy[Symbol.asyncDispose]()));
});

const requests = (proxy: HttpProxy): number =>
  Object.values(protocol(proxy)).reduce((sum, count) => sum + count, 0);

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

/** Lets the leader say what it has to say, so that its own writes are not counted with what follows. */
const quiet = async () => {
  let before = -1;
  await expect
    .poll(
      () => {
        const now = proxies.reduce((sum, proxy) => sum + proxy.total({}), 0);
        const still = now === before;
        before = now;
        return still;
      },
      { timeout: 15_000, interval: 1_500 },
    )
    .toBe(true);
  for (const proxy of proxies) proxy.reset();
};

describe("requests on the path of a call", () => {
  it("acquire, renew and release are one Lease write each, and nothing else", async () => {
    const resource = await warm();
    const [caller] = callers;
    const [proxy] = proxies;
    if (caller === undefined || proxy === undefined) throw new Error("no replica");
    await quiet();
    const granted = await caller.acquire(resource);
    expect(protocol(proxy)).toEqual({ "update leases": 1 });
    proxy.reset();
    await caller.renew(resource, heldBy(granted));
    expect(protocol(proxy)).toEqual({ "update leases": 1 });
    proxy.reset();
    await caller.release(resource, heldBy(granted));
    expect(protocol(proxy)).toEqual({ "update leases": 1 });
  });

  it("S1-18 1,000 acquires cost 1 + 1/reserve writes each, at most 2 requests, and tokens only grow", async () => {
    const resource = await warm();
    const [caller] = callers;
    const [proxy] = proxies;
    if (caller === undefined || proxy === undefined) throw new Error("no replica");
    await quiet();
    const acquires = 1_000;
    let last = 0n;
    let spent = 0;
    let costliest = 0;
    for (let round = 0; round < acquires; round += 1) {
      const granted = await caller.acquire(resource);
      const now = requests(proxy);
      costliest = Math.max(costliest, now - spent);
      expect(granted.status).toBe(200);
      expect(BigInt(String(granted.body["token"]))).toBeGreaterThan(last);
      last = BigInt(String(granted.body["token"]));
      await caller.release(resource, heldBy(granted));
      spent = requests(proxy);
    }
    expect(costliest).toBeLessThanOrEqual(2);
    const counts = protocol(proxy);
    expect(counts["update leases"]).toBe(2 * acquires);
    expect(counts["update fencedsequences/status"]).toBeLessThanOrEqual(Math.ceil(acquires / 64) + 1);
    expect(Object.keys(counts).toSorted()).toEqual(["update fencedsequences/status", "update leases"]);
  });

  it("S1-17 FM-13 of 40 contenders on two replicas one wins, and no loser costs more than one request", async () => {
    const resource = await warm();
    const contenders = 40;
    await quiet();
    const answers = await Promise.all(
      Array.from({ length: contenders }, (_, index) => {
        const caller = callers[index % callers.length];
        if (caller === undefined) throw new Error("no caller");
        return caller.acquire(resource);
      }),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const writes = proxies.reduce((sum, proxy) => sum + (protocol(proxy)["update leases"] ?? 0), 0);
    const reads = proxies.reduce((sum, proxy) => sum + (protocol(proxy)["get leases"] ?? 0), 0);
    expect(writes).toBeGreaterThanOrEqual(1);
    expect(writes + reads - 1).toBeLessThanOrEqual(contenders - 1);
  });

  it("a held resource costs its renewals and nothing more, over three intervals", async () => {
    const resource = await warm({ lease: { durationSeconds: 6, renewIntervalSeconds: 2 } });
    const [caller] = callers;
    if (caller === undefined) throw new Error("no caller");
    const held = heldBy(await caller.acquire(resource));
    await quiet();
    const renewals = 3;
    for (let interval = 0; interval < renewals; interval += 1) {
      // The intervals themselves are what is measured.
      await sleep(1_500);
      expect(await caller.renew(resource, held)).toMatchObject({ status: 200 });
    }
    const all = proxies.map((proxy) => proxy.writes());
    expect(all.reduce((sum, writes) => sum + (writes["update leases"] ?? 0), 0)).toBeGreaterThanOrEqual(
      renewals,
    );
    // The election renews its own Lease; everything else that was written would be noise.
    for (const writes of all)
      expect(Object.keys(writes).filter((what) => what !== "update leases")).toEqual([]);
  });
});

it("never logs an error while all is well", async () => {
  for (const replica of replicas)
    expect(replica.log.filter((line) => line.includes('"level":"error"'))).toEqual([]);
});
