import { expect, test } from "vitest";
import { describeFault } from "./plan.ts";
import { simulate } from "./simulate.ts";

test("S2-52 S2-37 no seed breaks anything", { timeout: 120_000 }, async () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const { violations, schedule } = await simulate({ seed });
    expect(violations, `seed ${seed}: ${schedule.map(describeFault).join(", ")}`).toEqual([]);
  }
});

test("S2-36 the same seed is the same run, to the last message", async () => {
  const [once, twice, other] = [
    await simulate({ seed: 7 }),
    await simulate({ seed: 7 }),
    await simulate({ seed: 8 }),
  ];
  expect(twice.traceHash).toBe(once.traceHash);
  expect(other.traceHash).not.toBe(once.traceHash);
});
