import type { ProblemCode, ProblemExtras } from "../api/problem.ts";
import type { HolderId } from "../core/lease.ts";
import type { Token } from "../core/token.ts";

/** A request that was understood and refused: an expected result, with what the caller should know. */
export interface Refusal {
  outcome: "refused";
  code: ProblemCode;
  detail: string;
  extras: ProblemExtras;
}

export const refuse = (code: ProblemCode, detail: string, extras: ProblemExtras = {}): Refusal => ({
  outcome: "refused",
  code,
  detail,
  extras,
});

/** A right for one term, counted from the moment the caller sent its request. */
export interface Granted {
  outcome: "granted";
  holder: HolderId;
  token: Token;
  leaseDurationMs: number;
  renewAfterMs: number;
  guarantee: "Fenced" | "Idempotent" | "Advisory";
  /** The boundary refuses every lower token from now on. */
  advanced: boolean;
}

export interface Renewed {
  outcome: "renewed";
  leaseDurationMs: number;
  renewAfterMs: number;
}

/** A release or a take-away: done, or changed nothing and says why. */
export type Released = { outcome: "released" } | { outcome: "unchanged"; reason: string };

/** Who asks: an identity that was authenticated, and one attempt of it. */
export interface Caller {
  identity: string;
  attempt: string;
}
