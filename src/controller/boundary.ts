/**
 * What a boundary is told, and in which order.
 *
 * Change of boundary, in this order [R]: the target is guarded; the Lease is read; the target's mark is raised to the
 * (token, holder) of that version; the hash is written on condition of that version, else all of it begins anew. Where
 * the credit is void, or the mark is above the Lease's token, tokens are reserved after that read, above the mark, and
 * the fresh credit is written in the same update.
 *
 * Closed (it lost its past): its closing id is seen; only then the Lease is read [R]; fresh credit, where it takes some,
 * is written first; then it is opened at the (token, holder) of that version, if it is still closed by the same id.
 *
 * Mark below the Lease's token, although the Lease stood still for longer than an advance may take: told again.
 */
import { drained, type HolderId, type LeaseChange, type LeaseView, validCredit } from "../core/lease.ts";
import type { WallTime } from "../core/time.ts";
import { noToken, type Token } from "../core/token.ts";

/** Stands for nobody at a mark whose token nobody holds: equal to no attempt. */
export const nobody: HolderId = "nobody/0";

/** What a boundary is told for one version of the Lease. */
export interface Standing {
  token: Token;
  holder: HolderId;
}

/** The (token, holder) of this version, or undefined where it takes fresh credit above `mark`. */
export const standing = (view: LeaseView, mark: Token): Standing | undefined => {
  const credit = validCredit(view);
  return credit === undefined || mark > credit.token
    ? undefined
    : { token: credit.token, holder: view.holder ?? nobody };
};

/** The (token, holder) under a block just reserved: a holder gets a token of its own, nobody gets none. */
export const freshStanding = (view: LeaseView, block: { base: Token; ceiling: Token }): Standing =>
  view.holder === undefined || block.ceiling === block.base
    ? { token: block.base, holder: view.holder ?? nobody }
    : { token: (block.base + 1n) as Token, holder: view.holder };

/** The Lease under another boundary, under fresh credit where some was reserved. Holder and the rest stay. */
export const rebound = (
  view: LeaseView,
  boundary: string | undefined,
  fresh: { token: Token; ceiling: Token } | undefined,
  now: WallTime,
): LeaseChange => ({
  ...drained(view, now),
  boundary,
  credit: fresh === undefined ? view.credit : { uid: view.uid, ...fresh },
});

/** How long a coordinator's own advance may take: until then a mark below the Lease's token is nothing strange. */
const advanceBoundMs = 15_000;

/** Did the mark of a boundary that learns of each grant fall behind a Lease whose token stood still for `stoodMs`? */
export const isBehind = (view: LeaseView, mark: Token, stoodMs: number): boolean => {
  const token = validCredit(view)?.token ?? noToken;
  return mark < token && stoodMs >= advanceBoundMs;
};
