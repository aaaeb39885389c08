/**
 * Seeds one after the other until a violation, outside of any test runner:
 *
 *     node test/sim/simulate-cli.ts --seeds 1..500
 *
 * Exit code 0: nothing was broken; 1: a line names seed and invariant; 2: usage.
 */
import { parseArgs } from "node:util";
import { describeHunt, hunt } from "./hunt.ts";

const { values } = parseArgs({ options: { seeds: { type: "string", default: "1..100" } } });
const [, first, last] = /^(\d+)(?:\.\.(\d+))?$/.exec(values.seeds) ?? [];
if (first === undefined) {
  console.error("usage: node test/sim/simulate-cli.ts --seeds FIRST..LAST");
  process.exitCode = 2;
} else
  try {
    console.log(describeHunt(await hunt(Number(first), Number(last ?? first))));
  } catch (error) {
    console.log(error instanceof Error ? error.message : String(error));
    process.exitCode = 1;
  }
