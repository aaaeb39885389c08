import { describe, expect, test } from "vitest";
import { leaseName } from "../../../src/api/names.ts";
import { fencedResourceKind, leaseKind } from "../../../src/kube/kinds.ts";
import { answered, answerLost, notConnected } from "../../support/memapi/faults.ts";
import { key, makeWorld, name, namespace, type World } from "./world.ts";

const alice = "user:a/1";
const bob = "user:b/2";
const named = (label: string) => ({ pod: undefined, label });

describe("a new resource", () => {
  test("gets a Lease without holder, an open sequence, and one status write that says Ready", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    const lease = await world.lease();
    expect(lease.view).toMatchObject({ ours: true, holder: undefined, credit: undefined });
    expect((await world.sequence()).status).toMatchObject({
      base: "0",
      ceiling: "0",
      issuer: "this-cluster",
    });
    expect(await world.status()).toMatchObject({
      observedGeneration: 1,
      guarantee: "Advisory",
      issuer: "this-cluster",
      waiters: 0,
      tokens: { granted: "0", ceiling: "0" },
      transfers: [],
    });
    await world.clock.advance(60_000);
    expect(world.writes("one")).toEqual({
      "create leases": 1,
      "create fencedsequences": 1,
      "update fencedsequences/status": 1,
      "update fencedresources/status": 1,
    });
    expect(world.reasons(process)).toEqual(["GuaranteeChanged"]);
    expect(process.told[0]?.note).toContain("reduces overlap, does not exclude it");
    await process.stop();
  });

  test("S1-36 the status says that overlap is reduced, not excluded", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    expect((await world.condition("BoundaryGuarded"))?.message).toContain(
      "reduces overlap, does not exclude it",
    );
    await process.stop();
  });

  test("starts above its floor", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply({ tokens: { store: "Status", reserve: 64, floor: "1000" } });
    await world.ready();
    expect(await world.grant(alice)).toBe(1001n);
    await process.stop();
  });
});

