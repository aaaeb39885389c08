import type { Token } from "../core/token.ts";

/** `namespace/name` of a FencedResource: the key of its sequence in every store. */
export type ResourceKey = `${string}/${string}`;

/**
 * A block of tokens, or why there is none.
 *
 * - `reserved`: the tokens of (base, ceiling] are the caller's; durable before this was answered.
 * - `exhausted`: base stands at the last token there is.
 * - `sealed`: the sequence was moved to another store.
 * - `not_ready`: there is none, nobody opened it, or it is a copy (its identity changed). The controller mends it.
 * - `issuer_mismatch`: another cluster issues from it.
 * - `unavailable`: the store did not answer, or never said whether it did. Reserve again later: a gap is free.
 *
 * Everything but `reserved` was read now, never remembered. So was a `reserved` that moved nothing.
 */
export type Reservation =
  | { outcome: "reserved"; base: Token; ceiling: Token }
  | { outcome: "exhausted" }
  | { outcome: "sealed" }
  | { outcome: "not_ready"; reason: "missing" | "unopened" | "copied" }
  | { outcome: "issuer_mismatch"; issuer: string }
  | { outcome: "unavailable"; message: string };

/** What a sequence says of itself. `base` is where it was opened: above it, tokens may have been handed out. */
export type SequenceState =
  | { state: "open"; base: Token; ceiling: Token; sealed: boolean; issuer: string }
  | { state: "missing" }
  | { state: "unopened" }
  /**
   * Its content was written for another object or row: empty and gone back in time. `ceiling` is what it claims, which
   * may be less than what was handed out.
   */
  | { state: "copied"; ceiling: Token; issuer: string }
  | { state: "unavailable"; message: string };

/** Where the ever-growing ceiling of each resource is kept. One contract suite holds every implementation to it. */
export interface SequenceStore {
  /**
   * Moves the ceiling up by compare-and-set to max(ceiling, atLeast) + count and answers the block in between. Fewer
   * tokens than `count` (at least one) where the range ends; with `count` 0 only the raise. Rejects with the signal's
   * reason, and with nothing else.
   */
  reserve(resource: ResourceKey, count: bigint, atLeast: Token, signal?: AbortSignal): Promise<Reservation>;

  read(resource: ResourceKey, signal?: AbortSignal): Promise<SequenceState>;

  /**
   * Makes the sequence if it is missing and opens it at `at` in one write, if it is not open. A copy is opened anew at
   * `at` or at what it claims, whichever is higher; but not one that another cluster issued: that stays `copied`. One
   * that is open stays as it is, sealed or not. Only the controller calls this.
   */
  open(resource: ResourceKey, at: Token, signal?: AbortSignal): Promise<SequenceState>;
}
