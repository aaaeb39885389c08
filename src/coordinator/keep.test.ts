/** Renew, release, take away: only for whom the Lease names, by this token, and harmless when late. */
import { describe, expect, it } from "vitest";
import { answerLost, delayed, requestLost } from "../../test/support/memapi/faults.ts";
import { caller, makeWorld } from "../../test/support/world.ts";
import { fencedResourceKind, leaseKind } from "../kube/kinds.ts";

const a = caller("a");
const b = caller("b");
const leaseWrite = { verb: "update", resource: "leases" };

const start = async (spec: object = {}) => {
  const world = await makeWorld();
  await world.declare(spec);
  return { world, one: await world.replica("one") };
};

/** A held 1, was silent for too long, and B holds 2. */
const takenOver = async () => {
  const { world, one } = await start();
  await one.acquire(a);
  await world.clock.advance(15_000);
  expect(await one.acquire(b)).toMatchObject({ outcome: "granted", token: 2n });
  return { world, one };
};

const lostTo = (reason: string) => ({ outcome: "refused", code: "lost", extras: { reason } });

describe("FM-03 renew and release after expiry", () => {
  for (const order of [
    ["renew", "release"],
    ["release", "renew"],
  ] as const)
    it(`S1-38 S1-39 ${order.join(", then ")}: three times each, and B's Lease stays as it is`, async () => {
      const { world, one } = await takenOver();
      const before = await world.lease();
      for (let time = 0; time < 3; time += 1)
        for (const call of order) {
          const answer = await one[call](a, 1n);
          expect(answer).toMatchObject(
            call === "renew" ? lostTo("superseded") : { outcome: "unchanged", reason: "superseded" },
          );
        }
      expect((await world.lease()).object).toEqual(before.object);
      expect(await one.renew(b, 2n)).toMatchObject({ outcome: "renewed" });
    });
});

describe("FM-12 a late renewal", () => {
  it("S1-38 that lands after the next grant changes nothing, and is answered as lost", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    await one.acquire(a);
    world.api.fault({ ...leaseWrite, client: "one" }, delayed(world.clock, 20_000));
    const late = one.renew(a, 1n);
    await world.clock.advance(15_500);
    expect(await two.acquire(b)).toMatchObject({ outcome: "granted", token: 2n });
    const before = await world.lease();
    expect(await world.within(late, 10_000)).toMatchObject(lostTo("superseded"));
    expect((await world.lease()).object).toEqual(before.object);
    expect(await two.renew(b, 2n)).toMatchObject({ outcome: "renewed" });
    const { values } = await one.metrics.renewTotal.get();
    expect(values.find(({ labels }) => labels.outcome === "lost")?.value).toBe(1);
  });

  it("given up by its sender may still land, and then is a renewal like any other", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, requestLost);
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect((await world.lease()).view.credit?.token).toBe(1n);
  });
});

describe("S1-37 renew", () => {
  it("whose answer was lost is read again and not written twice", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, answerLost);
    const since = world.api.seen.length;
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(world.api.counts({ client: "one", since })).toEqual({ "update leases": 1, "get leases": 1 });
  });

  it("whose answers keep getting lost is not called lost", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, requestLost, 10);
    expect(await world.within(one.renew(a, 1n), 1_000)).toMatchObject({ code: "outcome_unknown" });
  });

  it("with another token than the granted one is lost", async () => {
    const { one } = await takenOver();
    expect(await one.renew(b, 1n)).toMatchObject(lostTo("superseded"));
    expect(await one.renew(b, 2n)).toMatchObject({ outcome: "renewed" });
  });

  it("says lost by a fresh read only: a replica that is behind asks first", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    world.api.watches.silence("two");
    await one.acquire(a);
    const since = world.api.seen.length;
    expect(await two.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(world.api.counts({ client: "two", since })).toEqual({ "get leases": 1, "update leases": 1 });
  });

  it("writes another time each time, on a clock that stands still or goes back", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const times = new Set([(await world.lease()).object.spec.renewTime]);
    for (let time = 0; time < 5; time += 1) {
      await one.renew(a, 1n);
      times.add((await world.lease()).object.spec.renewTime);
    }
    expect(times.size).toBe(6);
  });

  it("keeps what others wrote into the Lease's metadata", async () => {
    const { world, one } = await start();
    const { object } = await world.lease();
    const labels = { ...object.metadata.labels, team: "red" };
    await world.admin.update(leaseKind, { ...object, metadata: { ...object.metadata, labels } });
    await world.settle();
    await one.acquire(a);
    await one.renew(a, 1n);
    await one.release(a, 1n);
    expect((await world.lease()).object.metadata.labels).toEqual(labels);
  });
});

