import type { HolderId } from "../core/lease.ts";
import type { Token } from "../core/token.ts";

/**
 * - `ok`: the mark stands at exactly this token of this attempt.
 * - `refused`: the mark is above, or at the same token of another attempt.
 * - `closed`: the boundary lost its past and lets nobody in until it is re-opened with this closing id.
 * - `unknown`: no answer, or none in time. The mark may or may not have moved.
 */
export type Advance =
  | { outcome: "ok" }
  | { outcome: "refused"; mark: Token }
  | { outcome: "closed"; closing: string }
  | { outcome: "issuer_mismatch"; issuer: string }
  | { outcome: "unknown"; message: string };

/** How many operations a boundary refused so far. */
export interface Refusals {
  stale: bigint;
  missing: bigint;
}

/** The closing id of a boundary for which no cluster issued yet: it is opened before its first grant, and was never shut. */
export const unissued = "unissued";

export type Marks =
  | {
      outcome: "ok";
      /** Highest token announced. */
      granted: Token;
      /** Highest token that carried an effect; behind the truth where the mode keeps it as information only. */
      used: Token;
      refused: Refusals;
      /** Set while closed. */
      closing: string | undefined;
    }
  | { outcome: "missing" }
  | { outcome: "issuer_mismatch"; issuer: string }
  | { outcome: "unknown"; message: string };

/**
 * What a look at the guard itself showed.
 *
 * - `proven`: a stale and a missing token were refused just now, and no way past the guard is known.
 * - `open`: `message` says which way past the guard is open, and what closes it.
 */
export type Verification =
  | { outcome: "proven" }
  | { outcome: "open"; message: string }
  | { outcome: "unknown"; message: string };

export type Installed = { outcome: "ok" } | { outcome: "failed"; message: string };

/** The place where tokens are compared. One per resource, made for one exact boundary spec. */
export interface Boundary {
  /** Strict: only if `token` is above the mark, or the mark is exactly (token, holder). Never lowers, never opens. */
  advance(token: Token, holder: HolderId, signal?: AbortSignal): Promise<Advance>;
  marks(signal?: AbortSignal): Promise<Marks>;
  /** Opens it if it is still closed by `closing`, at max(mark, token) for `holder`. */
  reopen(token: Token, holder: HolderId | undefined, closing: string, signal?: AbortSignal): Promise<Advance>;
  /** Tries it, without leaving a trace, and looks for ways around it. */
  verify(signal?: AbortSignal): Promise<Verification>;
  /** Installs or mends the guard. Left out where that is left to people. */
  install?: (signal?: AbortSignal) => Promise<Installed>;
}
