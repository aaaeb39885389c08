import { describe, expect, it } from "vitest";
import { leaseKind } from "../kube/kinds.ts";
import { caller, makeWorld } from "../../test/support/world.ts";

const a = caller("a");
const b = caller("b");
const c = caller("c");

const start = async (spec: object = {}) => {
  const world = await makeWorld();
  await world.declare(spec);
  return { world, one: await world.replica("one") };
};

describe("acquire", () => {
  it("S1-03 S1-46 grants a free resource, and the Lease says it to everybody", async () => {
    const { world, one } = await start();
    expect(await one.acquire(a)).toEqual({
      outcome: "granted",
      holder: "pod:a/a-1",
      token: 1n,
      leaseDurationMs: 15_000,
      renewAfterMs: 5_000,
      guarantee: "Advisory",
      advanced: false,
    });
    const { object, view } = await world.lease();
    expect(object.spec).toMatchObject({
      holderIdentity: "pod:a/a-1",
      leaseDurationSeconds: 15,
      leaseTransitions: 1,
      renewTime: "2026-01-01T00:00:00.000000Z",
      acquireTime: "2026-01-01T00:00:00.000000Z",
    });
    expect(view.credit).toEqual({ uid: view.uid, token: 1n, ceiling: 64n });
  });

  it("answers a first term of 15 s at most, and the whole duration from the first renewal on", async () => {
    const { world, one } = await start({ lease: { durationSeconds: 120, renewIntervalSeconds: 40 } });
    expect(await one.acquire(a)).toMatchObject({ leaseDurationMs: 15_000, renewAfterMs: 5_000 });
    expect((await world.lease()).view.durationSeconds).toBe(15);
    expect(await one.renew(a, 1n)).toMatchObject({ leaseDurationMs: 120_000, renewAfterMs: 40_000 });
    expect((await world.lease()).view.durationSeconds).toBe(120);
    // A grant whose answer was lost blocks nobody for longer, but a repeated acquire is a renewal.
    expect(await one.acquire(a)).toMatchObject({ leaseDurationMs: 120_000, token: 1n });
  });

  it("repeated by the same attempt is a renewal: one write, the same grant, another time", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const before = (await world.lease()).view.renewTime;
    const since = world.api.seen.length;
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    expect(world.api.counts({ client: "one", since })).toEqual({ "update leases": 1 });
    const { renewTime, transitions } = (await world.lease()).view;
    expect(renewTime).not.toBe(before);
    expect(transitions).toBe(1);
  });

  it("S1-52 refuses an attempt that has ended: a new acquisition is a new attempt", async () => {
    const { one } = await start();
    await one.acquire(a);
    await one.release(a, 1n);
    expect(await one.acquire(a)).toMatchObject({ code: "lost", extras: { reason: "released" } });
    expect(await one.acquire(caller("a", "2"))).toMatchObject({ outcome: "granted", token: 2n });
  });

  it("S1-24 refuses an attempt that another identity made, while it lives and when it has ended", async () => {
    const { one } = await start();
    await one.acquire(a);
    const thief = { identity: "pod:thief", attempt: a.attempt };
    expect(await one.acquire(thief)).toMatchObject({ code: "forbidden" });
    expect(await one.renew(thief, 1n)).toMatchObject({ code: "forbidden" });
    expect(await one.release(thief, 1n)).toMatchObject({ code: "forbidden" });
    await one.release(a, 1n);
    expect(await one.acquire(thief)).toMatchObject({ code: "forbidden" });
  });

  it("says who is in the way, and how many come first on this replica", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    expect(await one.acquire(b)).toMatchObject({
      code: "busy",
      extras: { holder: "pod:a/a-1", aheadOnThisReplica: 0, retryAfterMs: 1_000 },
    });
    const waiting = one.acquire(b, { waitMs: 1_000 });
    expect(await one.acquire(c)).toMatchObject({ code: "busy", extras: { aheadOnThisReplica: 1 } });
    // A single question leaves no seat behind.
    expect(one.coordinator.waiting(world.orders)).toBe(1);
    await world.within(waiting, 1_000);
  });

  it("S1-22 knows no resource that was never applied, and makes nothing for it", async () => {
    const { world, one } = await start();
    const nowhere = { namespace: "shop", name: "nowhere" };
    expect(await one.acquire(a, {}, nowhere)).toMatchObject({ code: "unknown_resource" });
    expect(await world.leases.get(nowhere)).toBeUndefined();
  });

  it("makes a missing Lease without holder and credit first", async () => {
    const { world, one } = await start();
    await world.removeLease();
    await world.settle();
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    const made = world.api.seen.findLast(({ client, verb }) => client === "one" && verb === "create");
    expect(JSON.parse(made?.request.body ?? "")).toMatchObject({ spec: {} });
    expect(made?.request.body).not.toMatch(/holderIdentity|credit-uid|fenceline.dev\/token/);
  });

  it("FM-39 leaves a Lease alone that is not ours, and says what to do", async () => {
    const { world, one } = await start();
    await world.removeLease();
    const foreign = {
      metadata: { name: "fenceline-orders", namespace: "shop" },
      spec: { holderIdentity: "me" },
    };
    await world.admin.create(leaseKind, foreign);
    expect(await one.acquire(a)).toMatchObject({
      code: "not_ready",
      extras: { condition: "LeaseBound/ForeignLease" },
    });
    expect((await world.lease()).object.spec.holderIdentity).toBe("me");
  });

  it("grants nothing while the resource is suspended; who holds goes on", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.change({ suspend: true });
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    await one.release(a, 1n);
    expect(await one.acquire(b)).toMatchObject({
      code: "not_ready",
      extras: { condition: "Ready/Suspended" },
    });
    await world.change({ suspend: false });
    expect(await one.acquire(b)).toMatchObject({ outcome: "granted", token: 2n });
  });

  it("grants nothing to whom waited when it was suspended", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const waiting = one.acquire(b, { waitMs: 20_000 });
    await world.settle();
    await world.change({ suspend: true });
    await one.release(a, 1n);
    expect(await world.within(waiting, 20_000)).toMatchObject({
      code: "not_ready",
      extras: { condition: "Ready/Suspended" },
    });
  });

  it("serves no Lease of a later format", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const { object } = await world.lease();
    const annotations = { ...object.metadata.annotations, "fenceline.dev/format": "2" };
    await world.admin.update(leaseKind, {
      ...object,
      metadata: { ...object.metadata, annotations },
    });
    await world.settle();
    const newer = { code: "not_ready", extras: { condition: "LeaseBound/NewerFormat" } };
    expect(await one.acquire(b)).toMatchObject(newer);
    expect(await one.renew(a, 1n)).toMatchObject(newer);
    expect(await one.release(a, 1n)).toMatchObject(newer);
    expect(await one.force("stuck")).toMatchObject(newer);
    expect((await world.lease()).view.format).toBe(2);
  });
});

