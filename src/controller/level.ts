/** Brings the sequence where the plan wants it, one step after the other. */
import type { ResourceSpec } from "../core/resource.ts";
import { safetyJump } from "../core/lease.ts";
import type { Token } from "../core/token.ts";
import { type FencedLease, keyOf, type Leases } from "../kube/leases.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Reservation, SequenceState, SequenceStore } from "../store/port.ts";
import { raiseAbove } from "../store/raise.ts";
import type { Trouble } from "./conditions.ts";
import { planSequence, type SequenceInput } from "./sequence.ts";
import type { Told } from "./story.ts";

export interface Levelled {
  /** Where the sequence stands; undefined where that is not known, or where it is not ours. */
  ceiling: Token | undefined;
  trouble: Trouble<"TokensConsistent"> | undefined;
  /** The Lease, after what was taken out of it. */
  lease: FencedLease | undefined;
  /** Nothing of what was there before a restore can be granted again. */
  mended: boolean;
  story: readonly Told[];
}

export interface LevelDeps {
  leases: Leases;
  clock: Clock;
}

/** At most: open or mend, then raise by mark, then by floor. More means that somebody works against us. */
const steps = 6;

type Refused = Exclude<Reservation, { outcome: "reserved" }>;

const refusedText = (refused: Refused): string => {
  switch (refused.outcome) {
    case "unavailable":
      return refused.message;
    case "not_ready":
      return `the sequence is ${refused.reason}`;
    case "issuer_mismatch":
      return `the tokens are issued by ${refused.issuer}`;
    case "sealed":
      return "the sequence is sealed";
    case "exhausted":
      return "no token is left";
    default: {
      const never: never = refused;
      return never;
    }
  }
};

const raised = (above: Token, why: string): Told => ({
  reason: "TokenFloorRaised",
  note: `every token from now on is above ${above}: ${why}`,
});

/**
 * `shown` is what the watch shows; nothing is done, and nothing bad is said, before the sequence was read now. Throws
 * where only another try can tell.
 */
export const levelSequence = async (
  { leases, clock }: LevelDeps,
  store: SequenceStore,
  resource: ResourceSpec,
  input: Omit<SequenceInput, "sequence" | "lease"> & { lease: FencedLease | undefined },
  shown: SequenceState,
  signal: AbortSignal,
): Promise<Levelled> => {
  const key = keyOf(resource);
  const story: Told[] = [];
  let { lease, restored } = input;
  let sequence = shown;
  const plan = () => planSequence({ ...input, lease: lease?.view, restored, sequence });
  const ended = (trouble: Levelled["trouble"], ceiling?: Token): Levelled => ({
    ceiling: ceiling ?? (sequence.state === "open" ? sequence.ceiling : undefined),
    trouble,
    lease,
    mended: trouble === undefined,
    story,
  });
  let next = plan();
  if (next.kind !== "level") sequence = await store.read(key, signal);
  for (let step = 0; step < steps; step += 1) {
    next = plan();
    switch (next.kind) {
      case "level":
        return ended(undefined, next.ceiling);
      case "stuck":
        return ended(next);
      case "open": {
        sequence = await store.open(key, next.at, signal);
        if (sequence.state === "open") restored = undefined;
        if (sequence.state === "open" && next.why !== undefined) story.push(raised(sequence.base, next.why));
        break;
      }
      case "raise": {
        const reservation = await store.reserve(key, 0n, next.to, signal);
        if (reservation.outcome !== "reserved")
          return ended({
            reason: "StoreUnavailable",
            message: `the sequence must be raised to ${next.to} (${next.why}): ${refusedText(reservation)}`,
          });
        story.push(raised(reservation.ceiling, `${next.why}; they stood at ${next.from}`));
        sequence = await store.read(key, signal);
        break;
      }
      case "mend": {
        const done = await raiseAbove({ leases, clock }, store, resource, lease, next.seen, signal);
        if (done.outcome === "not_raised")
          return ended({
            reason: "TokenRegression",
            message: `${next.why}, and the sequence must be raised above ${next.seen}: ${refusedText(done.reservation)}`,
          });
        if (done.outcome === "not_drained")
          throw new Error(`take old credit out of the Lease of ${key}: ${done.write.outcome}`);
        story.push(
          raised(
            done.above,
            `${next.why}; the highest number seen was ${next.seen}, and ${safetyJump} more are left out`,
          ),
        );
        lease = done.lease;
        restored = undefined;
        sequence = await store.read(key, signal);
        break;
      }
      default: {
        const never: never = next;
        return never;
      }
    }
  }
  return ended({ reason: "StoreUnavailable", message: "the sequence keeps changing" });
};
