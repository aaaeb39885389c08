/** Durations that fit together, and the words for those that do not. */

export interface Timings {
  durationSeconds: number;
  renewIntervalSeconds: number;
}

/** A third of the duration: two renewals may be lost before the third is too late. */
export const defaultRenewInterval = (durationSeconds: number): number => Math.floor(durationSeconds / 3);

/** One sentence that says what does not fit, or undefined. The API server checks the same by CEL. */
export const timingProblem = ({ durationSeconds, renewIntervalSeconds }: Timings): string | undefined => {
  if (!Number.isInteger(durationSeconds) || durationSeconds < 3 || durationSeconds > 3600)
    return `lease.durationSeconds is ${durationSeconds}: give whole seconds from 3 to 3600`;
  if (!Number.isInteger(renewIntervalSeconds) || renewIntervalSeconds < 1)
    return `lease.renewIntervalSeconds is ${renewIntervalSeconds}: give whole seconds, at least 1`;
  if (3 * renewIntervalSeconds > durationSeconds)
    return `lease.renewIntervalSeconds ${renewIntervalSeconds} leaves no room for two lost renewals in ${durationSeconds} s: give at most ${defaultRenewInterval(durationSeconds)}`;
  return undefined;
};

/** Milliseconds until the next renewal of a term: what the resource asks for, and at most a third of the term. */
export const renewAfterMs = (termSeconds: number, renewIntervalSeconds: number): number =>
  Math.min(renewIntervalSeconds * 1000, Math.floor((termSeconds * 1000) / 3));
