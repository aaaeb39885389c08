import { describe, expect, it } from "vitest";
import { makeMoments, readMoment, systemMoments } from "./moment.ts";

/** Two sources that a test moves. */
const machine = (boot: number | undefined = 500_000) => {
  const now = { running: 400_000, boot };
  return { now, running: () => now.running, boot: () => now.boot };
};

describe("a moment kept in a file", () => {
  it("FM-35 is judged by a process that began later, on the same boot", () => {
    const { now, ...sources } = machine();
    const text = JSON.stringify(makeMoments(sources, "boot-1").in(13_500));
    now.running += 4000;
    now.boot = 504_000;
    const moment = readMoment(JSON.parse(text));
    expect(moment && makeMoments(sources, "boot-1").until(moment)).toBe(9500);
  });

  it("FM-22 passes while the machine is suspended: the source that says less counts", () => {
    const { now, ...sources } = machine();
    const moments = makeMoments(sources, "boot-1");
    const moment = moments.in(13_500);
    now.running += 1000;
    now.boot = 500_000 + 301_000;
    expect(moments.until(moment)).toBe(13_500 - 301_000);
    now.running += 60_000;
    now.boot = 500_000;
    expect(moments.until(moment)).toBe(13_500 - 61_000);
  });

  it("S1-45 never counts after a boot, nor where no boot can be told from another", () => {
    const { now: _, ...sources } = machine();
    const moment = makeMoments(sources, "boot-1").in(13_500);
    expect(makeMoments(sources, "boot-2").until(moment)).toBe(-Infinity);
    expect(makeMoments(sources, undefined).until(makeMoments(sources, undefined).in(13_500))).toBe(-Infinity);
  });

  it("does without the time since boot where the platform does not tell", () => {
    const moments = makeMoments({ running: () => 400_000, boot: () => undefined }, "boot-1");
    const moment = moments.in(13_500);
    expect(moment).toEqual({ boot: "boot-1", running: 413_500, uptime: null });
    expect(moments.until(moment)).toBe(13_500);
  });

  it.each([null, "x", {}, { boot: "b", running: "1", uptime: 1 }, { boot: "b", running: 1 }])(
    "is not read from %j",
    (value) => expect(readMoment(value)).toBeUndefined(),
  );

  it("of this machine is ahead", () => {
    const moments = systemMoments();
    const left = moments.until(moments.in(60_000));
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(60_000);
  });
});
