import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Ballot, nextMove, sight } from "./election.ts";
import { after, monoTime } from "./time.ts";

const at = monoTime;
const held: Ballot = {
  uid: "u1",
  terminating: false,
  holder: "other",
  durationSeconds: 15,
  renewTime: "2026-01-01T00:00:00.000000Z",
};

describe("the next move of a candidate", () => {
  const seen = sight(undefined, held, 15, at(1000));

  it.each([
    ["creates a Lease that is not there", undefined, undefined, 0, "create"],
    ["waits for the term of a holder whose Lease vanished", undefined, seen, 15_999, "wait"],
    ["creates it after that term", undefined, seen, 16_000, "create"],
    [
      "leaves a Lease alone that is being deleted",
      { ...held, terminating: true, holder: "" },
      undefined,
      0,
      "wait",
    ],
    ["takes a Lease without a holder", { ...held, holder: undefined }, undefined, 0, "take"],
    ["takes a Lease with an empty holder", { ...held, holder: "" }, undefined, 0, "take"],
    ["waits while a holder's term lasts", held, seen, 15_999, "wait"],
    ["takes over at the end of an unchanged term", held, seen, 16_000, "take"],
    ["renews what is its own", { ...held, holder: "me" }, undefined, 0, "renew"],
  ] as const)("%s", (_name, ballot, sighting, now, move) => {
    expect(nextMove(ballot, "me", sighting, at(now))).toBe(move);
  });
});

describe("a sighting", () => {
  it.each([
    ["renewal", { renewTime: "2026-01-01T00:00:00.000001Z" }],
    ["holder", { holder: "third" }],
    ["Lease", { uid: "u2" }],
    ["duration", { durationSeconds: 20 }],
  ])("starts anew with another %s", (_name, change) => {
    const first = sight(undefined, held, 15, at(0));
    expect(sight(first, held, 15, at(14_000))).toBe(first);
    expect(sight(first, { ...held, ...change }, 15, at(14_000))?.since).toBe(14_000);
  });

  it("gives a holder that wrote no duration the usual one, and knows nobody where there is none", () => {
    expect(sight(undefined, { ...held, durationSeconds: undefined }, 15, at(0))?.termMs).toBe(15_000);
    expect(sight(undefined, { ...held, holder: "" }, 15, at(0))).toBeUndefined();
  });

  it("never lets a Lease be taken that was renewed within its own duration (S1-46)", () => {
    const step = fc.record({ ms: fc.integer({ min: 1, max: 20_000 }), renewed: fc.boolean() });
    fc.assert(
      fc.property(
        fc.array(step, { minLength: 1 }),
        fc.integer({ min: 1, max: 60 }),
        (steps, durationSeconds) => {
          let now = at(0);
          let renewals = 0;
          let lastChange = now;
          let sighting = sight(undefined, { ...held, durationSeconds }, 15, now);
          for (const { ms, renewed } of steps) {
            now = after(now, ms);
            if (renewed) {
              renewals++;
              lastChange = now;
            }
            const ballot = { ...held, durationSeconds, renewTime: `t${renewals}` };
            sighting = sight(sighting, ballot, 15, now);
            const taken = nextMove(ballot, "me", sighting, now) === "take";
            expect(taken && now - lastChange < durationSeconds * 1000).toBe(false);
          }
        },
      ),
    );
  });
});
