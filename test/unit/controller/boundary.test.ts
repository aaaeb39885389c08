import { describe, expect, test } from "vitest";
import { noToken, type Token } from "../../../src/core/token.ts";
import { fencedResourceKind } from "../../../src/kube/kinds.ts";
import { behind, FakeBoundary, fakeBoundaries } from "./fakeboundary.ts";
import { key, makeWorld, type World } from "./world.ts";

const alice = "user:a/1";
const bob = "user:b/2";

const setup = async () => {
  const world = await makeWorld();
  const old = new FakeBoundary();
  const next = new FakeBoundary();
  const process = world.start("one", { boundaries: fakeBoundaries({ old, next }) });
  return { world, process, old, next };
};

/** As a coordinator: the boundary learns of a grant before it is answered. */
const grantAt = async (world: World, boundary: FakeBoundary, attempt: typeof alice): Promise<Token> => {
  const token = await world.grant(attempt);
  expect(await boundary.advance(token, attempt)).toEqual({ outcome: "ok" });
  return token;
};

const hashEnds = (world: World, ending: string) => async () =>
  (await world.lease()).view.boundary?.endsWith(ending) ?? false;

describe("a boundary", () => {
  test("is bound to the Lease before anything is granted", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    expect((await world.lease()).view.boundary).toBe(`${(await world.lease()).view.uid}/old`);
    expect(await world.condition("BoundaryGuarded")).toMatchObject({ status: "True", reason: "Guarded" });
    const token = await grantAt(world, old, alice);
    expect(token).toBeGreaterThan(noToken);
    await process.stop();
  });

  test("that changes while somebody holds: the new one knows token and holder before the Lease names it", async () => {
    const { world, process, old, next } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    let hashThen: string | undefined;
    next.onAdvance = async () => {
      hashThen = (await world.lease()).view.boundary;
    };
    await world.apply(behind("next"));
    await world.until("bound to the next", hashEnds(world, "/next"));
    expect(hashThen).toMatch(/\/old$/);
    expect(next.log).toEqual([`advance ${token} ${alice}`]);
    expect((await world.lease()).view).toMatchObject({ holder: alice, credit: { token } });
    await process.stop();
  });

  test("that is told of a Lease which then moves is told again", async () => {
    const { world, process, old, next } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    await grantAt(world, old, alice);
    let moves = 1;
    next.onAdvance = async () => {
      if (moves-- <= 0) return;
      await world.release();
      await world.grant(bob);
    };
    await world.apply(behind("next"));
    await world.until("bound to the next", hashEnds(world, "/next"));
    const { view } = await world.lease();
    expect(view.holder).toBe(bob);
    expect(next.log.at(-1)).toBe(`advance ${view.credit?.token} ${bob}`);
    expect(next.granted).toBe(view.credit?.token);
    await process.stop();
  });

  test("with a mark above the Lease: fresh credit above it, in the write that names the boundary", async () => {
    const { world, process, old, next } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    await grantAt(world, old, alice);
    await world.release();
    next.granted = 5000n as Token;
    next.holder = "user:other/9";
    await world.apply(behind("next"));
    await world.until("bound to the next", hashEnds(world, "/next"));
    const { credit } = (await world.lease()).view;
    expect(credit?.token).toBeGreaterThanOrEqual(5000n);
    expect(credit?.ceiling).toBeGreaterThan(credit?.token ?? noToken);
    const token = await world.grant(bob);
    expect(token).toBeGreaterThan(5000n);
    expect(await next.advance(token, bob)).toEqual({ outcome: "ok" });
    await process.stop();
  });

  test("that knows the token of one who gave it back is bound again: nothing newer has to be told", async () => {
    const { world, process, old, next } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    await world.release();
    next.granted = token;
    next.holder = alice;
    await world.apply(behind("next"));
    await world.until("bound to the next", hashEnds(world, "/next"));
    expect((await world.lease()).view.credit?.token).toBe(token);
    await process.stop();
  });

  test("that knows the holder's token under another attempt: the holder gets one of its own", async () => {
    const { world, process, old, next } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    next.granted = token;
    next.holder = bob;
    await world.apply(behind("next"));
    await world.until("bound to the next", hashEnds(world, "/next"));
    const { holder, credit } = (await world.lease()).view;
    expect(holder).toBe(alice);
    expect(credit?.token).toBeGreaterThan(token);
    expect(next).toMatchObject({ holder: alice, granted: credit?.token });
    await process.stop();
  });

  test("that was re-opened under fresh credit is bound to a Lease that nobody holds", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    await grantAt(world, old, alice);
    old.closing = "restart";
    await world.removeLease();
    await world.until("opened", () => old.closing === undefined);
    await world.until("bound again", hashEnds(world, "/old"));
    expect(old.closing).toBeUndefined();
    await process.stop();
  });

  test("that is taken away leaves no hash behind", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    await grantAt(world, old, alice);
    await world.client.patch(
      fencedResourceKind,
      {
        namespace: "shop",
        name: "orders",
      },
      { spec: { boundary: { type: "None", postgresql: null } } },
    );
    await world.until("no hash", async () => (await world.lease()).view.boundary === undefined);
    expect((await world.lease()).view.holder).toBe(alice);
    await process.stop();
  });

  test("that does not answer: not ready, told once, ready again when it is back", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    old.reachable = false;
    await world.until(
      "unreachable",
      async () => (await world.condition("BoundaryGuarded"))?.reason === "BoundaryUnreachable",
      60_000,
    );
    await world.clock.advance(120_000);
    expect(world.note(process, "BoundaryUnreachable")).toHaveLength(1);
    expect(await world.condition("Ready")).toMatchObject({ status: "False", reason: "BoundaryNotGuarded" });
    old.reachable = true;
    await world.ready(60_000);
    await process.stop();
  });
});

