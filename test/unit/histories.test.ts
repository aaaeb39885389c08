/** Each check of a history fails on the one thing that it is for, and on nothing that is right. */
import { describe, expect, test } from "vitest";
import { checkHistory } from "../support/histories/check.ts";
import type { HolderId } from "../../src/core/lease.ts";
import type {
  AcquireEvent,
  CommitEvent,
  EffectEvent,
  ForceEvent,
  HeldEvent,
  HistoryEvent,
  MarkEvent,
} from "../support/histories/history.ts";

const resource = "shop/orders";
const alice: HolderId = "pod:a/1";
const bob: HolderId = "pod:b/2";
const boundary = "db";

const granted = (attempt: HolderId, token: bigint, start: number, end = start + 1): AcquireEvent => ({
  kind: "acquire",
  resource,
  attempt,
  start,
  end,
  outcome: "granted",
  token,
  advanced: false,
});
const held = (kind: "renew" | "release", attempt: HolderId, token: bigint, start: number): HeldEvent => ({
  kind,
  resource,
  attempt,
  token,
  start,
  end: start + 1,
  outcome: "done",
});
const effect = (attempt: HolderId, token: bigint, start: number, end = start + 1): EffectEvent => ({
  kind: "effect",
  resource,
  boundary,
  attempt,
  token,
  start,
  end,
  outcome: "accepted",
});
const mark = (attempt: HolderId, token: bigint, at: number, by: MarkEvent["by"] = "advance"): MarkEvent => ({
  kind: "mark",
  resource,
  boundary,
  at,
  token,
  attempt,
  by,
});
const commit = (
  holder: HolderId | undefined,
  token: bigint,
  at: number,
  more: Partial<NonNullable<CommitEvent["lease"]>> = {},
): CommitEvent => ({
  kind: "commit",
  resource,
  at,
  lease: { uid: "u", holder, token, durationSeconds: 5, renewTime: `t${at}`, boundary, ...more },
});
const restored = (at: number): HistoryEvent => ({ kind: "disruption", resource, at, what: "restore" });
const forced = (start: number): ForceEvent => ({
  kind: "force",
  resource,
  start,
  end: start + 1,
  outcome: "done",
});

const broken = (...history: HistoryEvent[]) => [
  ...new Set(checkHistory(history).map(({ invariant }) => invariant)),
];

test("a whole story in order breaks nothing", () => {
  expect(
    broken(
      granted(alice, 1n, 0, 10),
      commit(alice, 1n, 5),
      mark(alice, 1n, 6),
      effect(alice, 1n, 20),
      held("renew", alice, 1n, 30),
      commit(alice, 1n, 30.5),
      granted(bob, 2n, 5_600, 5_700),
      commit(bob, 2n, 5_650),
      mark(bob, 2n, 5_660),
      { ...effect(alice, 1n, 5_800), outcome: "refused" },
      { ...held("renew", alice, 1n, 5_900), outcome: "refused" },
      effect(bob, 2n, 5_950),
      held("release", bob, 2n, 6_000),
      commit(undefined, 2n, 6_000.5),
      granted("pod:a/3", 3n, 6_100),
      commit("pod:a/3", 3n, 6_100.5),
    ),
  ).toEqual([]);
});

describe("tokens", () => {
  test("I1: one token, two attempts", () => {
    expect(broken(granted(alice, 1n, 0, 10), granted(bob, 1n, 5, 11))).toContain("I1");
  });
  test("S1-17 I2: a later grant with a lower token", () => {
    expect(broken(granted(alice, 5n, 0), granted(bob, 4n, 10))).toContain("I2");
  });
  test("I2 says nothing of grants that were under way together", () => {
    expect(broken(granted(alice, 5n, 0, 20), granted(bob, 4n, 10, 30))).toEqual([]);
  });
  test("I2 lets an attempt have its token again, but not after another's", () => {
    expect(broken(granted(alice, 1n, 0), granted(alice, 1n, 10))).toEqual([]);
    expect(broken(granted(alice, 1n, 0), granted(bob, 2n, 10), granted(alice, 1n, 20))).toContain("I2");
  });
  test("I8: a lower token over a restore", () => {
    expect(broken(granted(alice, 5n, 0), restored(5), granted(bob, 4n, 10))).toEqual(["I8"]);
  });
  test("I3: a grant that no Lease named, or only later", () => {
    expect(broken(granted(alice, 1n, 0), commit(bob, 1n, 0.5))).toEqual(["I3"]);
    expect(broken(granted(alice, 1n, 0), commit(alice, 1n, 3))).toEqual(["I3"]);
  });
  test("S1-22 I3: an effect under a token that was reserved and never committed", () => {
    expect(broken(commit(alice, 1n, 0), effect(alice, 2n, 5))).toEqual(["I3"]);
  });
});

