/** The status of a resource, put together from what was found. Pure. */
import type { FencedResourceStatus } from "../api/fencedresource.ts";
import type { Guarantee } from "../api/names.ts";
import { noToken, type Token } from "../core/token.ts";
import type { FencedLease } from "../kube/leases.ts";
import { conditionsOf, type Findings } from "./conditions.ts";
import { holderMirror, numberOf, tokensMirror } from "./mirror.ts";
import { type Move, movesSince, transfersAfter } from "./transfers.ts";

export interface Found {
  before: FencedResourceStatus | undefined;
  generation: number | undefined;
  findings: Findings;
  guarantee: Guarantee;
  issuer: string;
  /** The Lease, if it is the resource's own. */
  lease: FencedLease | undefined;
  /** The holder's lease ran out by our own observation, and nobody took it. */
  expired: boolean;
  ceiling: Token | undefined;
  mark: Token | undefined;
  /** Since the last write: the guard was seen to refuse, it refused somebody. */
  verified: boolean;
  refusedStale: boolean;
  waiters: { total: number; byReplica: NonNullable<FencedResourceStatus["waitersByReplica"]> };
  /** RFC 3339. */
  now: string;
}

export interface Assembled {
  status: FencedResourceStatus;
  moves: Move[];
}

/** Leaves out what has no value: an absent field and an undefined one are the same to the server. */
const present = <T extends object>(fields: T): T =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;

export const statusOf = (found: Found): Assembled => {
  const { before, lease, now, mark } = found;
  const transfers = before?.transfers ?? [];
  const moves = movesSince(
    {
      holder: before?.holder,
      granted: numberOf(before?.tokens?.granted) ?? noToken,
      transfers,
      fresh: before?.tokens === undefined,
    },
    lease?.view,
  );
  const boundary = present({
    ...before?.boundary,
    grantedMark: mark?.toString() ?? before?.boundary?.grantedMark,
    verifiedTime: found.verified ? now : before?.boundary?.verifiedTime,
    refusedStaleTime: found.refusedStale ? now : before?.boundary?.refusedStaleTime,
  });
  const { byReplica, total } = found.waiters;
  const status = present<FencedResourceStatus>({
    observedGeneration: found.generation,
    guarantee: found.guarantee,
    issuer: found.issuer,
    holder: holderMirror(lease, found.expired),
    waiters: total,
    waitersByReplica: Object.keys(byReplica).length === 0 ? undefined : byReplica,
    transfers: transfersAfter(transfers, moves, now),
    tokens: tokensMirror(before?.tokens, lease, found.ceiling),
    boundary: Object.keys(boundary).length === 0 ? undefined : boundary,
    conditions: conditionsOf(
      before?.conditions ?? [],
      found.findings,
      found.guarantee,
      found.generation,
      now,
    ),
  });
  return { status, moves };
};
