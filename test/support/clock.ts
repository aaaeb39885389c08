import { after, monoTime, wallTime, type MonoTime } from "../../src/core/time.ts";
import { sleepBy, type Clock, type Random } from "../../src/runtime/clock.ts";

export interface FakeClock extends Clock {
  /**
   * Lets `ms` pass: due timers fire in order of time (then of creation), and what waits on promises runs in between.
   */
  advance(ms: number): Promise<void>;
  /** Lets `ms` pass without any timer firing, as a suspended machine does. They fire with the next `advance`. */
  suspend(ms: number): void;
  /** Timers that have neither fired nor been cancelled. */
  pending(): number;
}

/** Lets everything run that needs no more time: all promises that are settled, and what follows from them. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

interface Timer {
  due: MonoTime;
  order: number;
  fire: () => void;
}

/** 2026-01-01T00:00:00Z, in microseconds. */
const epoch = 1_767_225_600_000_000n;

/** Time that stands still until a test moves it. Starts at 0 and at the first moment of 2026. */
export const makeFakeClock = (): FakeClock => {
  const timers = new Set<Timer>();
  let now = monoTime(0);
  let created = 0;

  const timer = (ms: number, fire: () => void): (() => void) => {
    const entry: Timer = { due: after(now, Math.max(0, ms)), order: created++, fire };
    timers.add(entry);
    return () => void timers.delete(entry);
  };

  const nextDue = (until: MonoTime): Timer | undefined => {
    let next: Timer | undefined;
    for (const entry of timers) {
      if (entry.due > until) continue;
      if (!next || entry.due < next.due || (entry.due === next.due && entry.order < next.order)) next = entry;
    }
    return next;
  };

  return {
    mono: () => now,
    wall: () => wallTime(epoch + BigInt(Math.round(now * 1000))),
    timer,
    sleep: (ms, signal) => sleepBy(timer, ms, signal),
    pending: () => timers.size,
    suspend: (ms) => {
      now = after(now, ms);
    },
    advance: async (ms) => {
      const until = after(now, ms);
      await settle();
      for (let entry = nextDue(until); entry; entry = nextDue(until)) {
        timers.delete(entry);
        now = monoTime(Math.max(now, entry.due));
        entry.fire();
        await settle();
      }
      now = monoTime(Math.max(now, until));
    },
  };
};

/** The same numbers for the same seed. */
export const makeFakeRandom = (seed = 1): Random => {
  let state = seed >>> 0;
  let uuids = 0;
  const float = () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    float,
    uuid: () => `00000000-0000-4000-8000-${(++uuids).toString(16).padStart(12, "0")}`,
  };
};
