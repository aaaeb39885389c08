import { describe, expect, test } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import { drained, type LeaseView, safetyJump } from "../core/lease.ts";
import { wallTime } from "../core/time.ts";
import { noToken, type Token } from "../core/token.ts";
import type { FencedLease, Leases } from "../kube/leases.ts";
import { makeMemoryStore } from "./memory.ts";
import { raiseAbove } from "./raise.ts";

const resource = { namespace: "shop", name: "orders" };
const key = "shop/orders";

const lease = (token: bigint, ceiling: bigint): FencedLease => {
  const view: LeaseView = {
    uid: "lease",
    resourceVersion: "1",
    ours: true,
    terminating: false,
    format: 1,
    holder: "user:a/1",
    durationSeconds: 15,
    renewTime: wallTime(0n),
    transitions: 0,
    credit: { uid: "lease", token: token as Token, ceiling: ceiling as Token },
    ended: [],
    unclean: false,
    boundary: undefined,
    note: undefined,
    forced: undefined,
  };
  return { view, object: { metadata: { name: "l", uid: "lease", resourceVersion: "1" }, spec: {} } };
};

/** Leases that answer each write as told, and each read with the Lease that is there. */
const leasesWith = (outcomes: ("ok" | "conflict" | "unknown" | "refused")[], there: FencedLease) => {
  const writes: FencedLease[] = [];
  const leases: Pick<Leases, "get" | "write"> = {
    get: async () => there,
    async write(_, read, change) {
      const outcome = outcomes.shift() ?? "ok";
      writes.push(read);
      if (outcome === "ok")
        return { outcome, object: { ...read, view: { ...read.view, ...change, holder: change.holder } } };
      return outcome === "refused" ? { outcome, status: 403, message: "no" } : { outcome, message: "no" };
    },
  };
  return { leases, writes };
};

const opened = async () => {
  const store = makeMemoryStore("us");
  await store.open(key, noToken);
  return store;
};
const clock = makeFakeClock();

describe("raised above what was seen", () => {
  test("the sequence stands a safety jump above all, and the Lease has nothing left to spend", async () => {
    const store = await opened();
    const { leases } = leasesWith([], lease(3n, 64n));
    const raised = await raiseAbove({ leases, clock }, store, resource, lease(3n, 64n), 41n as Token);
    expect(raised).toMatchObject({ outcome: "raised", above: 64n + safetyJump });
    expect(raised).toMatchObject({
      lease: { view: { holder: "user:a/1", credit: { token: 3n, ceiling: 3n } } },
    });
    expect(await store.read(key)).toMatchObject({ ceiling: 64n + safetyJump });
  });

  test("a Lease without anything to spend is not written", async () => {
    const { leases, writes } = leasesWith([], lease(3n, 3n));
    await raiseAbove({ leases, clock }, await opened(), resource, lease(3n, 3n), 900n as Token);
    expect(writes).toEqual([]);
  });

  test.each(["conflict", "unknown"] as const)("%s: the Lease is read again and drained", async (outcome) => {
    const { leases, writes } = leasesWith([outcome], lease(4n, 64n));
    const raised = await raiseAbove({ leases, clock }, await opened(), resource, lease(3n, 64n), noToken);
    expect(raised).toMatchObject({
      outcome: "raised",
      lease: { view: { credit: { token: 4n, ceiling: 4n } } },
    });
    expect(writes).toHaveLength(2);
  });

  test("one that was granted from above meanwhile is left alone", async () => {
    const above = lease(64n + safetyJump + 1n, 64n + safetyJump + 64n);
    const { leases, writes } = leasesWith(["conflict"], above);
    const raised = await raiseAbove({ leases, clock }, await opened(), resource, lease(3n, 64n), noToken);
    expect(raised).toMatchObject({ outcome: "raised", lease: above });
    expect(writes).toHaveLength(1);
  });

  test("a refused write, or no sequence to raise, is said", async () => {
    const { leases } = leasesWith(["refused"], lease(3n, 64n));
    const deps = { leases, clock };
    expect(await raiseAbove(deps, await opened(), resource, lease(3n, 64n), noToken)).toMatchObject({
      outcome: "not_drained",
    });
    const missing = makeMemoryStore("us");
    expect(await raiseAbove(deps, missing, resource, lease(3n, 64n), noToken)).toMatchObject({
      outcome: "not_raised",
    });
    expect(drained(lease(3n, 64n).view, wallTime(1n)).credit).toMatchObject({ ceiling: 3n });
  });
});
