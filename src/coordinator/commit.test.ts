/** Steps 2 and 3: a token counts once its Lease write committed, and what became of a write is read, not guessed. */
import { describe, expect, it } from "vitest";
import {
  answered,
  answerLost,
  delayed,
  makeBarrier,
  notConnected,
  requestLost,
} from "../../test/support/memapi/faults.ts";
import { caller, makeWorld, type Replica } from "../../test/support/world.ts";
import { fencedResourceKind, leaseKind, namespaceKind } from "../kube/kinds.ts";

const a = caller("a");
const b = caller("b");
const leaseWrite = { verb: "update", resource: "leases" };
const sequenceWrite = { verb: "update", resource: "fencedsequences/status" };

const start = async (spec: object = {}) => {
  const world = await makeWorld();
  await world.declare(spec);
  return { world, one: await world.replica("one") };
};

/** A Lease with credit left, as almost always: 1 was granted and given back. */
const used = async () => {
  const { world, one } = await start();
  await one.acquire(caller("first"));
  await one.release(caller("first"), 1n);
  await world.settle();
  return { world, one };
};

const gaps = async ({ metrics }: Replica) => (await metrics.tokenGapsTotal.get()).values[0]?.value;

describe("the outcome of the commit is unknown", () => {
  it("as it was applied: read again, and the same token answered", async () => {
    const { world, one } = await start();
    world.api.fault(leaseWrite, answerLost);
    const since = world.api.seen.length;
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    expect(world.api.counts({ client: "one", since })).toMatchObject({ "update leases": 1, "get leases": 1 });
  });

  it("as it was not: a new try from what is there now", async () => {
    const { world, one } = await used();
    world.api.fault(leaseWrite, requestLost);
    const answer = await world.within(one.acquire(a), 1_000);
    expect(answer).toMatchObject({ outcome: "granted" });
    expect((await world.lease()).view.credit?.token).toBe("token" in answer ? answer.token : undefined);
  });

  it("as it was not yet: the late one lands first or not at all, and what is answered is what the Lease says", async () => {
    for (const late of [100, 300, 5_000]) {
      const { world, one } = await used();
      const stuck = delayed(world.clock, late);
      world.api.fault(leaseWrite, async (serve) => {
        void stuck(serve);
        return requestLost(serve);
      });
      const answer = await world.within(one.acquire(a), 1_000);
      await world.clock.advance(10_000);
      const { view } = await world.lease();
      expect(answer).toMatchObject({ outcome: "granted", token: view.credit?.token });
      expect(view.holder).toBe("pod:a/a-1");
      expect(await one.renew(a, view.credit?.token ?? 0n)).toMatchObject({ outcome: "renewed" });
    }
  });

  it("as the API server is gone: unavailable, and the same attempt gets its token later", async () => {
    const { world, one } = await used();
    world.api.fault(leaseWrite, async (serve) => {
      await serve();
      world.api.stop();
      return requestLost(serve);
    });
    expect(await one.acquire(a)).toMatchObject({ code: "store_unavailable" });
    world.api.start();
    await world.clock.advance(20_000);
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 2n });
  });

  it("as another attempt committed meanwhile: busy, and its grant is untouched", async () => {
    const { world, one } = await used();
    const two = await world.replica("two");
    world.api.fault({ ...leaseWrite, client: "one" }, async (serve) => {
      await two.acquire(b);
      return requestLost(serve);
    });
    expect(await world.within(one.acquire(a), 1_000)).toMatchObject({ code: "busy" });
    expect((await world.lease()).view.holder).toBe("pod:b/b-1");
    expect(await two.renew(b, (await world.lease()).view.credit?.token ?? 0n)).toMatchObject({
      outcome: "renewed",
    });
  });
});

describe("a write that surely did not happen", () => {
  it("is said, with what the server asks for", async () => {
    const { world, one } = await used();
    world.api.fault(leaseWrite, answered("TooManyRequests", { retryAfterSeconds: 7 }));
    expect(await one.acquire(a)).toMatchObject({
      code: "store_unavailable",
      extras: { retryAfterMs: 7_000 },
    });
    world.api.fault(leaseWrite, notConnected);
    expect(await one.acquire(a)).toMatchObject({ code: "store_unavailable" });
    world.api.fault(leaseWrite, answered("Forbidden"));
    expect(await one.acquire(a)).toMatchObject({ code: "store_unavailable" });
    expect((await world.lease()).view.holder).toBeUndefined();
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted" });
  });
});

