import { describe, expect, it } from "vitest";
import {
  attemptOf,
  claim,
  drained,
  endedKept,
  firstTermSeconds,
  forced,
  grant,
  grantedToken,
  type HolderId,
  holderId,
  identityOf,
  type LeaseView,
  lossReason,
  nextRenewTime,
  regressedBlock,
  released,
  renewal,
  renewed,
  spend,
  validCredit,
} from "./lease.ts";
import { wallTime } from "./time.ts";
import { lastToken, noToken, type Token } from "./token.ts";

const t = (value: bigint | number) => BigInt(value) as Token;
const a = holderId("pod:a", "attempt-1");
const b = holderId("pod:b", "attempt-2");
/** The attempt of `a`, claimed by somebody else. */
const thief = holderId("pod:thief", "attempt-1");
const now = wallTime(5_000n);

const credit = { uid: "l1", token: t(41), ceiling: t(64) };

const view = (over: Partial<LeaseView> = {}): LeaseView => ({
  uid: "l1",
  resourceVersion: "7",
  ours: true,
  terminating: false,
  format: 1,
  holder: a,
  durationSeconds: 15,
  renewTime: wallTime(1_000n),
  transitions: 3,
  credit,
  ended: [],
  unclean: false,
  boundary: "hash",
  note: { pod: "a-pod", label: undefined },
  forced: undefined,
  ...over,
});

const free = view({ holder: undefined, note: undefined });
const voided = view({ credit: { ...credit, uid: "another" } });

describe("holder identities", () => {
  it("S1-24 join identity and attempt, and part again", () => {
    expect(a).toBe("pod:a/attempt-1");
    expect([identityOf(a), attemptOf(a)]).toEqual(["pod:a", "attempt-1"]);
  });
});

describe("credit", () => {
  const rows: [string, LeaseView, bigint][] = [
    ["under its own uid", view(), 41n],
    ["of another uid", voided, 0n],
    ["none", view({ credit: undefined }), 0n],
    ["without our label", view({ ours: false }), 0n],
    ["of a terminating Lease", view({ terminating: true }), 0n],
  ];
  for (const [name, lease, token] of rows)
    it(`${name} grants ${token}`, () => {
      expect(grantedToken(lease)).toBe(token);
      expect(validCredit(lease)?.token ?? 0n).toBe(token);
    });
});

describe("acquire", () => {
  const ended = [{ holder: b, reason: "forced" as const }];
  const rows: [string, LeaseView | undefined, HolderId, object][] = [
    ["no Lease", undefined, a, { kind: "absent" }],
    ["terminating, though it names us", view({ terminating: true }), a, { kind: "absent" }],
    ["without our label", view({ ours: false }), a, { kind: "foreign" }],
    ["of a later format", view({ format: 2 }), a, { kind: "newer", format: 2 }],
    ["of a format that is no number", view({ format: Number.NaN }), a, { kind: "newer", format: Number.NaN }],
    ["names us", view(), a, { kind: "mine", token: 41n }],
    ["S1-24 names our attempt under another identity", view(), thief, { kind: "forbidden" }],
    [
      "remembers our attempt under another identity",
      view({ holder: b, ended: [{ holder: a, reason: "released" }] }),
      thief,
      { kind: "forbidden" },
    ],
    ["names us, credit void", voided, a, { kind: "held", holder: a }],
    ["remembers us", view({ ended }), b, { kind: "ended", reason: "forced" }],
    [
      "names us and remembers us, credit void",
      { ...voided, holder: b, ended },
      b,
      { kind: "ended", reason: "forced" },
    ],
    ["names another", view(), b, { kind: "held", holder: a }],
    ["names another, credit void", voided, b, { kind: "held", holder: a }],
    ["names nobody", free, b, { kind: "free", clean: true }],
    ["names nobody after force", { ...free, unclean: true }, b, { kind: "free", clean: false }],
    ["names nobody, credit void", { ...free, credit: undefined }, b, { kind: "free", clean: false }],
  ];
  for (const [name, lease, me, want] of rows)
    it(`${name}: ${Object.values(want).join(" ")}`, () => {
      expect(claim(lease, me)).toEqual(want);
    });
});

