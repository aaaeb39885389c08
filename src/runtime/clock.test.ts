import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { makeFakeClock, settle } from "../../test/support/clock.ts";
import { makeMonotonic, systemClock, systemRandom } from "./clock.ts";

/** A machine whose two sources a test moves. */
const machine = (boot: number | undefined = 1000) => {
  const at = { running: 500, boot };
  return { at, source: { running: () => at.running, boot: () => at.boot } };
};

describe("monotonic time", () => {
  it("starts at 0 and follows the running clock", () => {
    const { at, source } = machine();
    const mono = makeMonotonic(source);
    expect(mono()).toBe(0);
    at.running += 40;
    at.boot = 1040;
    expect(mono()).toBe(40);
  });

  it("counts the time that the machine was suspended", () => {
    const { at, source } = machine();
    const mono = makeMonotonic(source);
    at.running += 10;
    at.boot = 61_010;
    expect(mono()).toBe(60_010);
    at.running += 10;
    at.boot = 61_020;
    expect(mono()).toBe(60_020);
  });

  it("adds up suspensions that are small one by one", () => {
    const { at, source } = machine();
    const mono = makeMonotonic(source);
    for (let round = 1; round <= 10; round++) at.boot = 1000 + round * 50;
    expect(mono()).toBe(500);
  });

  it("takes the coarse steps of the time since boot for what they are", () => {
    const { at, source } = machine();
    const mono = makeMonotonic(source);
    at.running += 1;
    at.boot = 1010;
    expect(mono()).toBe(1);
  });

  it("does without a time since boot", () => {
    const at = { running: 5 };
    const mono = makeMonotonic({ running: () => at.running, boot: () => undefined });
    at.running = 30;
    expect(mono()).toBe(25);
  });

  it("never goes back, whatever its sources do", () => {
    const step = fc.record({
      running: fc.double({ min: 0, max: 1e6, noNaN: true }),
      boot: fc.option(fc.double({ min: 0, max: 1e6, noNaN: true }), { nil: undefined }),
    });
    fc.assert(
      fc.property(fc.array(step, { minLength: 2 }), (steps) => {
        let index = 0;
        const mono = makeMonotonic({
          running: () => steps[index]?.running ?? 0,
          boot: () => steps[index]?.boot,
        });
        let last = -1;
        for (; index < steps.length; index++) {
          const now = mono();
          expect(now).toBeGreaterThanOrEqual(last);
          last = now;
        }
      }),
    );
  });
});

describe("the system's clock", () => {
  it("sleeps, and wakes with the reason of an aborted signal", async () => {
    await systemClock.sleep(1);
    const reason = new Error("enough");
    await expect(systemClock.sleep(60_000, AbortSignal.abort(reason))).rejects.toBe(reason);
    const later = new AbortController();
    const sleeping = systemClock.sleep(60_000, later.signal);
    later.abort(reason);
    await expect(sleeping).rejects.toBe(reason);
  });

  it("does not fire a timer that is longer than the platform allows", async () => {
    let fired = false;
    const cancel = systemClock.timer(2 ** 40, () => {
      fired = true;
    });
    await settle();
    cancel();
    expect(fired).toBe(false);
  });

  it("tells the time to people in microseconds", () => {
    expect(systemClock.wall() / 1_000_000n).toBeGreaterThan(1_700_000_000n);
    expect(systemRandom.uuid()).toMatch(/^[0-9a-f-]{36}$/);
    expect(systemRandom.float()).toBeLessThan(1);
  });
});

describe("a test's clock", () => {
  it("fires due timers in order of time, then of creation, and lets promises run in between", async () => {
    const clock = makeFakeClock();
    const seen: string[] = [];
    clock.timer(20, () => seen.push("20"));
    clock.timer(10, () => seen.push("10a"));
    clock.timer(10, () => seen.push("10b"));
    const chained = (async () => {
      await clock.sleep(5);
      await clock.sleep(5);
      seen.push(`chained ${clock.mono()}`);
    })();
    await clock.advance(15);
    await chained;
    expect(seen).toEqual(["10a", "10b", "chained 10"]);
    expect(clock.pending()).toBe(1);
    await clock.advance(5);
    expect(seen.at(-1)).toBe("20");
  });
});
