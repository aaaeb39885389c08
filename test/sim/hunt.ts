/** Many seeds, and what to do about one that breaks something. */
import { describeFault, type Fault } from "./plan.ts";
import { type Counts, type Simulated, simulate } from "./simulate.ts";

/** The command that shows a run again, without the faults that it does not need. */
const replayCommand = (seed: number, skip: readonly number[]): string =>
  `node test/sim/replay.ts ${seed}${skip.length > 0 ? ` --skip ${skip.join(",")}` : ""}`;

/** All faults but those at these places. */
export const without = (schedule: readonly Fault[], skip: ReadonlySet<number>): Fault[] =>
  schedule.filter((_, index) => !skip.has(index));

/** Leaves out one fault after the other, for as long as the same invariant breaks. */
export const shrink = async ({ seed, schedule, violations }: Simulated): Promise<number[]> => {
  const broken = violations[0]?.invariant;
  const skip = new Set<number>();
  for (const index of schedule.keys()) {
    const fewer = await simulate({ seed, faults: without(schedule, new Set([...skip, index])) });
    if (fewer.violations.some(({ invariant }) => invariant === broken)) skip.add(index);
  }
  return [...skip];
};

/** What broke, and how to see it again, in a few lines. */
export const report = ({ seed, violations, schedule }: Simulated, skip: readonly number[]): string => {
  const { invariant, resource, message, at } = violations[0] ?? {};
  return [
    `seed ${seed}: ${invariant} of ${resource} at ${Math.round(at ?? 0)} ms: ${message}`,
    ...without(schedule, new Set(skip)).map((fault) => `  ${describeFault(fault)}`),
    replayCommand(seed, skip),
  ].join("\n");
};

export interface Hunt {
  seeds: number;
  seconds: number;
  totals: Counts;
}

const add = (a: Counts, b: Counts): Counts => ({
  operations: a.operations + b.operations,
  granted: a.granted + b.granted,
  renewed: a.renewed + b.renewed,
  released: a.released + b.released,
  forced: a.forced + b.forced,
  takeovers: a.takeovers + b.takeovers,
  accepted: a.accepted + b.accepted,
  staleRefused: a.staleRefused + b.staleRefused,
  requests: a.requests + b.requests,
  virtualMs: a.virtualMs + b.virtualMs,
});

/** Seeds `first` to `last`. Throws at the first that breaks something, with its report. */
export const hunt = async (first: number, last: number): Promise<Hunt> => {
  const started = performance.now();
  let totals: Counts | undefined;
  for (let seed = first; seed <= last; seed += 1) {
    const run = await simulate({ seed });
    if (run.violations.length > 0) throw new Error(report(run, await shrink(run)));
    totals = totals === undefined ? run.counts : add(totals, run.counts);
  }
  if (totals === undefined) throw new Error("no seeds");
  return { seeds: last - first + 1, seconds: (performance.now() - started) / 1000, totals };
};

/** One line for people. */
export const describeHunt = ({ seeds, seconds, totals }: Hunt): string =>
  `${seeds} seeds, nothing broken: ${(seeds / seconds).toFixed(1)} seeds/s, ${(totals.virtualMs / 3_600_000).toFixed(1)} virtual hours, ${totals.operations} operations, ${totals.granted} grants, ${totals.staleRefused} stale effects refused`;