describe("ownership", () => {
  test("S1-11 a hand-over is mirrored and told: granted, given back, granted higher", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice, named("worker-a"));
    await world.until("alice shown", async () => (await world.status())?.holder?.identity === alice);
    expect((await world.status())?.holder).toMatchObject({
      display: "worker-a",
      label: "worker-a",
      token: "1",
    });
    await world.clock.advance(2000);
    await world.release();
    await world.until("nobody shown", async () => (await world.status())?.holder === undefined);
    expect((await world.status())?.transfers).toMatchObject([
      { to: alice, token: "1", reason: "Granted" },
      { from: alice, token: "1", reason: "Released" },
    ]);
    await world.clock.advance(2000);
    await world.grant(bob, named("worker-b"));
    await world.until("bob shown", async () => (await world.status())?.holder?.identity === bob);
    const status = await world.status();
    expect(status?.transfers).toMatchObject([
      { to: alice, token: "1", reason: "Granted" },
      { from: alice, to: bob, token: "2", reason: "Released" },
    ]);
    expect(status?.tokens).toEqual({ granted: "2", ceiling: "64" });
    expect(world.reasons(process)).toEqual([
      "GuaranteeChanged",
      "TokenGranted",
      "LeaseReleased",
      "TokenGranted",
      "OwnershipTransferred",
    ]);
    expect(world.note(process, "TokenGranted")).toEqual([
      "token 1 granted to worker-a (Advisory: reduces overlap, does not exclude it)",
      "token 2 granted to worker-b (Advisory: reduces overlap, does not exclude it)",
    ]);
    expect(world.note(process, "LeaseReleased")).toEqual(["worker-a (token 1) gave the resource back"]);
    await process.stop();
  });

  test("an expired lease is shown and told once, and the holder that follows is told as its heir", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice, named("worker-a"));
    await world.until(
      "expired",
      async () => (await world.status())?.holder?.display === "worker-a (expired)",
      60_000,
    );
    await world.clock.advance(60_000);
    expect(world.note(process, "LeaseExpired")).toHaveLength(1);
    expect(world.note(process, "LeaseExpired")[0]).toContain("worker-a (token 1)");
    await world.grant(bob, named("worker-b"));
    await world.until("bob shown", async () => (await world.status())?.holder?.identity === bob);
    expect(world.note(process, "LeaseExpired")).toHaveLength(1);
    expect(world.note(process, "OwnershipTransferred")[0]).toContain("to worker-b (token 2)");
    expect((await world.status())?.transfers?.at(-1)).toMatchObject({
      from: alice,
      to: bob,
      token: "2",
      reason: "Expired",
    });
    await process.stop();
  });

  test("a lease that is renewed never expires, and costs no write", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    await world.clock.advance(2000);
    const since = world.mark();
    for (let round = 0; round < 20; round += 1) {
      await world.renew();
      await world.clock.advance(5000);
    }
    expect(world.writes("one", since)).toEqual({});
    expect(world.api.counts({ client: "one", since })).toEqual({});
    expect((await world.status())?.holder?.display).toBe(alice);
    await process.stop();
  });

  test("taken away by force: told with who and why", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice, named("worker-a"));
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    await world.clock.advance(2000);
    await world.force("bob: node is on fire");
    await world.until("nobody shown", async () => (await world.status())?.holder === undefined);
    expect(world.note(process, "LeaseForced")[0]).toBe(
      "taken away from worker-a (token 1) by bob: node is on fire; its work may still run",
    );
    expect((await world.status())?.transfers?.at(-1)).toMatchObject({ from: alice, reason: "Forced" });
    await process.stop();
  });

  test("what happened while no leader was there is told by the next one", async () => {
    const world = await makeWorld();
    const first = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    await first.stop();
    await world.release();
    await world.grant(bob);
    await world.release();
    await world.grant("user:c/3");
    const second = world.start("two");
    await world.until("c shown", async () => (await world.status())?.holder?.identity === "user:c/3");
    expect((await world.status())?.transfers).toMatchObject([
      { to: alice, token: "1", reason: "Granted" },
      { from: alice, to: bob, token: "2", reason: "Released" },
      { from: bob, to: "user:c/3", token: "3", reason: "Released" },
    ]);
    await second.stop();
  });

  test("FM-27 the Lease deleted while held: made anew without holder, the loss told, the next token higher", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    let last = 0n;
    for (let round = 0; round < 10; round += 1) {
      const attempt = `user:a/${round}` as const;
      const token = await world.grant(attempt);
      expect(token).toBeGreaterThan(last);
      last = token;
      await world.until("shown", async () => (await world.status())?.holder?.identity === attempt);
      await world.clock.advance(1500);
      await world.removeLease();
      await world.until("gone", async () => (await world.status())?.holder === undefined);
      expect((await world.lease()).view).toMatchObject({ holder: undefined, credit: undefined });
      await world.clock.advance(1500);
    }
    expect((await world.status())?.transfers?.at(-1)).toMatchObject({ reason: "Deleted" });
    expect(world.note(process, "LeaseForced")[0]).toContain("the Lease was deleted while user:a/0");
    expect((await world.status())?.tokens?.granted).toBe(last.toString());
    await process.stop();
  });
});

