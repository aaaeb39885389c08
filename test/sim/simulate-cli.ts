/**
 * Seeds one after the other until a violation, outside of any test runner:
 *
 *     node test/sim/simulate-cli.ts --seeds 1..500 [--counts]
 *
 * Exit code 0: nothing was broken; 1: a line names seed and invariant; 2: usage.
 */
import { parseArgs } from "node:util";
import { simulate } from "./simulate.ts";

const { values } = parseArgs({
  options: { seeds: { type: "string", default: "1..100" }, counts: { type: "boolean", default: false } },
});
const [, first, last] = /^(\d+)(?:\.\.(\d+))?$/.exec(values.seeds) ?? [];
if (first === undefined) {
  console.error("usage: node test/sim/simulate-cli.ts --seeds FIRST..LAST");
  process.exit(2);
}
const totals: Record<string, number> = {};
const started = performance.now();
const end = Number(last ?? first);
for (let seed = Number(first); seed <= end; seed += 1) {
  const { violations, counts } = await simulate({ seed });
  for (const [name, count] of Object.entries(counts)) totals[name] = (totals[name] ?? 0) + count;
  const [violation] = violations;
  if (violation !== undefined) {
    const { invariant, resource, message, at } = violation;
    console.log(`seed ${seed}: ${invariant} of ${resource} at ${Math.round(at)} ms: ${message}`);
    process.exit(1);
  }
}
const seconds = (performance.now() - started) / 1000;
const seeds = end - Number(first) + 1;
console.log(
  `${seeds} seeds, nothing broken: ${(seeds / seconds).toFixed(1)} seeds/s, ${((totals["virtualMs"] ?? 0) / 3_600_000).toFixed(1)} virtual hours`,
);
if (values.counts) console.log(totals);
