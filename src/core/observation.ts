/**
 * When may a Lease be taken? Judged by this process's own monotonic time, never by a timestamp that somebody wrote.
 *
 * | record | free after |
 * | --- | --- |
 * | a holder | its own duration, unchanged (plus lock-delay) |
 * | no holder, the loss unclean | one duration (plus lock-delay) |
 * | no holder, clean | at once |
 *
 * Behind a `Fenced` boundary there is no lock-delay, and an unclean loss is as good as a clean one: whatever still runs
 * is refused where it matters. A changed record, and an interrupted watch, start the count anew: who was not looking
 * has seen nothing.
 */
import type { LeaseView } from "./lease.ts";
import { after, type MonoTime } from "./time.ts";

/** The last record seen of one Lease, and since when. */
export interface Observation {
  record: string;
  /** Which unbroken stretch of watching this was seen in. */
  epoch: number;
  since: MonoTime;
}

const recordOf = (lease: LeaseView): string =>
  [lease.uid, lease.holder ?? "", lease.credit?.token ?? "", lease.renewTime ?? "", lease.unclean].join("|");

/** What is known after looking at `lease` at `now`. */
export const observe = (
  previous: Observation | undefined,
  lease: LeaseView,
  epoch: number,
  now: MonoTime,
): Observation => {
  const record = recordOf(lease);
  return previous?.record === record && previous.epoch === epoch ? previous : { record, epoch, since: now };
};

/** What the resource and its boundary say about waiting. */
export interface Patience {
  durationSeconds: number;
  lockDelaySeconds: number;
  fenced: boolean;
}

/** The earliest moment at which the observed Lease may be taken. A clean, holderless one: at once. */
export const takeableAt = (
  observation: Observation,
  lease: Pick<LeaseView, "holder" | "durationSeconds">,
  clean: boolean,
  patience: Patience,
): MonoTime => {
  const delay = patience.fenced ? 0 : patience.lockDelaySeconds;
  if (lease.holder !== undefined) {
    // A holder that wrote no duration gets what the resource says: unknown never means expired.
    const term = lease.durationSeconds ?? patience.durationSeconds;
    return after(observation.since, (term + delay) * 1000);
  }
  if (clean || patience.fenced) return observation.since;
  return after(observation.since, (patience.durationSeconds + delay) * 1000);
};