describe("leading", () => {
  test("a resource that stands as its status says costs a new leader no request", async () => {
    const world = await makeWorld();
    const first = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until(
      "expired",
      async () => (await world.status())?.holder?.display === `${alice} (expired)`,
      60_000,
    );
    await first.stop();
    const second = world.start("two");
    await world.clock.advance(60_000);
    expect(world.api.counts({ client: "two" })).toEqual({});
    expect(second.told).toEqual([]);
    await second.stop();
  });

  test("a standby writes nothing, also at its end", async () => {
    const world = await makeWorld();
    const standby = world.start("standby", { leading: false });
    await world.apply();
    await world.clock.advance(30_000);
    await standby.stop();
    expect(world.api.counts({ client: "standby" })).toEqual({});
  });

  test("a deposed leader writes nothing more", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await process.depose();
    const since = world.mark();
    await world.grant(alice);
    await world.removeSequence();
    await world.clock.advance(30_000);
    expect(world.api.counts({ client: "one", since })).toEqual({});
    process.lead();
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    await process.stop();
  });

  test("what is not written is not told", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    const heal = world.api.fault(
      { client: "one", resource: "fencedresources/status" },
      answered("Forbidden"),
      Number.POSITIVE_INFINITY,
    );
    await world.apply();
    await world.clock.advance(30_000);
    expect(process.told).toEqual([]);
    heal();
    await world.ready(120_000);
    expect(world.reasons(process)).toEqual(["GuaranteeChanged"]);
    await process.stop();
  });

  test("a conflict on the status is read again, and its events are told once", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.clock.advance(2000);
    world.api.fault({ client: "one", resource: "fencedresources/status" }, answered("Conflict"), 3);
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder?.identity === alice);
    await world.clock.advance(10_000);
    expect(world.note(process, "TokenGranted")).toHaveLength(1);
    await process.stop();
  });

  test("a status write without an answer is read again, and its events are told once", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    // From here on a grant spends credit: one change, one status write.
    await world.grant(bob);
    await world.until("bob shown", async () => (await world.status())?.holder?.identity === bob);
    await world.clock.advance(2000);
    await world.release();
    await world.until("nobody shown", async () => (await world.status())?.holder === undefined);
    await world.clock.advance(2000);
    world.api.fault({ client: "one", resource: "fencedresources/status" }, answerLost);
    await world.grant(alice);
    await world.until("told", () => world.note(process, "TokenGranted").length > 1);
    await world.clock.advance(10_000);
    expect(world.note(process, "TokenGranted")).toHaveLength(2);
    await process.stop();
  });
});

describe("the Lease", () => {
  test("FM-39 a foreign one of our name stays as it is and is named", async () => {
    const world = await makeWorld();
    await world.client.create(leaseKind, {
      metadata: { namespace, name: leaseName(name) },
      spec: { holderIdentity: "somebody" },
    });
    const process = world.start("one");
    await world.apply();
    await world.until("told", async () => (await world.condition("LeaseBound")) !== undefined);
    const bound = await world.condition("LeaseBound");
    expect(bound).toMatchObject({ status: "False", reason: "ForeignLease" });
    expect(bound?.message).toContain("shop/fenceline-orders");
    expect(bound?.message).toContain("somebody");
    expect(await world.condition("Ready")).toMatchObject({ status: "False", reason: "LeaseNotBound" });
    await world.clock.advance(120_000);
    const left = (await world.lease()).object;
    expect(left.metadata.labels).toBeUndefined();
    expect(left.spec).toEqual({ holderIdentity: "somebody" });
    expect(world.writes("one")).not.toHaveProperty("update leases");
    await world.client.remove(leaseKind, { namespace, name: leaseName(name) }, {});
    await world.ready(60_000);
    await process.stop();
  });

  test("FM-39 one without our label that nobody holds is adopted, and what it claims is not believed", async () => {
    const world = await makeWorld();
    const made = await world.client.create(leaseKind, {
      metadata: { namespace, name: leaseName(name), labels: { team: "a" } },
      spec: { leaseTransitions: 7 },
    });
    if (made.outcome !== "ok") throw new Error(made.outcome);
    await world.client.update(leaseKind, {
      ...made.object,
      metadata: {
        ...made.object.metadata,
        annotations: {
          "fenceline.dev/token": "999",
          "fenceline.dev/token-ceiling": "1999",
          "fenceline.dev/credit-uid": made.object.metadata.uid,
          other: "kept",
        },
      },
    });
    const process = world.start("one");
    await world.apply();
    await world.ready();
    const lease = await world.lease();
    expect(lease.view).toMatchObject({ ours: true, credit: undefined, holder: undefined });
    expect(lease.object.metadata).toMatchObject({ labels: { team: "a" }, annotations: { other: "kept" } });
    expect(await world.grant(alice)).toBe(1n);
    await process.stop();
  });
});