describe("waiting", () => {
  it("first in, first out: a release reaches the head at once", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const order: string[] = [];
    const wait = async (who: typeof a) => {
      const answer = await one.acquire(who, { waitMs: 30_000 });
      order.push(`${who.attempt} ${answer.outcome}`);
      return answer;
    };
    const second = wait(b);
    await world.settle();
    const third = wait(c);
    await world.settle();
    await one.release(a, 1n);
    expect(await world.within(second, 100)).toMatchObject({ outcome: "granted", token: 2n });
    await one.release(b, 2n);
    expect(await world.within(third, 100)).toMatchObject({ outcome: "granted", token: 3n });
    expect(order).toEqual(["b-1 granted", "c-1 granted"]);
  });

  it("a release, a take-away and a deletion through another replica reach the head by watch", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    await one.acquire(a);
    const second = two.acquire(b, { waitMs: 30_000 });
    await world.settle();
    await one.release(a, 1n);
    expect(await world.within(second, 100)).toMatchObject({ outcome: "granted", token: 2n });
  });

  it("ends busy at its time, and keeps the seat 5 s for the same attempt", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const first = one.acquire(b, { waitMs: 2_000 });
    await world.settle();
    expect(one.coordinator.waiting(world.orders)).toBe(1);
    expect(await world.within(first, 2_000)).toMatchObject({ code: "busy" });
    await world.clock.advance(4_900);
    expect(one.coordinator.waiting(world.orders)).toBe(1);
    expect(await one.acquire(c)).toMatchObject({ extras: { aheadOnThisReplica: 1 } });
    const again = one.acquire(b, { waitMs: 50 });
    expect(await world.within(again, 100)).toMatchObject({ extras: { aheadOnThisReplica: 0 } });
    await world.clock.advance(5_000);
    expect(one.coordinator.waiting(world.orders)).toBe(0);
  });

  it("whoever has the right already does not stand in line for it", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const second = one.acquire(b, { waitMs: 30_000 });
    await world.settle();
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    await one.release(a, 1n);
    await world.within(second, 100);
  });

  it("whoever turns out to have it, by a watch that was late, is answered at once", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    world.api.watches.silence("two");
    await one.acquire(a);
    const queued = two.acquire(b, { waitMs: 30_000 });
    await world.within(world.clock.sleep(600), 1_000);
    const again = two.acquire(a, { waitMs: 30_000 });
    await world.settle();
    world.api.watches.cut("two");
    expect(await world.within(again, 2_000)).toMatchObject({ outcome: "granted", token: 1n });
    await one.release(a, 1n);
    await world.within(queued, 60_000);
  });

  it("too many for one identity, or for one resource, are overloaded", async () => {
    const world = await makeWorld();
    await world.declare();
    const one = await world.replica("one", { limits: { perResource: 4, perIdentity: 2, total: 100 } });
    await one.acquire(a);
    const enter = (name: string, attempt: string) =>
      world.within(one.acquire(caller(name, attempt), { waitMs: 50 }), 100);
    expect(await enter("b", "1")).toMatchObject({ code: "busy" });
    expect(await enter("b", "2")).toMatchObject({ code: "busy" });
    expect(await enter("b", "3")).toMatchObject({ code: "overloaded", extras: { retryAfterMs: 5_000 } });
    expect(await enter("b", "2")).toMatchObject({ code: "busy" });
    expect(await enter("c", "1")).toMatchObject({ code: "busy" });
    expect(await enter("c", "2")).toMatchObject({ code: "busy" });
    expect(await enter("d", "1")).toMatchObject({ code: "overloaded" });
  });

  it("a caller that went away is granted nothing, and its seat is not kept for long", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const gone = new AbortController();
    const second = one.acquire(b, { waitMs: 30_000, signal: gone.signal });
    const third = one.acquire(c, { waitMs: 30_000 });
    await world.settle();
    gone.abort();
    expect(await world.within(second, 100)).toMatchObject({ code: "busy" });
    await one.release(a, 1n);
    expect(await world.within(third, 5_100)).toMatchObject({ outcome: "granted", token: 2n });
  });

  it("when the replica drains, waiters are sent elsewhere at once, and renewals go on", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const second = one.acquire(b, { waitMs: 30_000 });
    await world.settle();
    one.coordinator.drain();
    const draining = { code: "not_ready", extras: { condition: "Ready/Draining", retryAfterMs: 0 } };
    expect(await world.within(second, 100)).toMatchObject(draining);
    expect(await one.acquire(c)).toMatchObject(draining);
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(await one.release(a, 1n)).toMatchObject({ outcome: "released" });
  });
});