it("a block that was lost on the way to the very first grant is waited out: it may have been handed out", async () => {
  const { world, one } = await start();
  world.api.fault(leaseWrite, requestLost);
  const asked = one.acquire(a, { waitMs: 30_000 });
  await world.clock.advance(14_000);
  expect((await world.lease()).view.holder).toBeUndefined();
  expect(await world.within(asked, 2_000)).toMatchObject({ outcome: "granted", token: 65n });
});

describe("S1-18 two replicas at one Lease", () => {
  it("one wins; the loser sees the winner, and never answers its own token", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    const barrier = makeBarrier();
    world.api.fault(leaseWrite, barrier.fault, 2);
    const both = [one.acquire(a), two.acquire(b)];
    await world.settle();
    expect(barrier.waiting()).toBe(2);
    barrier.open();
    const answers = await world.within(Promise.all(both), 1_000);
    expect(answers.map(({ outcome }) => outcome)).toEqual(["granted", "refused"]);
    expect(answers[1]).toMatchObject({ code: "busy", extras: { holder: "pod:a/a-1" } });
    expect(await gaps(two)).toBe(64);
  });

  it("a waiting loser gets the next, higher token", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    const barrier = makeBarrier();
    world.api.fault(leaseWrite, barrier.fault, 2);
    const first = one.acquire(a);
    const second = two.acquire(b, { waitMs: 30_000 });
    await world.settle();
    barrier.open();
    expect(await world.within(first, 100)).toMatchObject({ outcome: "granted" });
    const { view } = await world.lease();
    await one.release(a, view.credit?.token ?? 0n);
    const next = await world.within(second, 1_000);
    expect(next).toMatchObject({ outcome: "granted" });
    expect("token" in next ? next.token : 0n).toBeGreaterThan(view.credit?.token ?? 0n);
  });

  it("two polls of one attempt get one grant", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    const barrier = makeBarrier();
    world.api.fault(leaseWrite, barrier.fault, 2);
    const both = [one.acquire(a), two.acquire(a)];
    await world.settle();
    barrier.open();
    const answers = await world.within(Promise.all(both), 1_000);
    const { view } = await world.lease();
    for (const answer of answers)
      expect(answer).toMatchObject({ outcome: "granted", token: view.credit?.token });
    expect(view.transitions).toBe(1);
  });
});

describe("FM-04 S1-22 acquire dropped after allocation", () => {
  it("by a caller that went away: the Lease stays, the token is a gap and nobody's", async () => {
    const { world, one } = await start();
    const before = (await world.lease()).object;
    const gone = new AbortController();
    const barrier = makeBarrier("back");
    world.api.fault(sequenceWrite, barrier.fault);
    const dropped = one.acquire(a, { signal: gone.signal });
    await world.settle();
    gone.abort();
    barrier.open();
    expect(await world.within(dropped, 100)).toMatchObject({ code: "busy" });
    expect((await world.lease()).object).toEqual(before);
    expect(await gaps(one)).toBe(64);
    const next = one.acquire(b, { waitMs: 30_000 });
    expect(await world.within(next, 30_000)).toMatchObject({ outcome: "granted", token: 65n });
  });

  it("by a replica that drains: the caller is sent elsewhere", async () => {
    const { world, one } = await start();
    const barrier = makeBarrier("back");
    world.api.fault(sequenceWrite, barrier.fault);
    const dropped = one.acquire(a);
    await world.settle();
    one.coordinator.drain();
    barrier.open();
    expect(await world.within(dropped, 100)).toMatchObject({
      code: "not_ready",
      extras: { condition: "Ready/Draining" },
    });
    expect((await world.lease()).view.holder).toBeUndefined();
  });

  it("by a coordinator killed before the Lease write", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    world.api.fault({ ...leaseWrite, client: "one" }, requestLost, 100);
    void one.acquire(a).catch(() => {});
    await world.settle();
    await one.kill();
    const next = two.acquire(b, { waitMs: 30_000 });
    const answer = await world.within(next, 30_000);
    expect(answer).toMatchObject({ outcome: "granted" });
    expect("token" in answer ? answer.token : 0n).toBeGreaterThan(64n);
  });
});

