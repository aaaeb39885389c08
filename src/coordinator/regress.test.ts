/** Never going back: floors, the end of the range, restores and those who can testify. */
import { describe, expect, it } from "vitest";
import { makeBarrier } from "../../test/support/memapi/faults.ts";
import { caller, makeWorld, type Replica, type World } from "../../test/support/world.ts";
import { lastToken, type Token } from "../core/token.ts";
import { safetyJump } from "../core/lease.ts";

const a = caller("a");
const b = caller("b");

const start = async (spec: object = {}, at?: Token) => {
  const world = await makeWorld();
  await world.declare(spec, at === undefined ? {} : { at });
  return { world, one: await world.replica("one") };
};

const tokenOf = (answer: object): bigint => {
  if (!("token" in answer) || typeof answer.token !== "bigint") throw new Error(JSON.stringify(answer));
  return answer.token;
};

/** Granted and given back `times` times; the last token. */
const turns = async (world: World, one: Replica, times: number): Promise<bigint> => {
  let last = 0n;
  for (let turn = 0; turn < times; turn += 1) {
    const me = caller("turn", world.random.uuid());
    last = tokenOf(await world.within(one.acquire(me, { waitMs: 30_000 }), 30_000));
    await one.release(me, last);
  }
  return last;
};

describe("the floor", () => {
  it("is below every token from now on, in the midst of a credit and beyond it", async () => {
    const { world, one } = await start();
    expect(await turns(world, one, 1)).toBe(1n);
    await world.change({ tokens: { floor: "10" } });
    expect(await turns(world, one, 1)).toBe(65n);
    await world.change({ tokens: { floor: "66" } });
    expect(await turns(world, one, 1)).toBe(129n);
    await world.change({ tokens: { floor: "1000000" } });
    expect(await turns(world, one, 2)).toBe(1_000_002n);
  });

  it("counts for whom waited when it was raised", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const waiting = one.acquire(b, { waitMs: 30_000 });
    await world.settle();
    await world.change({ tokens: { floor: "1000" } });
    await one.release(a, 1n);
    expect(tokenOf(await world.within(waiting, 1_000))).toBe(1_001n);
  });

  it("counts after a restore as well", async () => {
    const { world, one } = await start();
    await turns(world, one, 1);
    const floor = 2n ** 30n;
    await world.change({ tokens: { floor: floor.toString() } });
    one.book.regressed();
    expect(await turns(world, one, 1)).toBeGreaterThan(floor);
  });
});

describe("FM-38 the end of the range", () => {
  it("S1-18 the last token is granted once, and then none: nothing wraps", async () => {
    const { world, one } = await start({ tokens: { reserve: 2 } }, (lastToken - 2n) as Token);
    expect(await turns(world, one, 1)).toBe(lastToken - 1n);
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: lastToken });
    expect(await one.renew(a, lastToken)).toMatchObject({ outcome: "renewed" });
    const { object } = await world.lease();
    expect(object.metadata.annotations).toMatchObject({ "fenceline.dev/token": "9223372036854775807" });
    await one.release(a, lastToken);
    expect(await one.acquire(b)).toMatchObject({ code: "tokens_exhausted" });
    expect((await world.lease()).view.holder).toBeUndefined();
    expect(await world.sequences.read("shop/orders")).toMatchObject({ ceiling: lastToken });
  });

  it("tokens beyond 2^53 stay exact through Lease and sequence", async () => {
    const { world, one } = await start({}, 9_007_199_254_740_992n as Token);
    expect(await one.acquire(a)).toMatchObject({ token: 9_007_199_254_740_993n });
    expect((await world.lease()).object.metadata.annotations).toMatchObject({
      "fenceline.dev/token": "9007199254740993",
    });
  });

  it("a restore near the end is exhausted, not wrapped", async () => {
    const { world, one } = await start({ tokens: { reserve: 2 } }, (lastToken - 100n) as Token);
    await turns(world, one, 1);
    one.book.regressed();
    expect(await one.acquire(a)).toMatchObject({ code: "tokens_exhausted" });
  });
});

