import { describe, expect, test } from "vitest";
import { believable, type LeaseView, safetyJump } from "../core/lease.ts";
import { wallTime } from "../core/time.ts";
import { lastToken, noToken, type Token } from "../core/token.ts";
import type { SequenceState } from "../store/port.ts";
import { planSequence, type SequenceInput, type SequencePlan } from "./sequence.ts";

const t = (value: bigint | number): Token => BigInt(value) as Token;

const lease = (token: bigint, ceiling: bigint, more: Partial<LeaseView> = {}): LeaseView => ({
  uid: "lease",
  resourceVersion: "1",
  ours: true,
  terminating: false,
  format: 1,
  holder: undefined,
  durationSeconds: 15,
  renewTime: wallTime(0n),
  transitions: 0,
  credit: { uid: "lease", token: t(token), ceiling: t(ceiling) },
  ended: [],
  unclean: false,
  boundary: undefined,
  note: undefined,
  forced: undefined,
  ...more,
});

const open = (ceiling: bigint, more: object = {}): SequenceState => ({
  state: "open",
  base: noToken,
  ceiling: t(ceiling),
  sealed: false,
  issuer: "us",
  ...more,
});

const input = (sequence: SequenceState, more: Partial<SequenceInput> = {}): SequenceInput => ({
  sequence,
  issuer: "us",
  floor: noToken,
  lease: undefined,
  mirrored: { granted: undefined, ceiling: undefined },
  mark: undefined,
  restored: undefined,
  ...more,
});

const seen = { granted: t(41), ceiling: t(64) };
const missing: SequenceState = { state: "missing" };

describe("what is to be done to a sequence", () => {
  const rows: [string, SequenceInput, object][] = [
    ["new: opened at nothing", input(missing), { kind: "open", at: 0n, why: undefined }],
    [
      "new, at a boundary that knows nothing",
      input(missing, { mark: noToken }),
      { kind: "open", at: 0n, why: undefined },
    ],
    ["new with a floor", input(missing, { floor: t(9) }), { kind: "open", at: 9n }],
    ["made, never opened", input({ state: "unopened" }), { kind: "open", at: 0n }],
    [
      "gone, the Lease tells",
      input(missing, { mirrored: seen, lease: lease(41n, 70n) }),
      { kind: "open", at: 70n },
    ],
    ["gone, the mark tells", input(missing, { mirrored: seen, mark: t(90) }), { kind: "open", at: 90n }],
    ["gone, nothing tells", input(missing, { mirrored: seen }), { kind: "stuck", reason: "SequenceMissing" }],
    [
      "gone, the Lease's credit is another object's",
      input(missing, { lease: lease(41n, 70n, { uid: "another" }) }),
      { kind: "stuck", reason: "SequenceMissing" },
    ],
    [
      "gone, a floor below what was seen",
      input(missing, { mirrored: seen, floor: t(63) }),
      { kind: "stuck", reason: "SequenceMissing" },
    ],
    ["gone, a floor given", input(missing, { mirrored: seen, floor: t(64) }), { kind: "open", at: 64n }],
    [
      "gone before anything was granted: still no floor of 0",
      input(missing, { mirrored: { granted: noToken, ceiling: noToken } }),
      { kind: "stuck", reason: "SequenceMissing" },
    ],
    [
      "never seen, after a restore",
      input(missing, { restored: t(7) }),
      { kind: "open", at: 7n + safetyJump },
    ],
    [
      "a copy",
      input({ state: "copied", ceiling: t(30), issuer: "us" }, { mirrored: seen }),
      { kind: "open", at: 64n + safetyJump },
    ],
    [
      "a copy near the end of the range",
      input({ state: "copied", ceiling: t(lastToken - 5n), issuer: "us" }),
      { kind: "open", at: lastToken },
    ],
    [
      "a copy from elsewhere",
      input({ state: "copied", ceiling: t(30), issuer: "them" }),
      { kind: "stuck", reason: "IssuerMismatch" },
    ],
    ["of another cluster", input(open(5n, { issuer: "them" })), { kind: "stuck", reason: "IssuerMismatch" }],
    ["sealed", input(open(5n, { sealed: true })), { kind: "stuck", reason: "SequenceSealed" }],
    [
      "not to be read",
      input({ state: "unavailable", message: "no route" }),
      { kind: "stuck", reason: "StoreUnavailable" },
    ],
    ["in order", input(open(64n), { lease: lease(3n, 64n), floor: t(9) }), { kind: "level", ceiling: 64n }],
    ["below its floor", input(open(64n), { floor: t(65) }), { kind: "raise", to: 65n }],
    ["below the mark", input(open(64n), { mark: t(65) }), { kind: "raise", to: 65n }],
    [
      "just below a mark that may be believed",
      input(open(64n), { mark: t(64n + believable) }),
      { kind: "raise" },
    ],
    [
      "below a mark that may not be",
      input(open(64n), { mark: t(65n + believable) }),
      { kind: "stuck", reason: "ImplausibleMark" },
    ],
    ["below the Lease's credit", input(open(64n), { lease: lease(3n, 65n) }), { kind: "mend", seen: 65n }],
    [
      "below a void credit: nothing",
      input(open(64n), { lease: lease(3n, 65n, { uid: "another" }) }),
      { kind: "level" },
    ],
    ["below what it was seen at", input(open(50n), { mirrored: seen }), { kind: "mend", seen: 64n }],
    ["after a restore", input(open(64n), { restored: t(900) }), { kind: "mend", seen: 900n }],
    [
      "the last token reserved, not granted",
      input(open(lastToken), { lease: lease(lastToken - 1n, lastToken) }),
      { kind: "level" },
    ],
    [
      "the last token granted",
      input(open(lastToken), { lease: lease(lastToken, lastToken) }),
      { kind: "stuck", reason: "TokensExhausted" },
    ],
    ["ended, with no credit left", input(open(lastToken)), { kind: "stuck", reason: "TokensExhausted" }],
  ];
  test.each(rows)("%s", (_, given, plan) => {
    expect(planSequence(given)).toMatchObject(plan);
  });

  test("what is stuck says what to do", () => {
    const stuck = rows
      .map(([, given]) => planSequence(given))
      .filter((plan): plan is Extract<SequencePlan, { kind: "stuck" }> => plan.kind === "stuck");
    for (const { reason, message } of stuck) {
      if (reason === "StoreUnavailable" || reason === "SequenceSealed") continue;
      expect(message).toMatch(/set |mend |make |stop /);
    }
  });
});
