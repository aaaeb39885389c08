/** How long to wait for an answer, and how soon to ask again. All in milliseconds. */
import type { Random } from "../runtime/clock.ts";
import type { Term } from "./wire.ts";

/** Longest wait in one acquire: the coordinator's own limit. */
export const longestPollMs = 30_000;

/** What an acquire may take beyond the wait it asked for: a grant is answered only after the boundary knows it. */
export const answerMs = 10_000;

/** At the end of a process there are seconds: a release is one quick request. */
export const releaseMs = 2000;

/** Trouble of the coordinator's own that passes by itself is waited out for this long, also by those who do not wait. */
export const settleMs = 10_000;

/** From the sending of one renewal to that of the next: what was answered, but never so late that none may be lost. */
export const renewEveryMs = ({ leaseDurationMs, renewAfterMs }: Term): number =>
  Math.max(100, Math.min(renewAfterMs, leaseDurationMs / 3));

/** After this long a renewal is late, and another one is sent on a connection of its own. */
export const renewTimeoutMs = (everyMs: number): number => Math.min(everyMs / 2, 10_000);

/** Once to one and a half times `ms`: those who failed together do not come back together, nor before they may. */
const jittered = (ms: number, random: Random): number => ms * (1 + random.float() / 2);

/** 1, 2, 4 … times `first`, at most `most`. */
const growing = (failures: number, first: number, most: number): number =>
  Math.min(most, first * 2 ** Math.min(failures - 1, 10));

/** Before the next try after `failures` failed renewals in a row: quick, well below the interval whatever is asked. */
export const renewRetryMs = (
  failures: number,
  everyMs: number,
  asked: number | undefined,
  random: Random,
): number => {
  const most = Math.min(everyMs / 5, 5000);
  const own = growing(failures, Math.min(everyMs / 20, 500), most);
  return jittered(Math.min(most, Math.max(own, asked ?? 0)), random);
};

/** Before the next acquire after `failures` answers in a row that say "not now". */
export const acquireRetryMs = (failures: number, asked: number | undefined, random: Random): number =>
  jittered(Math.max(growing(failures, 200, 5000), Math.min(asked ?? 0, 10_000)), random);