describe("renew and release", () => {
  const rows: [string, LeaseView | undefined, HolderId, bigint, object][] = [
    ["S1-37 names us with this token", view(), a, 41n, { kind: "renew" }],
    ["S1-37 names us with another token", view(), a, 40n, { kind: "lost", reason: "superseded" }],
    ["S1-38 names another", view({ holder: b }), a, 41n, { kind: "lost", reason: "superseded" }],
    ["S1-39 names nobody", free, a, 41n, { kind: "lost", reason: "superseded" }],
    [
      "remembers us",
      view({ holder: b, ended: [{ holder: a, reason: "released" }] }),
      a,
      41n,
      { kind: "lost", reason: "released" },
    ],
    ["names us, credit void", voided, a, 41n, { kind: "lost", reason: "deleted" }],
    ["no Lease", undefined, a, 41n, { kind: "lost", reason: "deleted" }],
    ["terminating", view({ terminating: true }), a, 41n, { kind: "lost", reason: "deleted" }],
    ["without our label", view({ ours: false }), a, 41n, { kind: "lost", reason: "deleted" }],
    ["of a later format", view({ format: 2 }), a, 41n, { kind: "newer", format: 2 }],
    ["our attempt under another identity", view(), thief, 41n, { kind: "forbidden" }],
    [
      "FM-29 shows a token that this Lease never granted",
      view({ holder: b }),
      a,
      45n,
      { kind: "regressed", seen: 45n, reason: "superseded" },
    ],
    [
      "FM-29 names us with a lower token than we show",
      view(),
      a,
      45n,
      { kind: "regressed", seen: 45n, reason: "superseded" },
    ],
  ];
  it.each(rows)("%s", (_name, lease, me, token, want) => {
    expect(renewal(lease, me, t(token))).toEqual(want);
  });

  it("why somebody is not the holder", () => {
    expect(lossReason(view({ ended: [{ holder: b, reason: "forced" }] }), b)).toBe("forced");
    expect(lossReason(view(), b)).toBe("superseded");
    expect(lossReason(voided, b)).toBe("deleted");
  });
});

describe("the next token", () => {
  const rows: [string, LeaseView, bigint, object][] = [
    ["from the credit", view(), 0n, { kind: "spend", token: 42n, ceiling: 64n }],
    [
      "the last of the credit",
      view({ credit: { ...credit, token: t(63) } }),
      0n,
      { kind: "spend", token: 64n, ceiling: 64n },
    ],
    [
      "S1-18 the credit is spent",
      view({ credit: { ...credit, token: t(64) } }),
      0n,
      { kind: "reserve", atLeast: 0n },
    ],
    ["S1-18 the credit is void", voided, 5n, { kind: "reserve", atLeast: 5n }],
    ["above a floor below it", view(), 41n, { kind: "spend", token: 42n, ceiling: 64n }],
    ["above a floor at it", view(), 42n, { kind: "reserve", atLeast: 42n }],
    ["above a floor beyond the credit", view(), 1_000n, { kind: "reserve", atLeast: 1_000n }],
    [
      "FM-38 the last of all",
      view({ credit: { ...credit, token: t(lastToken - 1n), ceiling: lastToken } }),
      0n,
      { kind: "spend", token: lastToken, ceiling: lastToken },
    ],
    [
      "FM-38 after the last of all",
      view({ credit: { ...credit, token: lastToken, ceiling: lastToken } }),
      0n,
      { kind: "reserve", atLeast: 0n },
    ],
  ];
  it.each(rows)("%s", (_name, lease, floor, want) => {
    expect(spend(lease, t(floor))).toEqual(want);
  });

  it("a block below what the Lease was lent comes from the past", () => {
    expect(regressedBlock(view(), t(63))).toBe(true);
    expect(regressedBlock(view(), t(64))).toBe(false);
    expect(regressedBlock(voided, noToken)).toBe(false);
  });
});

