/** Who may take what, and when: judged by what a replica saw itself, and by its own clock. */
import { describe, expect, it } from "vitest";
import { fencedResourceKind, leaseKind } from "../kube/kinds.ts";
import { caller, makeWorld, type World } from "../../test/support/world.ts";

const a = caller("a");
const b = caller("b");

const start = async (spec: object = {}) => {
  const world = await makeWorld();
  await world.declare({ lease: { durationSeconds: 15, ...spec } });
  return { world, one: await world.replica("one") };
};

/** When, in seconds from now, `work` is granted. */
const grantedAfter = async (
  world: World,
  work: Promise<{ outcome: string }>,
  atMost = 120,
): Promise<number> => {
  const from = world.clock.mono();
  const answer = await world.within(work, atMost * 1_000);
  expect(answer).toMatchObject({ outcome: "granted" });
  return (world.clock.mono() - from) / 1_000;
};

/** An attempt that polls until it is granted. */
const wait = async (
  acquire: (who: typeof a, options: { waitMs: number }) => Promise<{ outcome: string; code?: string }>,
  who: typeof a,
) => {
  for (;;) {
    const answer = await acquire(who, { waitMs: 30_000 });
    if (answer.code !== "busy") return answer;
  }
};

describe("S1-06 a silent holder", () => {
  it("is followed one duration after its last renewal was seen, and never earlier", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const waiting = wait(one.acquire, b);
    await world.clock.advance(10_000);
    await one.renew(a, 1n);
    await world.clock.advance(14_900);
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(await grantedAfter(world, waiting, 1)).toBeLessThanOrEqual(0.2);
    expect((await world.lease()).view).toMatchObject({
      holder: "pod:b/b-1",
      ended: [{ holder: "pod:a/a-1", reason: "superseded" }],
    });
  });

  it("S1-02 S1-23 is judged by no time that anybody wrote", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    await one.acquire(a);
    // A machine that believes in another century renews; its record still counts from when it was seen.
    const { object } = await world.lease();
    for (const renewTime of ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"]) {
      const now = await world.lease();
      await world.admin.update(leaseKind, { ...now.object, spec: { ...object.spec, renewTime } });
    }
    await world.settle();
    expect(await two.acquire(b)).toMatchObject({ code: "busy" });
    expect(await grantedAfter(world, wait(two.acquire, b))).toBeCloseTo(15, 0);
  });

  it("a change of duration while held counts from the Lease, not from the spec", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.change({ lease: { durationSeconds: 3, renewIntervalSeconds: 1 } });
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeCloseTo(15, 0);
  });

  it("may still renew what ran out and was not taken", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.clock.advance(60_000);
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(await one.acquire(b)).toMatchObject({ code: "busy" });
  });
});

describe("S1-46 FM-05 FM-25 who has not looked has seen nothing", () => {
  it("a replica that just started waits a full duration", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.clock.advance(14_000);
    await one.kill();
    const two = await world.replica("two");
    expect(await grantedAfter(world, wait(two.acquire, b))).toBeCloseTo(15, 0);
  });

  it("after an interrupted watch the count begins anew", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const waiting = wait(one.acquire, b);
    await world.clock.advance(14_000);
    world.api.watches.cut("one");
    await world.clock.advance(14_000);
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(await grantedAfter(world, waiting)).toBeLessThan(3);
  });

  it("FM-25 an outage beyond the duration expires nobody: after it, a full duration of fresh observation", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.clock.advance(1_000);
    world.api.stop();
    await world.clock.advance(40_000);
    expect(await one.acquire(b)).toMatchObject({ code: "store_unavailable" });
    expect(await one.renew(a, 1n)).toMatchObject({ code: "store_unavailable" });
    world.api.start();
    // Requests get through before the watch is back: what was seen before the gap proves nothing.
    const waiting = wait(one.acquire, b);
    await world.settle();
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    const since = world.clock.mono();
    await grantedAfter(world, waiting);
    expect(world.clock.mono() - since).toBeGreaterThanOrEqual(15_000);
    expect((await world.lease()).view.credit?.token).toBe(2n);
  });

  it("FM-25 a partitioned replica grants nothing from its cache, and is level again afterwards", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    await one.acquire(a);
    await one.release(a, 1n);
    await world.settle();
    two.transport.partition();
    const asked = two.acquire(b);
    expect(await world.within(asked, 60_000)).toMatchObject({ code: "store_unavailable" });
    expect(await one.acquire(caller("c"))).toMatchObject({ outcome: "granted", token: 2n });
    await world.clock.advance(60_000);
    two.transport.heal();
    await world.clock.advance(60_000);
    expect(two.book.get(world.orders)?.lease.view.holder).toBe("pod:c/c-1");
    expect(two.watch.healthy()).toBe(true);
  });

  it("FM-25 a watch that fell silent is found out, and nobody is taken over meanwhile by what it did not show", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    await one.acquire(a);
    await world.settle();
    world.api.watches.silence("two");
    const waiting = wait(two.acquire, b);
    // A renews through another replica, which `two` does not hear; its compare-and-set shows it.
    for (let beat = 0; beat < 12; beat += 1) {
      await world.clock.advance(5_000);
      expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    }
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(two.watch.healthy()).toBe(true);
    await one.release(a, 1n);
    expect(await grantedAfter(world, waiting)).toBeLessThan(1);
  });
});

describe("an unclean loss", () => {
  it("after force waits one duration and the lock-delay", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await one.acquire(a);
    expect(await one.force("stuck")).toEqual({ outcome: "released", holder: "pod:a/a-1", token: 1n });
    expect((await world.lease()).view).toMatchObject({
      unclean: true,
      forced: "ann: stuck",
      holder: undefined,
    });
    expect(await one.renew(a, 1n)).toMatchObject({ code: "lost", extras: { reason: "forced" } });
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeCloseTo(22, 0);
    expect((await world.lease()).view).toMatchObject({ unclean: false, forced: undefined });
  });

  it("survives a coordinator's restart", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await one.acquire(a);
    await one.force("stuck");
    await world.clock.advance(20_000);
    await one.kill();
    const two = await world.replica("two");
    expect(await grantedAfter(world, wait(two.acquire, b))).toBeCloseTo(22, 0);
  });

  it("by expiry waits the lock-delay too", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await one.acquire(a);
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeCloseTo(22, 0);
  });

  it("by a deleted Lease, whose credit is void while tokens were handed out", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await one.acquire(a);
    await world.removeLease();
    await world.settle();
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeCloseTo(22, 0);
    expect((await world.lease()).view.credit?.token).toBe(65n);
  });

  it("is none where a sequence never handed anything out", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await world.removeLease();
    await world.settle();
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeLessThan(1);
  });

  it("counts as clean behind a fenced boundary", async () => {
    const world = await makeWorld();
    await world.declare({ lease: { durationSeconds: 15, lockDelaySeconds: 7 } });
    await world.admin.patchStatus(fencedResourceKind, world.orders, { status: { guarantee: "Fenced" } });
    const one = await world.replica("one");
    await one.acquire(a);
    await one.force("stuck");
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeLessThan(1);
  });

  it("that is clean has no delay: a release frees at once", async () => {
    const { world, one } = await start({ lockDelaySeconds: 7 });
    await one.acquire(a);
    await one.release(a, 1n);
    expect(await grantedAfter(world, wait(one.acquire, b))).toBeLessThan(1);
  });
});
