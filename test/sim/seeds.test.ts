import { expect, test } from "vitest";
import { describeHunt, hunt, report, shrink } from "./hunt.ts";
import { isLong } from "./long.ts";
import { simulate } from "./simulate.ts";

test("S2-52 S2-37 S1-02 S1-61 S1-64 S1-72 S2-13 seeds break nothing", {
  timeout: isLong ? 7_200_000 : 600_000,
}, async () => {
  const found = await hunt(1, isLong ? 15_000 : 1_000);
  console.log(describeHunt(found));
  // A hunt in which nothing stale was tried, and nobody took over, would show nothing.
  expect(found.totals.staleRefused).toBeGreaterThan(1_000);
  expect(found.totals.takeovers).toBeGreaterThan(5_000);
});

test("S2-36 the same seed is the same run, to the last message", async () => {
  const [once, twice] = [await simulate({ seed: 7 }), await simulate({ seed: 7 })];
  expect(twice.traceHash).toBe(once.traceHash);
  expect((await simulate({ seed: 8 })).traceHash).not.toBe(once.traceHash);
});

test("S2-37 a seed that breaks something is told with a command that shows it again, without what it does not need", async () => {
  const run = await simulate({ seed: 11 });
  expect(run.schedule.length).toBeGreaterThan(1);
  const broken = { ...run, violations: [{ invariant: "I1" as const, resource: "r", message: "m", at: 0 }] };
  // Nothing is really broken, so that nothing can be left out.
  expect(await shrink(broken)).toEqual([]);
  expect(report(broken, [0])).toMatch(/^seed 11: I1 .*\n(.*\n)+node test\/sim\/replay.ts 11 --skip 0$/);
});
