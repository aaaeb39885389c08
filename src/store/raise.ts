import { drained, safetyJump, validCredit } from "../core/lease.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf, type Leases, type ResourceName } from "../kube/leases.ts";
import type { WriteResult } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Reservation, SequenceStore } from "./port.ts";

export interface RaiseDeps {
  leases: Pick<Leases, "write">;
  clock: Pick<Clock, "wall">;
}

/**
 * - `raised`: no token up to `above` is granted again; `lease` as it is now, where it had credit to lose.
 * - `not_raised`: the sequence did not take it; nothing changed.
 * - `not_drained`: the sequence stands above, the Lease may still have credit from before. Read it, then do it again.
 */
export type Raised =
  | { outcome: "raised"; above: Token; lease: FencedLease | undefined }
  | { outcome: "not_raised"; reservation: Exclude<Reservation, { outcome: "reserved" }> }
  | { outcome: "not_drained"; write: Exclude<WriteResult<FencedLease>, { outcome: "ok" }> };

/**
 * Something went back in time: the sequence is raised above everything that was seen and a safety jump more, and the
 * credit that may have come back to life is taken out of the Lease, so that every next grant has to reserve. In this
 * order: a Lease without credit over a sequence that stands too low would be worse than either.
 */
export const raiseAbove = async (
  { leases, clock }: RaiseDeps,
  store: SequenceStore,
  resource: ResourceName,
  lease: FencedLease | undefined,
  seen: Token,
  signal?: AbortSignal,
): Promise<Raised> => {
  const credit = lease === undefined ? undefined : validCredit(lease.view);
  const highest = higher(seen, credit?.ceiling ?? noToken);
  const reservation = await store.reserve(keyOf(resource), 0n, (highest + safetyJump) as Token, signal);
  if (reservation.outcome !== "reserved") return { outcome: "not_raised", reservation };
  const raised = { outcome: "raised", above: reservation.ceiling } as const;
  if (lease === undefined || credit === undefined || credit.ceiling === credit.token)
    return { ...raised, lease };
  const write = await leases.write(resource, lease, drained(lease.view, clock.wall()), signal);
  return write.outcome === "ok" ? { ...raised, lease: write.object } : { outcome: "not_drained", write };
};