describe("S1-39 release", () => {
  it("frees, keeps the credit, remembers the attempt, and says so when it is repeated", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    expect(await one.release(a, 1n)).toEqual({ outcome: "released" });
    expect(await one.release(a, 1n)).toEqual({ outcome: "unchanged", reason: "released" });
    expect((await world.lease()).view).toMatchObject({
      holder: undefined,
      credit: { token: 1n, ceiling: 64n },
      ended: [{ holder: "pod:a/a-1", reason: "released" }],
    });
  });

  it("whose answer was lost is found done", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, answerLost);
    expect(await one.release(a, 1n)).toEqual({ outcome: "released" });
  });

  it("that surely did not happen says so", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.stop();
    await world.settle();
    expect(await one.release(a, 1n)).toMatchObject({ code: "store_unavailable" });
  });

  it("does not touch who came next", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, delayed(world.clock, 20_000));
    const late = one.release(a, 1n);
    await world.clock.advance(15_500);
    const two = await world.replica("two");
    const next = two.acquire(b, { waitMs: 30_000 });
    expect(await world.within(late, 10_000)).toEqual({ outcome: "released" });
    expect(await world.within(next, 100)).toMatchObject({ outcome: "granted", token: 2n });
    expect(await one.release(a, 1n)).toEqual({ outcome: "unchanged", reason: "released" });
    expect((await world.lease()).view.holder).toBe("pod:b/b-1");
  });

  it("works when the FencedResource is gone; a renewal is told that it was deleted", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.admin.remove(fencedResourceKind, world.orders, {});
    await world.settle();
    expect(await one.renew(a, 1n)).toMatchObject(lostTo("deleted"));
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(await one.release(a, 1n)).toEqual({ outcome: "released" });
  });
});

describe("take away", () => {
  it("without a holder changes nothing", async () => {
    const { world, one } = await start();
    const before = await world.lease();
    expect(await one.force("stuck")).toEqual({ outcome: "unchanged", reason: "nobody holds it" });
    expect((await world.lease()).object).toEqual(before.object);
  });

  it("whose answer was lost is found done, with whom it took away from", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, answerLost);
    expect(await one.force("stuck")).toEqual({ outcome: "released", holder: "pod:a/a-1", token: 1n });
  });

  it("of a resource that was never applied is unknown", async () => {
    const { one } = await start();
    expect(await one.force("x", { namespace: "shop", name: "nowhere" })).toMatchObject({
      code: "unknown_resource",
    });
  });
});

describe("FM-27 the Lease is deleted while it is held", () => {
  it("S1-03 S1-18 ten times: the holder is told, the next token is higher, and no Lease is made with a holder", async () => {
    const { world, one } = await start({ lease: { durationSeconds: 3, renewIntervalSeconds: 1 } });
    let last = 0n;
    for (let round = 0; round < 10; round += 1) {
      const me = caller("worker", String(round));
      const asked = one.acquire(me, { waitMs: 30_000 });
      const answer = await world.within(asked, 30_000);
      if (answer.outcome !== "granted") throw new Error(JSON.stringify(answer.code));
      expect(answer.token).toBeGreaterThan(last);
      last = answer.token;
      await world.removeLease();
      expect(await one.renew(me, answer.token)).toMatchObject(lostTo("deleted"));
      expect(await one.release(me, answer.token)).toEqual({ outcome: "unchanged", reason: "deleted" });
    }
    const made = world.api.seen.filter(
      ({ client, verb, resource }) => client === "one" && verb === "create" && resource === "leases",
    );
    expect(made).toHaveLength(9);
    for (const { request } of made) expect(JSON.parse(request.body ?? "{}").spec).toEqual({});
    // A PUT that made one would have been answered 201.
    expect(world.api.seen.filter(({ verb, code }) => verb === "update" && code === "201")).toEqual([]);
  });

  it("a write on its way to the old Lease does not land in the new one", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    world.api.fault(leaseWrite, delayed(world.clock, 5_000));
    const late = one.renew(a, 1n);
    await world.settle();
    await world.removeLease();
    const two = await world.replica("two");
    const next = two.acquire(b, { waitMs: 30_000 });
    expect(await world.within(late, 10_000)).toMatchObject(lostTo("deleted"));
    expect(await world.within(next, 30_000)).toMatchObject({ outcome: "granted", token: 65n });
  });

  it("and dying of a finalizer: counts as gone, is not renewed, and takes no new holder", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const { object } = await world.lease();
    await world.admin.update(leaseKind, {
      ...object,
      metadata: { ...object.metadata, finalizers: ["test.fenceline.dev/kept"] },
    });
    await world.removeLease();
    expect(await one.renew(a, 1n)).toMatchObject(lostTo("deleted"));
    expect(await one.acquire(b)).toMatchObject({
      code: "not_ready",
      extras: { condition: "LeaseBound/LeaseMissing" },
    });
  });
});
