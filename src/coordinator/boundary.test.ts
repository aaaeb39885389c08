/** Step 4: no path hands out a token that the boundary of that very Lease version does not know. */
import { describe, expect, it } from "vitest";
import { answerLost, requestLost } from "../../test/support/memapi/faults.ts";
import { caller, fakeBoundarySpec, makeWorld } from "../../test/support/world.ts";
import { leaseAnnotations } from "../api/names.ts";
import { holderId } from "../core/lease.ts";
import type { Token } from "../core/token.ts";
import { fencedResourceKind, leaseKind } from "../kube/kinds.ts";

const a = caller("a");
const b = caller("b");
const leaseWrite = { verb: "update", resource: "leases" };
const t = (value: number) => BigInt(value) as Token;

const start = async (boundary: object = {}) => {
  const world = await makeWorld();
  await world.declare({ boundary: { ...fakeBoundarySpec, ...boundary } });
  await world.admin.patchStatus(fencedResourceKind, world.orders, { status: { guarantee: "Fenced" } });
  return { world, one: await world.replica("one"), boundary: world.boundary };
};

const notGuarded = { code: "not_ready", extras: { condition: "BoundaryGuarded/BoundaryNotInstalled" } };

describe("every path that hands out a token advances the boundary first", () => {
  it("the first answer: after the commit, before the answer", async () => {
    const { world, one, boundary } = await start();
    boundary.meanwhile(async () => {
      expect((await world.lease()).view).toMatchObject({ holder: "pod:a/a-1", credit: { token: 1n } });
    });
    expect(await one.acquire(a)).toMatchObject({
      outcome: "granted",
      token: 1n,
      advanced: true,
      guarantee: "Fenced",
    });
    expect(boundary.calls).toEqual(["1 pod:a/a-1"]);
    expect(boundary.mark()).toBe(1n);
  });

  it("a repeated attempt", async () => {
    const { one, boundary } = await start();
    await one.acquire(a);
    boundary.rewind(t(0));
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n, advanced: true });
    expect(boundary.mark()).toBe(1n);
  });

  it("a repeated attempt at another replica, after the first one died between commit and answer", async () => {
    const { world, one, boundary } = await start();
    const two = await world.replica("two");
    boundary.meanwhile(async () => {
      await one.kill();
    });
    boundary.fail("request-lost");
    await one.acquire(a);
    expect(boundary.mark()).toBe(0n);
    expect(await two.acquire(a)).toMatchObject({ outcome: "granted", token: 1n, advanced: true });
    expect(boundary.mark()).toBe(1n);
  });

  it("a commit whose answer was lost", async () => {
    const { world, one, boundary } = await start();
    world.api.fault(leaseWrite, answerLost);
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n, advanced: true });
    expect(boundary.calls).toEqual(["1 pod:a/a-1"]);
  });

  it("a repeated attempt whose renewal was lost", async () => {
    const { world, one, boundary } = await start();
    await one.acquire(a);
    boundary.rewind(t(0));
    world.api.fault(leaseWrite, requestLost);
    expect(await world.within(one.acquire(a), 1_000)).toMatchObject({ outcome: "granted", token: 1n });
    expect(boundary.mark()).toBe(1n);
  });

  it("but not a plain renewal: it hands out nothing", async () => {
    const { one, boundary } = await start();
    await one.acquire(a);
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    expect(await one.release(a, 1n)).toMatchObject({ outcome: "released" });
    expect(boundary.calls).toHaveLength(1);
  });

  it("and with OnFirstWrite none: advanced is false, and the answer says so", async () => {
    const { one, boundary } = await start({ advance: "OnFirstWrite" });
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", advanced: false });
    expect(boundary.calls).toEqual([]);
  });
});

