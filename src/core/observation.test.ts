import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { LeaseView } from "./lease.ts";
import { observe, type Observation, takeableAt } from "./observation.ts";
import { monoTime, type WallTime, wallTime } from "./time.ts";
import type { Token } from "./token.ts";

const at = monoTime;

const view = (over: Partial<LeaseView> = {}): LeaseView => ({
  uid: "l1",
  resourceVersion: "7",
  ours: true,
  terminating: false,
  format: 1,
  holder: "pod:a/1",
  durationSeconds: 15,
  renewTime: wallTime(1_000n),
  transitions: 3,
  credit: { uid: "l1", token: 41n as Token, ceiling: 64n as Token },
  ended: [],
  unclean: false,
  boundary: undefined,
  note: undefined,
  forced: undefined,
  ...over,
});

const seen: Observation = observe(undefined, view(), 4, at(1_000));

describe("since when a record stands", () => {
  const rows: [string, Partial<LeaseView>, number, boolean][] = [
    ["the same record", {}, 4, true],
    ["another version of the same record", { resourceVersion: "8" }, 4, true],
    ["a boundary that was switched", { boundary: "hash", resourceVersion: "8" }, 4, true],
    ["more transitions", { transitions: 4 }, 4, true],
    ["an interrupted watch", {}, 5, false],
    ["a renewal", { renewTime: wallTime(1_001n) }, 4, false],
    ["an older time", { renewTime: wallTime(999n) }, 4, false],
    ["another holder", { holder: "pod:b/1" }, 4, false],
    ["no holder", { holder: undefined }, 4, false],
    ["another token", { credit: { uid: "l1", token: 42n as Token, ceiling: 64n as Token } }, 4, false],
    ["void credit", { credit: undefined }, 4, false],
    ["a re-created Lease", { uid: "l2" }, 4, false],
    ["a forced loss", { unclean: true }, 4, false],
  ];
  for (const [name, over, epoch, stands] of rows)
    it(`${name}: ${stands ? "goes on" : "begins anew"}`, () => {
      expect(observe(seen, view(over), epoch, at(9_000)).since).toBe(stands ? 1_000 : 9_000);
    });

  it("what was never seen begins now", () => {
    expect(observe(undefined, view(), 4, at(9_000)).since).toBe(9_000);
  });
});

describe("from when a Lease may be taken", () => {
  const patience = { durationSeconds: 30, lockDelaySeconds: 7, fenced: false };
  const held = { holder: "pod:a/1", durationSeconds: 15 } as const;
  const free = { holder: undefined, durationSeconds: 15 };
  const rows: [string, Parameters<typeof takeableAt>[1], boolean, Partial<typeof patience>, number][] = [
    ["held: its own duration and the lock-delay", held, true, {}, 23_000],
    ["held, without a duration: the resource's", { ...held, durationSeconds: undefined }, true, {}, 38_000],
    ["held behind a fenced boundary: its own duration", held, true, { fenced: true }, 16_000],
    ["S1-06 held, the resource's duration changed meanwhile", held, true, { durationSeconds: 3 }, 23_000],
    ["free and clean: at once", free, true, {}, 1_000],
    ["free, unclean: the resource's duration and the lock-delay", free, false, {}, 38_000],
    ["free, unclean, no lock-delay: the duration", free, false, { lockDelaySeconds: 0 }, 31_000],
    ["free, unclean, fenced: at once", free, false, { fenced: true }, 1_000],
  ];
  it.each(rows)("%s", (_name, lease, clean, over, want) => {
    expect(takeableAt(seen, lease, clean, { ...patience, ...over })).toBe(want);
  });
});

it("S1-45 no time that somebody wrote moves a moment of our own", () => {
  const walls = fc.bigInt({ min: 0n, max: 2n ** 60n }).map((value) => value as WallTime);
  fc.assert(
    fc.property(walls, walls, fc.nat(1e6), fc.nat(1e6), (before, later, first, second) => {
      const one = observe(undefined, view({ renewTime: before }), 1, at(first));
      const now = at(first + second);
      const two = observe(one, view({ renewTime: later }), 1, now);
      const expected = before === later ? first : now;
      expect(two.since).toBe(expected);
    }),
  );
});
