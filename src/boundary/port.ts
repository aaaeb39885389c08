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

export type Marks =
  | {
      outcome: "ok";
      /** Highest token announced. */
      granted: Token;
      /** Highest token that carried an effect; behind the truth where the mode keeps it as information only. */
      used: Token;
      /** How many operations were refused so far. */
      refused: bigint;
      /** Set while closed. */
      closing: string | undefined;
    }
  | { outcome: "missing" }
  | { outcome: "unknown"; message: string };

/** The place where tokens are compared. One per resource, made for one exact boundary spec. */
export interface Boundary {
  /** Strict: only if `token` is above the mark, or the mark is exactly (token, holder). Never lowers, never opens. */
  advance(token: Token, holder: HolderId, signal?: AbortSignal): Promise<Advance>;
  marks(signal?: AbortSignal): Promise<Marks>;
  /** Opens it if it is still closed by `closing`, at max(mark, token) for `holder`. */
  reopen(token: Token, holder: HolderId | undefined, closing: string, signal?: AbortSignal): Promise<Advance>;
}