describe("the boundary does not say yes", () => {
  for (const fault of ["request-lost", "answer-lost"] as const)
    it(`no answer (${fault}): outcome unknown, the commit stands, the same attempt gets the same token`, async () => {
      const { world, one, boundary } = await start();
      boundary.fail(fault);
      expect(await one.acquire(a)).toMatchObject({
        code: "outcome_unknown",
        extras: { retryAfterMs: 1_000 },
      });
      expect((await world.lease()).view).toMatchObject({ holder: "pod:a/a-1", credit: { token: 1n } });
      expect(await one.acquire(b)).toMatchObject({ code: "busy" });
      expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n, advanced: true });
    });

  it("closed: says so, the commit stands, and advance never opens", async () => {
    const { world, one, boundary } = await start();
    boundary.close("c1");
    expect(await one.acquire(a)).toMatchObject({ code: "boundary_closed", extras: { retryAfterMs: 1_000 } });
    expect((await world.lease()).view.holder).toBe("pod:a/a-1");
    expect(await one.acquire(a)).toMatchObject({ code: "boundary_closed" });
    await boundary.boundary.reopen(t(1), holderId(a.identity, a.attempt), "c1");
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
  });

  it("another token of this attempt was committed meanwhile: that one is told and answered", async () => {
    const { world, one, boundary } = await start();
    boundary.meanwhile(async () => {
      const { object, view } = await world.lease();
      const annotations = { ...object.metadata.annotations, [leaseAnnotations.token]: "7" };
      expect(view.holder).toBe("pod:a/a-1");
      await world.admin.update(leaseKind, { ...object, metadata: { ...object.metadata, annotations } });
      boundary.raise(t(6), "pod:x/x");
    });
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 7n });
    expect(boundary.calls).toEqual(["1 pod:a/a-1", "7 pod:a/a-1"]);
  });

  it("another attempt was granted meanwhile: lost, and its token is not touched", async () => {
    const { world, one, boundary } = await start();
    const two = await world.replica("two");
    boundary.meanwhile(async () => {
      await world.clock.advance(16_000);
      expect(await two.acquire(b)).toMatchObject({ outcome: "granted", token: 2n });
    });
    expect(await one.acquire(a)).toMatchObject({ code: "lost", extras: { reason: "superseded" } });
    expect(boundary.mark()).toBe(2n);
    expect((await world.lease()).view.holder).toBe("pod:b/b-1");
  });

  it("as it was taken away, or its Lease deleted, meanwhile: lost with that reason", async () => {
    const taken = await start();
    taken.boundary.meanwhile(async () => {
      await taken.one.force("stuck");
      taken.boundary.raise(t(5), "pod:x/x");
    });
    expect(await taken.one.acquire(a)).toMatchObject({ code: "lost", extras: { reason: "forced" } });

    const deleted = await start();
    deleted.boundary.meanwhile(async () => {
      await deleted.world.removeLease();
      deleted.boundary.raise(t(5), "pod:x/x");
    });
    expect(await deleted.one.acquire(a)).toMatchObject({ code: "lost", extras: { reason: "deleted" } });
  });
});

describe("FM-29 the boundary remembers more than the Lease", () => {
  it("S1-03 the same attempt gets a token above the mark, in one answer", async () => {
    const { world, one, boundary } = await start();
    boundary.raise(t(1_000), "pod:x/x");
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1_001n, advanced: true });
    expect(boundary.mark()).toBe(1_001n);
    expect((await world.lease()).view.credit).toMatchObject({ token: 1_001n, ceiling: 1_064n });
    await one.release(a, 1_001n);
    expect(await one.acquire(b)).toMatchObject({ token: 1_002n });
  });

  it("also where the write that mends it gets no answer", async () => {
    for (const fault of [answerLost, requestLost]) {
      const { world, one, boundary } = await start();
      boundary.raise(t(1_000), "pod:x/x");
      boundary.meanwhile(async () => {
        world.api.fault(leaseWrite, fault);
      });
      const answer = await one.acquire(a);
      const { view } = await world.lease();
      expect(answer).toMatchObject({ outcome: "granted", token: view.credit?.token, advanced: true });
      expect(boundary.mark()).toBe(view.credit?.token);
      expect(boundary.mark()).toBeGreaterThan(1_000n);
    }
  });

  it("a mark at our token for another attempt is refused as well: never two holders of one token", async () => {
    const { one, boundary } = await start();
    boundary.raise(t(1), "pod:x/x");
    const answer = await one.acquire(a);
    expect(answer).toMatchObject({ outcome: "granted" });
    expect("token" in answer ? answer.token : 0n).toBeGreaterThan(1n);
  });

  it("a mark that would burn the range is not believed", async () => {
    const { world, one, boundary } = await start();
    boundary.raise((2n ** 40n) as Token, "pod:x/x");
    expect(await one.acquire(a)).toMatchObject({
      code: "not_ready",
      extras: { condition: "TokensConsistent/ImplausibleMark" },
    });
    const sequence = await world.sequences.read("shop/orders");
    expect(sequence).toMatchObject({ ceiling: 64n });
  });

  it("etcd goes back to an earlier day: no token that the boundary saw is granted again", async () => {
    const { world, one, boundary } = await start();
    const backup = world.api.snapshot();
    for (let attempt = 0; attempt < 5; attempt += 1) {
      const me = caller("w", String(attempt));
      await one.acquire(me);
      await one.release(me, BigInt(attempt + 1));
    }
    await one.kill();
    world.api.restore(backup);
    const two = await world.replica("two");
    const answer = await world.within(two.acquire(a, { waitMs: 30_000 }), 30_000);
    expect(answer).toMatchObject({ outcome: "granted", token: boundary.mark() });
    expect(boundary.mark()).toBeGreaterThan(5n);
  });
});

