/** `npm run model`: checks the whole model and every removal, and writes docs/model/README.md. */
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { page, removedLine, rules, wholeLine } from "./page.ts";
import { removals, scenarios } from "./scenarios.ts";
import { check, modelFile } from "./spin.ts";

const says = await rules();
const whole: string[] = [];
for (const scenario of scenarios) {
  whole.push(wholeLine(scenario, await check(scenario.bounds)));
  console.log(whole.at(-1));
}
const removed: string[] = [];
for (const removal of removals) {
  const verdict = await check(removal.bounds, { removed: removal.rule, search: removal.search });
  removed.push(removedLine(removal, says.get(removal.rule) ?? "", verdict));
  console.log(removed.at(-1));
}
await writeFile(join(dirname(modelFile), "README.md"), page(whole, removed));
