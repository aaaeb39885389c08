/** True time, which only the simulation sees, and the clocks of processes, which run, jump and stop by themselves. */
import { monoTime, wallTime, type MonoTime } from "../../src/core/time.ts";
import { type Clock, sleepBy } from "../../src/runtime/clock.ts";
import { settle } from "../support/clock.ts";

interface Due {
  at: number;
  order: number;
  fire: (() => void) | undefined;
}

export interface TrueTime {
  /** Milliseconds since the beginning. */
  now(): number;
  /** Returns what cancels it. */
  at(ms: number, fire: () => void): () => void;
  sleep(ms: number): Promise<void>;
  /** Lets everything happen until `ms`, one thing after the other. */
  run(until: number): Promise<void>;
}

/** A heap by time, then by order of creation. */
const makeDues = () => {
  const heap: Due[] = [];
  const before = (a: Due | undefined, b: Due | undefined): boolean =>
    a !== undefined && b !== undefined && (a.at < b.at || (a.at === b.at && a.order < b.order));
  const swap = (i: number, j: number) => {
    const [a, b] = [heap[i], heap[j]];
    if (a === undefined || b === undefined) return;
    heap[i] = b;
    heap[j] = a;
  };
  return {
    first: (): Due | undefined => heap[0],
    push(due: Due) {
      heap.push(due);
      for (let i = heap.length - 1; i > 0; ) {
        const parent = (i - 1) >> 1;
        if (!before(heap[i], heap[parent])) return;
        swap(i, parent);
        i = parent;
      }
    },
    pop() {
      swap(0, heap.length - 1);
      heap.pop();
      for (let i = 0; ; ) {
        let least = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (before(heap[child], heap[least])) least = child;
        if (least === i) return;
        swap(i, least);
        i = least;
      }
    },
  };
};

/** More timers than this at one moment are a loop. */
const stillMost = 20_000;

export const makeTrueTime = (): TrueTime => {
  const dues = makeDues();
  let now = 0;
  let orders = 0;
  let steps = 0;

  const at = (ms: number, fire: () => void): (() => void) => {
    const due: Due = { at: Math.max(ms, now), order: orders++, fire };
    dues.push(due);
    return () => {
      due.fire = undefined;
    };
  };

  return {
    now: () => now,
    at,
    sleep: (ms) => new Promise((resolve) => void at(now + ms, resolve)),
    async run(until) {
      await settle();
      for (let due = dues.first(); due !== undefined && due.at <= until; due = dues.first()) {
        dues.pop();
        if (due.fire === undefined) continue;
        steps = due.at > now ? 0 : steps + 1;
        if (steps > stillMost)
          throw new Error(`time stands still at ${now} ms: something is busy doing nothing`);
        now = due.at;
        due.fire();
        await settle();
      }
      now = Math.max(now, until);
    },
  };
};

/** 2026-01-01T00:00:00Z, in milliseconds. */
const epochMs = 1_767_225_600_000;

/** A clock for what is no process of ours: it shows true time. */
export const trueClock = (time: TrueTime): Clock => {
  const timer = (ms: number, fire: () => void) => time.at(time.now() + ms, fire);
  return {
    mono: () => monoTime(time.now()),
    wall: () => wallTime(BigInt(Math.round((epochMs + time.now()) * 1000))),
    timer,
    sleep: (ms, signal) => sleepBy(timer, ms, signal),
  };
};

/** One process, as far as the machine below it goes. */
export interface Actor {
  readonly name: string;
  readonly clock: Clock;
  /** Resolves when something from outside may reach it: at once, when it goes on, or never again. */
  gate(): Promise<void>;
  dead(): boolean;
  paused(): boolean;
  /** As SIGSTOP: time goes by, timers are late, answers wait. */
  pause(): void;
  resume(): void;
  /** As SIGKILL: whatever it waits for never comes. */
  kill(): void;
  /** Its wall clock jumps; its monotonic clock does not. */
  jump(ms: number): void;
  /** From now on its monotonic clock runs `rate` times as fast as true time. */
  setRate(rate: number): void;
}

interface Armed {
  due: MonoTime;
  fire: () => void;
  cancel: () => void;
}

/** A timer is never early by its own clock, however its numbers are rounded. */
const grain = 1e-6;

const never = new Promise<never>(() => {});

export const makeActor = (
  time: TrueTime,
  { name, rate: first = 1 }: { name: string; rate?: number },
): Actor => {
  const armed = new Set<Armed>();
  let rate = first;
  let base = { local: 0, at: time.now() };
  let wallOffset = 0;
  let state: "running" | "paused" | "dead" = "running";
  let late: (() => void)[] = [];
  let opened = Promise.withResolvers<void>();

  const is = (other: typeof state): boolean => state === other;

  const mono = (): MonoTime => monoTime(base.local + (time.now() - base.at) * rate);

  const arm = (entry: Armed) => {
    entry.cancel = time.at(time.now() + (entry.due - mono()) / rate + grain, () => {
      armed.delete(entry);
      if (state === "dead") return;
      if (state === "paused") late.push(entry.fire);
      else entry.fire();
    });
  };

  const timer = (ms: number, fire: () => void): (() => void) => {
    const state = { over: false };
    const once = () => {
      if (!state.over) fire();
    };
    const entry = { due: monoTime(mono() + Math.max(0, ms)), fire: once, cancel: () => {} };
    armed.add(entry);
    arm(entry);
    return () => {
      state.over = true;
      armed.delete(entry);
      entry.cancel();
    };
  };

  return {
    name,
    clock: {
      mono,
      wall: () => wallTime(BigInt(Math.round((epochMs + mono() + wallOffset) * 1000))),
      timer,
      sleep: (ms, signal) => sleepBy(timer, ms, signal),
    },
    async gate() {
      while (is("paused")) await opened.promise;
      if (is("dead")) await never;
    },
    dead: () => state === "dead",
    paused: () => state === "paused",
    pause() {
      if (state !== "running") return;
      state = "paused";
      opened = Promise.withResolvers<void>();
    },
    resume() {
      if (state !== "paused") return;
      state = "running";
      const due = late;
      late = [];
      for (const fire of due) time.at(time.now(), fire);
      opened.resolve();
    },
    kill() {
      state = "dead";
      for (const { cancel } of armed) cancel();
      armed.clear();
      late = [];
    },
    jump(ms) {
      wallOffset += ms;
    },
    setRate(next) {
      base = { local: mono(), at: time.now() };
      rate = next;
      for (const entry of armed) {
        entry.cancel();
        arm(entry);
      }
    },
  };
};