describe("FM-05 S1-03 a coordinator is killed and the same attempt asks another one", () => {
  const points: [string, { verb: string; resource: string }, "there" | "back", bigint][] = [
    ["before the allocation", sequenceWrite, "there", 1n],
    ["after the allocation", sequenceWrite, "back", 65n],
    ["before the Lease write", leaseWrite, "there", 65n],
    ["after the Lease write", leaseWrite, "back", 1n],
  ];
  it.each(points)("%s", async (_name, match, way, token) => {
    const { world, one } = await start({ lease: { durationSeconds: 15 } });
    const two = await world.replica("two");
    const stuck = makeBarrier(way);
    world.api.fault({ ...match, client: "one" }, async (serve) => {
      if (way === "back") await serve();
      return stuck.fault(async () => requestLost(serve));
    });
    void one.acquire(a).catch(() => {});
    await world.settle();
    await one.kill();
    const again = two.acquire(a, { waitMs: 30_000 });
    const answer = await world.within(again, 30_000);
    expect(answer).toMatchObject({ outcome: "granted", token, holder: "pod:a/a-1" });
    await two.release(a, token);
    expect(await two.acquire(b)).toMatchObject({ outcome: "granted", token: token + 1n });
  });

  it("after the answer: the living holder goes on, and is not expired earlier than a full duration", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.clock.advance(14_000);
    await one.kill();
    const two = await world.replica("two");
    const rival = two.acquire(b, { waitMs: 14_500 });
    expect(await world.within(rival, 15_000)).toMatchObject({ code: "busy" });
    expect(await two.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect((await world.lease()).view.transitions).toBe(1);
  });
});

describe("FM-28 what is deleted and made again", () => {
  it("the FencedResource: the first token is above every earlier one", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await one.release(a, 1n);
    await world.admin.remove(fencedResourceKind, world.orders, {});
    await world.settle();
    expect(await one.acquire(b)).toMatchObject({ code: "unknown_resource" });
    await world.removeLease();
    await world.declare();
    await world.settle();
    const answer = one.acquire(b, { waitMs: 30_000 });
    expect(await world.within(answer, 30_000)).toMatchObject({ outcome: "granted", token: 65n });
  });

  it("while somebody waits: nothing is granted for what is not there", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const waiting = one.acquire(b, { waitMs: 30_000 });
    await world.settle();
    await world.admin.remove(fencedResourceKind, world.orders, {});
    await world.settle();
    await one.release(a, 1n);
    expect(await world.within(waiting, 30_000)).toMatchObject({ code: "unknown_resource" });
  });

  it("a Lease put back by a backup tool: its credit is void, whatever it claims", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await one.release(a, 1n);
    const { object } = await world.lease();
    await world.removeLease();
    const { uid: _uid, resourceVersion: _version, ...metadata } = object.metadata;
    await world.admin.create(leaseKind, { metadata, spec: object.spec });
    await world.settle();
    const answer = one.acquire(b, { waitMs: 30_000 });
    expect(await world.within(answer, 30_000)).toMatchObject({ outcome: "granted", token: 65n });
  });

  it("a namespace: a sequence outlives it", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.admin.remove(namespaceKind, { name: "shop" }, {});
    await world.clock.advance(5_000);
    expect(await one.acquire(b)).toMatchObject({ code: "unknown_resource" });
    await world.namespace("shop");
    await world.declare();
    await world.settle();
    const answer = one.acquire(b, { waitMs: 30_000 });
    expect(await world.within(answer, 30_000)).toMatchObject({ outcome: "granted", token: 65n });
  });

  it("a namespace that is going: no Lease is made in it, and the answer says why", async () => {
    const { world, one } = await start();
    await world.removeLease();
    await world.admin.remove(namespaceKind, { name: "shop" }, {});
    await world.settle();
    expect(await one.acquire(b)).toMatchObject({
      code: "not_ready",
      extras: { condition: "LeaseBound/LeaseRefused" },
    });
  });
});
