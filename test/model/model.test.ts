/** The model of the protocol: nothing breaks as it stands, something breaks without any of its rules. */
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { removedLine, rules, wholeLine } from "../support/model/page.ts";
import { removals, scenarios } from "../support/model/scenarios.ts";
import { check, modelFile } from "../support/model/spin.ts";

const says = await rules();
const published = await readFile(join(dirname(modelFile), "README.md"), "utf8");

describe("as it stands", () => {
  const long = process.env["FENCELINE_LONG"] !== undefined;
  it.each(scenarios)("nothing breaks: $name", async (scenario) => {
    const verdict = await check(long ? scenario.bounds : scenario.quick, { quick: !long });
    expect(verdict.broken).toBeUndefined();
    expect(verdict.states).toBeGreaterThan(10_000);
    expect(published).toContain(long ? wholeLine(scenario, verdict) : scenario.name);
  });
});

describe("without a rule", () => {
  it.each(removals)("something breaks, as published: $rule", async (removal) => {
    const verdict = await check(removal.bounds, { removed: removal.rule, search: removal.search });
    expect(published).toContain(removedLine(removal, says.get(removal.rule) ?? "", verdict));
  });

  it("every rule of the model is taken out once", () => {
    expect(removals.map(({ rule }) => rule).toSorted()).toEqual([...says.keys()].toSorted());
  });
});

it("the protocol's text names exactly the rules of the model", async () => {
  const protocol = await readFile(join(dirname(modelFile), "../protocol.md"), "utf8");
  const named = [...protocol.matchAll(/\[R (\w+)\]/g)].map(([, rule]) => rule);
  expect(new Set(named)).toEqual(new Set(says.keys()));
});