describe("the sequence", () => {
  test("a floor raises it, and is told", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.apply({ tokens: { floor: "5000" } });
    await world.until("raised", async () => (await world.sequence()).status?.ceiling === "5000");
    await world.until("told", () => world.note(process, "TokenFloorRaised").length === 1);
    expect(world.note(process, "TokenFloorRaised")[0]).toContain("above 5000");
    await world.release();
    expect(await world.grant(bob)).toBe(5001n);
    await process.stop();
  });

  test("FM-28 resource deleted and made again: tokens go on", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    const before = await world.grant(alice);
    await world.release();
    await world.remove();
    await world.clock.advance(1000);
    await world.removeLease();
    await world.apply();
    await world.ready();
    expect(await world.grant(bob)).toBeGreaterThan(before);
    await process.stop();
  });

  test("FM-28 the sequence forced away with the Lease: not ready until a floor is given", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.tokens?.ceiling === "64");
    await process.stop();
    await world.removeLease();
    await world.removeSequence();
    const next = world.start("two");
    await world.until(
      "missing",
      async () => (await world.condition("TokensConsistent"))?.reason === "SequenceMissing",
    );
    expect((await world.condition("TokensConsistent"))?.message).toContain("64");
    expect(await world.condition("Ready")).toMatchObject({ status: "False", reason: "TokensNotConsistent" });
    expect((await world.store.read(key)).state).toBe("missing");
    await world.apply({ tokens: { floor: "10" } });
    await world.clock.advance(5000);
    expect((await world.store.read(key)).state).toBe("missing");
    await world.apply({ tokens: { floor: "64" } });
    await world.ready(60_000);
    expect(world.reasons(next)).toContain("TokenFloorRaised");
    expect(await world.grant(bob)).toBe(65n);
    await next.stop();
  });

  test("FM-28 the sequence forced away alone: the Lease tells how far it went", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.removeSequence();
    await world.until("open again", async () => (await world.store.read(key)).state === "open");
    expect(await world.store.read(key)).toMatchObject({ base: 64n });
    await process.stop();
  });

  test("a copy is opened anew with a safety jump", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.writeSequence({ uid: "another" });
    await world.until("mended", async () => {
      return (await world.store.read(key)).state === "open";
    });
    expect(await world.store.read(key)).toMatchObject({ base: 64n + 2n ** 20n, ceiling: 64n + 2n ** 20n });
    await process.stop();
  });

  test("one of another cluster is left alone", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.writeSequence({ issuer: "another", ceiling: "5" });
    await world.until(
      "told",
      async () => (await world.condition("TokensConsistent"))?.reason === "IssuerMismatch",
    );
    expect((await world.sequence()).status).toMatchObject({ issuer: "another", ceiling: "5" });
    await process.stop();
  });

  test("FM-38 after the last token the resource is not ready", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply({ tokens: { store: "Status", reserve: 64, floor: "9223372036854775806" } });
    await world.ready();
    expect(await world.grant(alice)).toBe(9_223_372_036_854_775_807n);
    await world.until(
      "told",
      async () => (await world.condition("TokensConsistent"))?.reason === "TokensExhausted",
    );
    expect((await world.status())?.tokens).toEqual({
      granted: "9223372036854775807",
      ceiling: "9223372036854775807",
    });
    await process.stop();
  });

  test("a restore that the watch notices: raised above everything seen, old credit taken away", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    const backup = world.api.snapshot();
    await world.release();
    const last = await world.grant(bob);
    for (let round = 0; round < 20; round += 1) await world.renew();
    await world.clock.advance(3000);
    world.api.restore(backup);
    await world.until(
      "mended",
      async () => {
        const state = await world.store.read(key);
        return state.state === "open" && state.ceiling >= last + 2n ** 20n;
      },
      120_000,
    );
    await world.until("drained", async () => {
      const { credit } = (await world.lease()).view;
      return credit !== undefined && credit.ceiling === credit.token;
    });
    await world.until("told", () => world.note(process, "TokenFloorRaised").length > 0);
    await world.clock.advance(60_000);
    expect(world.note(process, "TokenFloorRaised")).toHaveLength(1);
    await world.release();
    expect(await world.grant("user:c/3")).toBeGreaterThan(last + 2n ** 20n);
    await process.stop();
  });

  test("a Lease above the sequence: the sequence went back, and is raised above the Lease", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    await world.writeSequence({ ceiling: "3" });
    await world.until("mended", async () => {
      const state = await world.store.read(key);
      return state.state === "open" && state.ceiling > 64n;
    });
    expect(await world.store.read(key)).toMatchObject({ ceiling: 64n + 2n ** 20n });
    await world.release();
    expect(await world.grant(bob)).toBe(65n + 2n ** 20n);
    await process.stop();
  });
});