describe("effects", () => {
  test("S1-64 I4: an effect of the past after a newer one", () => {
    expect(broken(effect(bob, 42n, 0), effect(alice, 41n, 10))).toEqual(["I4"]);
  });
  test("I4: an effect of the past after the boundary was told of a newer token", () => {
    expect(broken(mark(bob, 42n, 0), effect(alice, 41n, 10))).toEqual(["I4"]);
  });
  test("I4: a mark that falls, be it over a restore", () => {
    expect(broken(mark(bob, 42n, 0), mark(alice, 41n, 10))).toEqual(["I4"]);
    expect(broken(mark(bob, 42n, 0), mark(alice, 40n, 5, "restore"), mark(alice, 41n, 10, "reopen"))).toEqual(
      ["I4"],
    );
  });
  test("I4 says nothing of effects under way together", () => {
    expect(broken(effect(bob, 42n, 0, 20), effect(alice, 41n, 10, 30))).toEqual([]);
  });
  test("I9: a grant that its boundary was told of too late, or another one", () => {
    const grant = { ...granted(alice, 1n, 0), advanced: true };
    expect(broken(grant, commit(alice, 1n, 0.5), mark(alice, 1n, 0.7))).toEqual([]);
    expect(broken(grant, commit(alice, 1n, 0.5), mark(alice, 1n, 7))).toEqual(["I9"]);
    const elsewhere = { ...mark(alice, 1n, 0.7), boundary: "old" };
    expect(broken(grant, commit(alice, 1n, 0.5), elsewhere)).toEqual(["I9"]);
  });
});

describe("ownership", () => {
  test("I5: a renewal after another's grant", () => {
    expect(broken(granted(alice, 1n, 0), granted(bob, 2n, 10), held("renew", alice, 1n, 20))).toContain("I5");
  });
  test("I6: a release after another's grant", () => {
    expect(broken(granted(alice, 1n, 0), granted(bob, 2n, 10), held("release", alice, 1n, 20))).toContain(
      "I6",
    );
  });
  test("I5 and I6 are not judged over a restore", () => {
    const history = [granted(alice, 1n, 0), granted(bob, 2n, 10), restored(15), held("renew", alice, 1n, 20)];
    expect(broken(...history)).toEqual([]);
  });
  test("I6: a Lease that is lost to nobody without a word", () => {
    expect(broken(commit(bob, 2n, 0), commit(undefined, 2n, 5))).toEqual(["I6"]);
    expect(broken(commit(bob, 2n, 0), held("release", alice, 1n, 2), commit(undefined, 2n, 5))).toEqual([
      "I6",
    ]);
    expect(broken(commit(bob, 2n, 0), forced(2), commit(undefined, 2n, 5))).toEqual([]);
  });
  test("a Lease that is taken before its time", () => {
    expect(broken(commit(alice, 1n, 0), commit(bob, 2n, 4_000))).toEqual(["expiry"]);
    expect(broken(commit(alice, 1n, 0), commit(bob, 2n, 5_000))).toEqual([]);
  });
  test("a renewal begins the time anew", () => {
    expect(broken(commit(alice, 1n, 0), commit(alice, 1n, 3_000), commit(bob, 2n, 6_000))).toEqual([
      "expiry",
    ]);
  });
  test("S1-72 I7: a wait in a calm that sees nothing", () => {
    const wait = { kind: "wait", resource, attempt: bob, start: 0, end: 9_000 } as const;
    const calm = { kind: "calm", resource, start: 0, end: 20_000, boundMs: 6_000 } as const;
    expect(broken(commit(alice, 1n, 0), wait, calm)).toEqual(["I7"]);
    expect(broken(commit(alice, 1n, 0), wait, calm, commit(alice, 1n, 5_000))).toEqual([]);
    expect(broken(commit(alice, 1n, 0), wait)).toEqual([]);
    expect(broken(commit(alice, 1n, 0), { ...wait, end: undefined }, calm)).toEqual(["I7"]);
  });
});

describe("order", () => {
  test("S1-17: a renewal that was answered before its grant can have begun", () => {
    expect(broken(held("renew", bob, 2n, 0), granted(alice, 1n, 10), granted(bob, 2n, 5, 30))).toContain(
      "order",
    );
  });
  test("a renewal between another's two", () => {
    const history = [
      granted(alice, 1n, 0),
      granted(bob, 2n, 2, 40),
      held("renew", bob, 2n, 5),
      held("renew", alice, 1n, 10),
    ];
    expect(broken(...history)).toEqual(["order"]);
  });
  test("a renewal after its own release", () => {
    const history = [granted(alice, 1n, 0), held("release", alice, 1n, 5), held("renew", alice, 1n, 10)];
    expect(broken(...history)).toEqual(["order"]);
  });
  test("calls that overlap have an order", () => {
    expect(broken(granted(alice, 1n, 0, 50), granted(bob, 2n, 0, 20), held("renew", bob, 2n, 30))).toEqual(
      [],
    );
  });
});
