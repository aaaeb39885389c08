import { describe, expect, test } from "vitest";
import type { LeaseView } from "../core/lease.ts";
import { wallTime } from "../core/time.ts";
import { noToken, type Token } from "../core/token.ts";
import { freshStanding, isBehind, rebound, standing } from "./boundary.ts";

const t = (value: number): Token => BigInt(value) as Token;
const a = "user:a/1";

const lease = (more: Partial<LeaseView> = {}): LeaseView => ({
  uid: "lease",
  resourceVersion: "1",
  ours: true,
  terminating: false,
  format: 1,
  holder: a,
  durationSeconds: 15,
  renewTime: wallTime(0n),
  transitions: 4,
  credit: { uid: "lease", token: t(41), ceiling: t(64) },
  ended: [{ holder: "user:b/2", reason: "released" }],
  unclean: true,
  boundary: "old",
  note: undefined,
  forced: undefined,
  ...more,
});
const copied = lease({ uid: "another" });

describe("what a boundary is told", () => {
  test.each([
    ["held, mark below", lease(), 40, { token: 41n, holder: a }],
    ["held, mark at its own token", lease(), 41, { token: 41n, holder: a }],
    ["held, mark above: fresh credit", lease(), 42, undefined],
    ["free", lease({ holder: undefined }), 40, { token: 41n, holder: "nobody/0" }],
    ["void credit: fresh credit", copied, 0, undefined],
  ])("%s", (_, view, mark, told) => {
    expect(standing(view, t(mark))).toEqual(told);
  });

  const block = { base: t(64), ceiling: t(128) };
  test("under a fresh block a holder gets a token of its own, and nobody gets none", () => {
    expect(freshStanding(lease(), block)).toEqual({ token: 65n, holder: a });
    expect(freshStanding(lease({ holder: undefined }), block)).toEqual({ token: 64n, holder: "nobody/0" });
  });
});

describe("a Lease bound to a boundary", () => {
  test("keeps holder, credit, ended and loss, and is written anew", () => {
    const change = rebound(lease(), "new", undefined, wallTime(5n));
    expect(change).toMatchObject({
      holder: a,
      boundary: "new",
      credit: { uid: "lease", token: 41n, ceiling: 64n },
      transitions: 4,
      unclean: true,
      ended: [{ holder: "user:b/2", reason: "released" }],
      renewTime: 5n,
    });
  });
  test("takes fresh credit under its own uid", () => {
    const fresh = { token: t(65), ceiling: t(128) };
    expect(rebound(copied, "new", fresh, wallTime(5n)).credit).toEqual({ uid: "another", ...fresh });
  });
});

test("a mark is behind when it is lower and the Lease stood still for longer than an advance takes", () => {
  expect(isBehind(lease(), t(40), 15_000)).toBe(true);
  expect(isBehind(lease(), t(40), 14_999)).toBe(false);
  expect(isBehind(lease(), t(41), 15_000)).toBe(false);
  expect(isBehind(copied, noToken, 15_000)).toBe(false);
});
