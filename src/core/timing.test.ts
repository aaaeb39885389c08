import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { defaultRenewInterval, renewAfterMs, timingProblem } from "./timing.ts";

describe("timings that fit", () => {
  const cases: [number, number, RegExp | undefined][] = [
    [15, 5, undefined],
    [3, 1, undefined],
    [3600, 1200, undefined],
    [2, 1, /durationSeconds is 2/],
    [3601, 5, /durationSeconds is 3601/],
    [15.5, 5, /durationSeconds is 15.5/],
    [Number.NaN, 5, /durationSeconds is NaN/],
    [15, 0, /renewIntervalSeconds is 0/],
    [15, -1, /renewIntervalSeconds is -1/],
    [15, 1.5, /renewIntervalSeconds is 1.5/],
    [15, 6, /no room for two lost renewals in 15 s: give at most 5/],
  ];
  for (const [durationSeconds, renewIntervalSeconds, problem] of cases)
    it(`${durationSeconds} s with a renewal every ${renewIntervalSeconds} s: ${problem ?? "fine"}`, () => {
      const said = timingProblem({ durationSeconds, renewIntervalSeconds });
      expect(said ?? "").toMatch(problem ?? /^$/);
    });

  it("the default interval fits every duration that is allowed", () => {
    for (let durationSeconds = 3; durationSeconds <= 3600; durationSeconds += 1)
      expect(
        timingProblem({ durationSeconds, renewIntervalSeconds: defaultRenewInterval(durationSeconds) }),
      ).toBeUndefined();
  });
});

it("a renewal is due at the interval, and by a third of the term at the latest", () => {
  expect(renewAfterMs(15, 5)).toBe(5000);
  expect(renewAfterMs(15, 2)).toBe(2000);
  // The first term of a long lease is short.
  expect(renewAfterMs(15, 1200)).toBe(5000);
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 3600 }), fc.integer({ min: 1, max: 1200 }), (term, interval) => {
      const ms = renewAfterMs(term, interval);
      expect(Number.isInteger(ms) && ms > 0 && ms <= interval * 1000 && 3 * ms <= term * 1000).toBe(true);
    }),
  );
});