describe("FM-29 etcd is restored from a backup", () => {
  /** Ten turns after the backup, which knows of one. */
  const restored = async () => {
    const { world, one } = await start();
    await turns(world, one, 1);
    const backup = world.api.snapshot();
    const highest = await turns(world, one, 10);
    await world.settle();
    world.api.restore(backup);
    return { world, one, highest };
  };

  it("S1-03 a replica that lived through it notices, and grants only beyond a safety jump", async () => {
    const { world, one, highest } = await restored();
    await world.clock.advance(30_000);
    const token = tokenOf(await world.within(one.acquire(a, { waitMs: 30_000 }), 30_000));
    expect(token).toBeGreaterThan(highest + safetyJump);
    await one.release(a, token);
    expect(tokenOf(await one.acquire(b))).toBe(token + 1n);
  });

  it("a fresh read that is older than what was known is noticed without any watch", async () => {
    const { world, one, highest } = await restored();
    expect(one.book.suspect(world.orders)).toBeUndefined();
    await one.renew(a, highest);
    expect(one.book.suspect(world.orders)).toBeUndefined();
    expect((await world.lease()).view.credit?.ceiling).toBe((await world.lease()).view.credit?.token);
  });

  it("a living holder's renewal testifies where nobody else knows: it is lost, and its token never granted again", async () => {
    const { world, one } = await start();
    await turns(world, one, 1);
    const backup = world.api.snapshot();
    await turns(world, one, 10);
    const seen = tokenOf(await one.acquire(a));
    await one.kill();
    world.api.restore(backup);
    const two = await world.replica("two");
    expect(await two.renew(a, seen)).toMatchObject({ code: "lost", extras: { reason: "superseded" } });
    const { view } = await world.lease();
    expect(view.credit?.ceiling).toBe(view.credit?.token);
    // Not only through the replica that heard it.
    const three = await world.replica("three");
    expect(tokenOf(await three.acquire(b))).toBeGreaterThan(seen + safetyJump);
  });

  it("a renewal testifies also when the backup knew no grant at all", async () => {
    const { world, one } = await start();
    const backup = world.api.snapshot();
    await turns(world, one, 10);
    const seen = tokenOf(await one.acquire(a));
    await one.kill();
    world.api.restore(backup);
    const two = await world.replica("two");
    expect(await two.renew(a, seen)).toMatchObject({ code: "lost", extras: { reason: "deleted" } });
    const three = await world.replica("three");
    const answer = await world.within(three.acquire(b, { waitMs: 30_000 }), 30_000);
    expect(tokenOf(answer)).toBeGreaterThan(seen);
  });

  it("FM-27 while a holder whose Lease was deleted testifies to nothing: its token is known to the sequence", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    await world.removeLease();
    expect(await one.renew(a, 1n)).toMatchObject({ code: "lost", extras: { reason: "deleted" } });
    expect(await world.sequences.read("shop/orders")).toMatchObject({ ceiling: 64n });
  });

  it("the same testimony again raises nothing more", async () => {
    const { world, one } = await start();
    await turns(world, one, 1);
    await one.renew(a, 45n);
    const once = await world.sequences.read("shop/orders");
    await one.renew(a, 45n);
    await one.renew(a, 45n);
    expect(await world.sequences.read("shop/orders")).toEqual(once);
  });

  it("S1-25 a number that nobody can have been granted is invalid, and changes nothing", async () => {
    const { world, one } = await start();
    await one.acquire(a);
    const before = [await world.sequences.read("shop/orders"), (await world.lease()).object];
    expect(await one.renew(b, 2n ** 33n)).toMatchObject({
      code: "invalid_request",
      extras: { field: "token" },
    });
    expect([await world.sequences.read("shop/orders"), (await world.lease()).object]).toEqual(before);
    expect(one.book.suspect(world.orders)).toBeUndefined();
  });

  it("a testimony that comes while a grant is on its way is not forgotten by that grant", async () => {
    const { world, one } = await start();
    await turns(world, one, 1);
    const barrier = makeBarrier();
    world.api.fault({ verb: "update", resource: "leases" }, barrier.fault);
    const granting = one.acquire(b);
    await world.settle();
    // The sequence does not answer, so that the testimony can only be remembered.
    world.api.fault({ verb: "update", resource: "fencedsequences/status" }, async (serve) => {
      const answer = await serve();
      return { ...answer, status: 403 };
    });
    await one.renew(a, 45n);
    barrier.open();
    const token = tokenOf(await world.within(granting, 1_000));
    await one.release(b, token);
    expect(tokenOf(await world.within(one.acquire(caller("c"), { waitMs: 30_000 }), 30_000))).toBeGreaterThan(
      45n,
    );
  });

  it("a sequence alone that went back is raised above what the Lease was lent", async () => {
    const { world, one } = await start({ tokens: { reserve: 2 } });
    const { base } = (await world.sequences.read("shop/orders")) as { base: Token };
    await turns(world, one, 2);
    const read = await world.sequences.read("shop/orders");
    expect(read).toMatchObject({ ceiling: 2n });
    await world.rewindSequence(base);
    expect(await turns(world, one, 1)).toBeGreaterThan(2n);
  });
});
