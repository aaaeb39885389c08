/**
 * One run again, and all that happened in it:
 *
 *     node test/sim/replay.ts SEED [--skip 0,2]
 *
 * `--skip` leaves out faults, counted from 0. Exit code 1: something was broken.
 */
import { parseArgs } from "node:util";
import { without } from "./hunt.ts";
import { describeFault, planOf } from "./plan.ts";
import { simulate } from "./simulate.ts";

const { values, positionals } = parseArgs({
  options: { skip: { type: "string", default: "" } },
  allowPositionals: true,
});
const seed = Number(positionals[0]);
const skip = new Set(values.skip === "" ? [] : values.skip.split(",").map(Number));
const plan = planOf(seed);
const faults = without(plan.faults, skip);
const { history, violations, traceHash } = await simulate({ seed, faults });

const text = (_key: string, value: unknown): unknown =>
  typeof value === "bigint" ? value.toString() : value;
for (const event of history) {
  const at = "at" in event ? event.at : "start" in event ? event.start : undefined;
  console.log(`${at?.toFixed(3)} ${JSON.stringify(event, text)}`);
}
console.log(`\nresources ${JSON.stringify(plan.resources)}`);
for (const fault of faults) console.log(describeFault(fault));
for (const { invariant, resource, at, message } of violations)
  console.log(`${invariant} of ${resource} at ${Math.round(at)} ms: ${message}`);
console.log(`trace ${traceHash}`);
process.exitCode = violations.length > 0 ? 1 : 0;