describe("which boundary", () => {
  it("not guarded for this Lease yet: not ready, nothing is committed", async () => {
    const { world, one } = await start();
    await world.removeLease();
    await world.settle();
    expect(await one.acquire(a)).toMatchObject(notGuarded);
    expect((await world.lease()).view.holder).toBeUndefined();
    await world.guard();
    await world.settle();
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", advanced: true });
  });

  it("cannot be reached from here: not ready, with its reason", async () => {
    const { world, one, boundary } = await start();
    boundary.unready("SecretMissing");
    expect(await one.acquire(a)).toMatchObject({
      code: "not_ready",
      extras: { condition: "BoundaryGuarded/SecretMissing" },
    });
    expect((await world.lease()).view.holder).toBeUndefined();
  });

  it("changed under a holder: a repeated attempt is not ready until it is guarded; renew and release go on", async () => {
    const { world, one, boundary } = await start();
    await one.acquire(a);
    boundary.through("secret/2");
    expect(await one.acquire(a)).toMatchObject(notGuarded);
    expect(await one.renew(a, 1n)).toMatchObject({ outcome: "renewed" });
    await world.guard();
    await world.settle();
    expect(await one.acquire(a)).toMatchObject({ outcome: "granted", token: 1n });
    boundary.through("secret/3");
    expect(await one.release(a, 1n)).toMatchObject({ outcome: "released" });
    expect(await one.acquire(b)).toMatchObject(notGuarded);
  });

  it("switched between the commit and its lost answer: not ready, nothing is handed out", async () => {
    const { world, one, boundary } = await start();
    world.api.fault(leaseWrite, async (serve) => {
      await serve();
      boundary.through("secret/2");
      await world.guard();
      return requestLost(serve);
    });
    expect(await one.acquire(a)).toMatchObject(notGuarded);
    expect(boundary.calls).toEqual([]);
    expect(await world.within(one.acquire(a), 1_000)).toMatchObject({
      outcome: "granted",
      token: 1n,
      advanced: true,
    });
  });

  it("switched while the boundary refused: not ready", async () => {
    const { world, one, boundary } = await start();
    boundary.raise(t(100), "pod:x/x");
    boundary.meanwhile(async () => {
      boundary.through("secret/2");
      await world.guard();
    });
    expect(await one.acquire(a)).toMatchObject(notGuarded);
    expect(boundary.mark()).toBe(100n);
  });

  it("a replica whose FencedResource is old reads it fresh before it tells the wrong one", async () => {
    const { world, boundary } = await start();
    const two = await world.replica("two");
    world.api.watches.silence("two");
    await world.change({ boundary: { type: "None", postgresql: null } });
    const { object } = await world.lease();
    const { [leaseAnnotations.boundary]: _gone, ...annotations } = object.metadata.annotations ?? {};
    await world.admin.update(leaseKind, { ...object, metadata: { ...object.metadata, annotations } });
    const since = world.api.seen.length;
    expect(await world.within(two.acquire(a), 1_000)).toMatchObject({ outcome: "granted", advanced: false });
    expect(world.api.counts({ client: "two", since })).toMatchObject({ "get fencedresources": 1 });
    expect(boundary.calls).toEqual([]);
  });
});