describe("marks", () => {
  test("above the ceiling: the sequence is raised, and it is told", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    old.granted = 700n as Token;
    old.holder = alice;
    await world.until("told", () => world.reasons(process).includes("TokenFloorRaised"), 90_000);
    expect(await world.store.read(key)).toMatchObject({ ceiling: 700n });
    await process.stop();
  });

  test("that would burn the range: ImplausibleMark, until a floor of that height is given", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    old.granted = (2n ** 40n) as Token;
    old.holder = alice;
    await world.until(
      "told",
      async () => (await world.condition("TokensConsistent"))?.reason === "ImplausibleMark",
      90_000,
    );
    expect((await world.condition("TokensConsistent"))?.message).toContain((2n ** 40n).toString());
    await world.apply({ tokens: { floor: (2n ** 40n).toString() } });
    await world.ready(60_000);
    await process.stop();
  });

  test("below the Lease's token, which stood still for long: told again, and counted", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    old.granted = noToken;
    old.holder = undefined;
    await world.until("told again", () => old.granted === token, 120_000);
    expect(old.holder).toBe(alice);
    expect((await process.metrics.boundaryMarkRegressionsTotal.get()).values[0]?.value).toBe(1);
    await process.stop();
  });

  test("FM-28 the sequence and the Lease gone: the mark tells how far it went", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    await world.until(
      "alice shown",
      async () => (await world.status())?.tokens?.granted === token.toString(),
    );
    await process.stop();
    await world.removeLease();
    await world.removeSequence();
    const second = world.start("two", { boundaries: fakeBoundaries({ old }) });
    await world.until("open", async () => (await world.store.read(key)).state === "open");
    await world.ready(60_000);
    expect(world.reasons(second)).toContain("TokenFloorRaised");
    const later = await world.grant(bob);
    expect(await old.advance(later, bob)).toEqual({ outcome: "ok" });
    await second.stop();
  });
});

describe("a closed boundary", () => {
  test("is opened at the Lease as read after its closing was seen", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    old.granted = noToken;
    old.holder = undefined;
    old.closing = "timeline-2";
    await world.until("open", () => old.closing === undefined, 90_000);
    expect(old.log.at(-1)).toBe(`reopen ${token} ${alice} timeline-2`);
    expect(old.granted).toBe(token);
    await world.until("told", () => world.reasons(process).includes("BoundaryReopened"));
    expect(world.reasons(process)).toContain("BoundaryClosed");
    await process.stop();
  });

  test("without credit in the Lease: fresh credit is written first, and an old holder stays out", async () => {
    const { world, process, old } = await setup();
    await world.apply(behind("old"));
    await world.ready();
    const token = await grantAt(world, old, alice);
    await world.until("alice shown", async () => (await world.status())?.holder !== undefined);
    old.granted = noToken;
    old.holder = undefined;
    old.closing = "timeline-2";
    await world.removeLease();
    await world.until("open", () => old.closing === undefined, 90_000);
    expect(old.granted).toBeGreaterThan(token);
    const { credit } = (await world.lease()).view;
    expect(credit?.token).toBeGreaterThan(token);
    await process.stop();
  });
});
