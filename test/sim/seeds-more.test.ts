import { expect, test } from "vitest";
import { isLong } from "./long.ts";
import { describeHunt, hunt } from "./hunt.ts";

test("S2-52 S2-37 more seeds break nothing", { timeout: isLong ? 7_200_000 : 600_000 }, async () => {
  const found = await hunt(isLong ? 15_001 : 1_001, isLong ? 30_000 : 2_000);
  console.log(describeHunt(found));
  expect(found.totals.staleRefused).toBeGreaterThan(1_000);
});
