import { readFile } from "node:fs/promises";
import { modelFile, type Verdict } from "./spin.ts";
import type { Removal, Scenario } from "./scenarios.ts";

/** Every rule of the model and what it says, in its order. */
export const rules = async (): Promise<Map<string, string>> =>
  new Map(
    [...(await readFile(modelFile, "utf8")).matchAll(/^#define ([a-z_]+) \d+ +\/\* (.+) \*\/$/gm)].map(
      ([, rule = "", says = ""]) => [rule, says],
    ),
  );

/** The line of the page for a rule that was removed. */
export const removedLine = ({ rule, search }: Removal, says: string, { broken, states }: Verdict): string => {
  if (broken === undefined) throw new Error(`nothing breaks without ${rule} in ${states} states`);
  const { invariant, steps } = broken;
  return `| \`${rule}\` | ${says} | ${invariant} | ${search === "first" ? "≤ " : ""}${steps} |`;
};

const shown = (scenario: Scenario): string =>
  Object.entries(scenario.bounds)
    .filter(([, value]) => value !== 0)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");

/** The line of the page for a scenario in which nothing broke. */
export const wholeLine = (scenario: Scenario, { broken, states }: Verdict): string => {
  if (broken !== undefined)
    throw new Error(`${scenario.name}: ${broken.invariant} breaks in ${broken.steps} steps`);
  return `| ${scenario.name} | \`${shown(scenario)}\` | ${states.toLocaleString("en-US")} |`;
};

export const page = (
  whole: readonly string[],
  removed: readonly string[],
): string => `# A model of the protocol

<!-- The tables are written by \`npm run model\`. -->

\`fenceline.pml\` is the protocol of \`docs/protocol.md\` for one resource, in Promela: coordinators with stale caches and lost answers, the controller's part, a boundary, and a world that deletes, copies and restores. Time does not occur in it: a Lease may be taken from its holder at any moment, so what holds here holds for every clock. \`npm run model\` checks it with Debian's \`spin\` and \`gcc\`, within about two minutes and 2.5 GB, and writes this page; the ordinary test run does the same within smaller bounds.

## Nothing breaks

Every state within these bounds was visited, and I1 to I6, I8 and I9 hold in all of them. (I7 is about time: the simulation judges it.)

| what happens | bounds | states |
| --- | --- | --- |
${whole.join("\n")}

## Without a rule, something does

Each rule was left out alone. Steps: length of the shortest way to the broken invariant, or of the one that was found.

| rule | what it says | breaks | steps |
| --- | --- | --- | --- |
${removed.join("\n")}

## What it leaves out

Waiting, terms, lock-delay and everything else about time; \`ended\`; identities; the noticed restore with its safety jump, retirement and sealing of sequences; \`OnFirstWrite\` and the mode \`Once\`; renewals that testify to a restore. An update of unknown outcome that lands late is the update of a replica whose answer nobody reads. A restored etcd goes on with higher versions here, as after \`--bump-revision\`. The two rules of the PostgreSQL guard, its row lock and its second comparison, are shown by running PostgreSQL.
`;