describe("S1-23 the time of a write", () => {
  it("is now, and always another text than the last", () => {
    expect(nextRenewTime(undefined, now)).toBe(now);
    expect(nextRenewTime(wallTime(4_999n), now)).toBe(now);
    expect(nextRenewTime(wallTime(5_000n), now)).toBe(5_001n);
    expect(nextRenewTime(wallTime(9_000n), now)).toBe(9_001n);
  });
});

describe("what a write says", () => {
  it("a grant: holder, credit under this uid, one more transition, a short first term, the old holder ended", () => {
    expect(
      grant(view({ unclean: true, forced: "why" }), b, { token: t(42), ceiling: t(64) }, 3600, now, {
        pod: undefined,
        label: "b",
      }),
    ).toEqual({
      holder: b,
      durationSeconds: firstTermSeconds,
      acquireTime: now,
      renewTime: now,
      transitions: 4,
      credit: { uid: "l1", token: 42n, ceiling: 64n },
      ended: [{ holder: a, reason: "superseded" }],
      unclean: false,
      boundary: "hash",
      note: { pod: undefined, label: "b" },
      forced: undefined,
    });
  });

  it("a grant of a short resource has its whole duration at once", () => {
    expect(grant(free, b, { token: t(42), ceiling: t(64) }, 6, now, undefined).durationSeconds).toBe(6);
  });

  it("a grant to the attempt that held it before does not end that attempt", () => {
    expect(grant(voided, a, { token: t(65), ceiling: t(128) }, 15, now, undefined).ended).toEqual([]);
  });

  it("a renewal: the resource's duration, and else nothing but the time", () => {
    expect(renewed(view(), 60, now)).toEqual({
      holder: a,
      durationSeconds: 60,
      renewTime: now,
      transitions: 3,
      credit,
      ended: [],
      unclean: false,
      boundary: "hash",
      note: { pod: "a-pod", label: undefined },
      forced: undefined,
    });
  });

  it("a release: no holder, the credit stays, the attempt is remembered", () => {
    expect(released(view(), now)).toMatchObject({
      holder: undefined,
      credit,
      unclean: false,
      note: undefined,
      transitions: 3,
      ended: [{ holder: a, reason: "released" }],
    });
  });

  it("a take-away: unclean, with who and why", () => {
    expect(forced(view(), "ann: stuck", now)).toMatchObject({
      holder: undefined,
      credit,
      unclean: true,
      forced: "ann: stuck",
      ended: [{ holder: a, reason: "forced" }],
    });
    expect(forced(free, "ann", now).ended).toEqual([]);
  });

  it("a drained Lease: holder and token stay, nothing is left to spend", () => {
    expect(drained(view(), now)).toMatchObject({
      holder: a,
      credit: { uid: "l1", token: 41n, ceiling: 41n },
    });
    expect(drained(voided, now).credit).toEqual(voided.credit);
  });

  it("a release keeps a take-away unclean until the next grant", () => {
    const taken = { ...free, unclean: true, forced: "ann" };
    expect(renewed(taken, 15, now)).toMatchObject({ unclean: true, forced: "ann" });
  });

  it(`remembers the last ${endedKept} ended attempts, each once`, () => {
    const ended = Array.from({ length: endedKept }, (_, index) => ({
      holder: holderId("pod:x", `x-${index}`),
      reason: "released" as const,
    }));
    const next = released(view({ ended }), now).ended;
    expect(next).toHaveLength(endedKept);
    expect(next.at(-1)).toEqual({ holder: a, reason: "released" });
    expect(next).not.toContainEqual(ended[0]);
    const twice = forced(view({ ended: [{ holder: a, reason: "superseded" }] }), "ann", now).ended;
    expect(twice).toEqual([{ holder: a, reason: "forced" }]);
  });
});
