/**
 * Who leads? Decided on one plain Lease, by each candidate for itself and by its own monotonic time.
 *
 * | Lease | seen by | move |
 * | --- | --- | --- |
 * | absent, nobody was seen holding it | a candidate | create |
 * | absent, a holder was seen within its term | a candidate | wait for the end of that term |
 * | terminating | a candidate | wait |
 * | no holder | a candidate | take |
 * | another holder, unchanged for its whole duration | a candidate | take |
 * | another holder | a candidate | wait |
 * | names us | us | renew: what became of a write without an answer is read here |
 *
 * Leadership is never proof: it keeps two controllers from doing the same work, and every write of theirs carries its
 * own precondition. Somebody who deletes the Lease can make two leaders until the next renewal.
 */
import { after, type MonoTime } from "./time.ts";

/** A Lease as an election reads it. */
export interface Ballot {
  uid: string;
  terminating: boolean;
  /** Empty or left out: nobody. */
  holder?: string | undefined;
  durationSeconds?: number | undefined;
  /** As text: only whether it changed matters. */
  renewTime?: string | undefined;
}

/** The last record that named a holder, and since when it has been the same. */
export interface Sighting {
  record: string;
  since: MonoTime;
  termMs: number;
}

/**
 * What is known after a fresh read at `now`. As every renewal writes a time that was never there before, two reads of
 * the same record prove that nothing was renewed between them. An absent Lease leaves what was known.
 */
export const sight = (
  previous: Sighting | undefined,
  ballot: Ballot | undefined,
  fallbackSeconds: number,
  now: MonoTime,
): Sighting | undefined => {
  if (!ballot) return previous;
  if (!ballot.holder) return undefined;
  const termMs = (ballot.durationSeconds ?? fallbackSeconds) * 1000;
  const record = [ballot.uid, ballot.holder, ballot.renewTime ?? "", termMs].join("|");
  return previous?.record === record ? previous : { record, since: now, termMs };
};

export type Move = "create" | "take" | "renew" | "wait";

/** What `self` may do about the Lease that it has just read. */
export const nextMove = (
  ballot: Ballot | undefined,
  self: string,
  sighting: Sighting | undefined,
  now: MonoTime,
): Move => {
  const termOver = !sighting || now >= after(sighting.since, sighting.termMs);
  if (!ballot) return termOver ? "create" : "wait";
  if (ballot.terminating) return "wait";
  if (ballot.holder === self) return "renew";
  return !ballot.holder || termOver ? "take" : "wait";
};
