import { randomUUID } from "node:crypto";
import { uptime } from "node:os";
import { monoTime, wallTime, type MonoTime, type WallTime } from "../core/time.ts";

/** Time, as the process sees it. The only door to it: a simulation passes its own. */
export interface Clock {
  /** Now, in milliseconds of the process's own monotonic time. */
  mono(): MonoTime;
  /** Now, for people to read. */
  wall(): WallTime;
  /** Resolves after `ms`; rejects with the signal's reason when that is aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `fire` once after `ms`. Returns what cancels it. */
  timer(ms: number, fire: () => void): () => void;
}

/** Randomness, for identity and jitter only: never for order. */
export interface Random {
  uuid(): string;
  /** Uniform in [0, 1). */
  float(): number;
}

/** Milliseconds from two sources of one machine: `running` stands still while it is suspended, `boot` does not. */
export interface MachineTime {
  running(): number;
  /** Undefined where the platform does not tell. */
  boot(): number | undefined;
}

/** The time of this machine. */
export const machineTime: MachineTime = {
  running: () => Number(process.hrtime.bigint()) / 1e6,
  boot: () => {
    try {
      return uptime() * 1000;
    } catch {
      return undefined;
    }
  },
};

/** Above the 10 ms steps in which the time since boot is told, and below any suspension that matters to a lease. */
const smallestGapMs = 100;

/** Longer than this a Node timer fires at once. */
const longestTimerMs = 2 ** 31 - 1;

/**
 * The larger advance of the two sources, from 0. A suspended machine is a stopped clock to `running` alone: the holder
 * would believe in a right that another has taken meanwhile. Never goes back, whatever the sources do.
 */
export const makeMonotonic = (machine: MachineTime): (() => MonoTime) => {
  const runningStart = machine.running();
  const bootStart = machine.boot();
  let suspended = 0;
  let last = 0;
  return () => {
    const running = machine.running() - runningStart;
    const boot = machine.boot();
    if (boot !== undefined && bootStart !== undefined) {
      const gap = boot - bootStart - running;
      if (gap > suspended + smallestGapMs) suspended = gap;
    }
    last = Math.max(last, running + suspended);
    return monoTime(last);
  };
};

const timer = (ms: number, fire: () => void): (() => void) => {
  const handle = setTimeout(fire, Math.min(Math.max(0, ms), longestTimerMs));
  return () => clearTimeout(handle);
};

/** Time of this machine. */
export const systemClock: Clock = {
  mono: makeMonotonic(machineTime),
  wall: () => wallTime(BigInt(Date.now()) * 1000n),
  timer,
  sleep: (ms, signal) => sleepBy(timer, ms, signal),
};

/** A sleep made of a timer: what every {@link Clock} needs once. */
export const sleepBy = (start: Clock["timer"], ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const abort = () => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = start(ms, () => {
      signal?.removeEventListener("abort", abort);
      resolve();
    });
    signal?.addEventListener("abort", abort, { once: true });
  });

/** Randomness of this machine. */
export const systemRandom: Random = { uuid: randomUUID, float: Math.random };
