import { describe, expect, test } from "vitest";
import { monoTime } from "../core/time.ts";
import { waitersOf } from "./mirror.ts";

describe("waiters", () => {
  const at = monoTime;
  test("are summed, and looked at again when the first report would be a minute old", () => {
    const first = waitersOf({ r1: { count: 2, beat: 1 } }, new Map(), at(0));
    const both = { r1: { count: 2, beat: 1 }, r2: { count: 1, beat: 7 } };
    expect(waitersOf(both, first.beats, at(10_000))).toMatchObject({
      total: 3,
      byReplica: both,
      dueAt: 60_000,
    });
  });
  test("a report that stands still for a minute is dropped, one that beats stays", () => {
    const first = waitersOf({ r1: { count: 2, beat: 1 }, r2: { count: 1, beat: 7 } }, new Map(), at(0));
    const later = waitersOf(
      { r1: { count: 2, beat: 1 }, r2: { count: 1, beat: 8 } },
      first.beats,
      at(60_000),
    );
    expect(later).toMatchObject({ total: 1, byReplica: { r2: { count: 1, beat: 8 } } });
    expect(later.byReplica).not.toHaveProperty("r1");
  });
  test("what a replica took back is forgotten", () => {
    const first = waitersOf({ r1: { count: 2, beat: 1 } }, new Map(), at(0));
    expect(waitersOf(undefined, first.beats, at(1))).toMatchObject({
      total: 0,
      beats: new Map(),
      dueAt: undefined,
    });
  });
});
