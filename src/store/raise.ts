import { drained, safetyJump, validCredit } from "../core/lease.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf, type Leases, type ResourceName } from "../kube/leases.ts";
import type { WriteResult } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Reservation, SequenceStore } from "./port.ts";

export interface RaiseDeps {
  leases: Pick<Leases, "get" | "write">;
  clock: Pick<Clock, "wall">;
}

/** How often the Lease is read again because it moved, or because a write was not answered. */
const rounds = 5;

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
 * order: a Lease without credit over a sequence that stands too low would be worse than either. Throws a KubeError where
 * the API server does not answer a read.
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
  let now = lease;
  for (let round = 1; ; round += 1) {
    const left = now === undefined ? undefined : validCredit(now.view);
    // Granted from above meanwhile: what was there before is gone.
    if (now === undefined || left === undefined || left.ceiling === left.token || left.token > highest)
      return { ...raised, lease: now };
    const write = await leases.write(resource, now, drained(now.view, clock.wall()), signal);
    if (write.outcome === "ok") return { ...raised, lease: write.object };
    if (write.outcome === "refused" || write.outcome === "unavailable" || round === rounds)
      return { outcome: "not_drained", write };
    now = await leases.get(resource, signal);
  }
};