describe("TokenRegression", () => {
  test("stands while the sequence cannot be raised", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    const heal = world.api.fault(
      { client: "one", resource: "fencedsequences/status" },
      notConnected,
      Number.POSITIVE_INFINITY,
    );
    await world.writeSequence({ ceiling: "3" });
    await world.until(
      "told",
      async () => (await world.condition("TokensConsistent"))?.reason === "TokenRegression",
    );
    expect(await world.condition("Ready")).toMatchObject({ status: "False", reason: "TokensNotConsistent" });
    heal();
    await world.ready(120_000);
    expect(await world.store.read(key)).toMatchObject({ ceiling: 64n + 2n ** 20n });
    await process.stop();
  });
});

describe("spec and deletion", () => {
  test("suspended: not ready, and says what to do", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply({ suspend: true });
    await world.until("told", async () => (await world.condition("Ready"))?.reason === "Suspended");
    expect((await world.condition("Ready"))?.message).toContain("spec.suspend");
    await world.apply({ suspend: false });
    await world.ready();
    await process.stop();
  });

  test("a boundary that this version cannot serve: not ready, and says so", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply({
      boundary: {
        type: "PostgreSQL",
        advance: "OnGrant",
        postgresql: {
          secretRef: { name: "db", key: "url" },
          manage: false,
          mode: "Hold",
          tables: [{ schema: "public", name: "orders" }],
        },
      },
    });
    await world.until("told", async () => (await world.condition("BoundaryGuarded"))?.status === "False");
    expect(await world.condition("BoundaryGuarded")).toMatchObject({ reason: "BoundaryNotSupported" });
    expect(await world.condition("Ready")).toMatchObject({ status: "False", reason: "BoundaryNotGuarded" });
    await process.stop();
  });

  test("deletion waits for nobody, and the Lease stays", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    const made = await world.apply();
    await world.ready();
    expect((await world.read()).metadata.finalizers).toBeUndefined();
    await world.grant(alice);
    await world.remove();
    await world.clock.advance(5000);
    const since = world.mark();
    await world.clock.advance(60_000);
    expect(world.writes("one", since)).toEqual({});
    expect((await world.lease()).view.holder).toBe(alice);
    const again = await world.apply();
    expect(again.metadata.uid).not.toBe(made.metadata.uid);
    await world.ready();
    expect((await world.status())?.holder?.identity).toBe(alice);
    await process.stop();
  });
});

describe("waiters", () => {
  const report = (world: World, replica: string, entry: object | null) =>
    world.client.patchStatus(
      fencedResourceKind,
      { namespace, name },
      { status: { waitersByReplica: { [replica]: entry } } },
    );

  test("summed over replicas; a report that stands still for a minute counts no more", async () => {
    const world = await makeWorld();
    const process = world.start("one");
    await world.apply();
    await world.ready();
    await world.grant(alice, named("worker-a"));
    await report(world, "r1", { count: 2, beat: 1 });
    await report(world, "r2", { count: 3, beat: 1 });
    await world.until("summed", async () => (await world.status())?.waiters === 5);
    await world.until("told", () => world.note(process, "Waiting").length === 1);
    expect(world.note(process, "Waiting")[0]).toBe("somebody waits; worker-a (token 1) has the resource");
    await world.clock.advance(40_000);
    await report(world, "r2", { count: 3, beat: 2 });
    await world.until("r1 gone", async () => (await world.status())?.waiters === 3, 60_000);
    expect((await world.status())?.waitersByReplica).toEqual({ r2: { count: 3, beat: 2 } });
    await report(world, "r2", null);
    await world.until("nobody waits", async () => (await world.status())?.waiters === 0);
    await process.stop();
  });
});
