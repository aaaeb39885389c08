/**
 * A keyed work queue: what changed is remembered once, by its key, and reconciled until it succeeds.
 *
 * | key is | add | its timer fires | run succeeds | run fails | forget |
 * | --- | --- | --- | --- | --- | --- |
 * | unknown | waiting | – | – | – | – |
 * | waiting | waiting | waiting | – | – | unknown |
 * | running | runs once more | runs once more | unknown, or delayed | delayed (back-off) | unknown after the run |
 * | delayed | waiting | waiting | – | – | unknown |
 *
 * A key never runs twice at a time, and keys start in the order in which they were added. Nothing of a key is kept
 * once it is unknown.
 */
import { after, elapsed, type MonoTime } from "../core/time.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";

/** What a run wants next: nothing, or to run again after a while. */
export interface Reconciled {
  requeueAfterMs?: number | undefined;
}

export type Reconcile = (key: string, signal: AbortSignal) => Promise<Reconciled>;

/** Thrown by a run that no repetition can help: it waits for the next change. */
export class TerminalError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "TerminalError";
  }
}

export interface Queue {
  /** Runs `key` soon; once, however often it is added before it runs. */
  add(key: string): void;
  /** As `add`, not before `ms` have passed. Of several the earliest counts. */
  addAfter(key: string, ms: number): void;
  /** Gives up what is planned for `key`, and its failures. A run under way ends, and is not repeated. */
  forget(key: string): void;
  /**
   * Takes nothing more, drops what has not begun, and resolves when every run has ended. The runs' signal is aborted
   * together with `signal`.
   */
  drain(signal: AbortSignal): Promise<void>;
  /** Keys that anything is kept of. */
  size(): number;
}

export interface QueueOptions {
  /** Said in every log line. */
  name: string;
  reconcile: Reconcile;
  concurrency: number;
  clock: Clock;
  random: Random;
  log: Logger;
  /** Told the seconds of every run. */
  duration?: { observe(seconds: number): void } | undefined;
  backoff?: { baseMs: number; ceilingMs: number } | undefined;
}

const defaultBackoff = { baseMs: 250, ceilingMs: 60_000 };

interface Entry {
  running: boolean;
  /** Added while it ran. */
  again: boolean;
  /** Forgotten while it ran. */
  forgotten: boolean;
  failures: number;
  timer: { due: MonoTime; cancel: () => void } | undefined;
}

type Outcome =
  | { kind: "done" }
  | { kind: "requeue"; afterMs: number }
  | { kind: "terminal"; error: TerminalError }
  | { kind: "failed"; error: unknown }
  | { kind: "aborted" };

/** Milliseconds until the next try: doubled with each failure, from half of it up, so that many do not come at once. */
export const backoffMs = (
  failures: number,
  { baseMs, ceilingMs }: { baseMs: number; ceilingMs: number },
  random: Random,
): number => Math.min(ceilingMs, baseMs * 2 ** (failures - 1)) * (0.5 + random.float() / 2);

export const makeQueue = (options: QueueOptions): Queue => {
  const { name, reconcile, concurrency, clock, random, log, duration, backoff = defaultBackoff } = options;
  const entries = new Map<string, Entry>();
  const waiting = new Set<string>();
  const runs = new Set<Promise<void>>();
  const abort = new AbortController();
  let draining = false;
  let startPlanned = false;

  const entryOf = (key: string): Entry => {
    const known = entries.get(key);
    if (known) return known;
    const made = { running: false, again: false, forgotten: false, failures: 0, timer: undefined };
    entries.set(key, made);
    return made;
  };

  const free = (key: string, entry: Entry): void => {
    if (!entry.running && !entry.timer && !waiting.has(key) && entry.failures === 0) entries.delete(key);
  };

  const add = (key: string): void => {
    if (draining) return;
    const entry = entryOf(key);
    if (entry.running) entry.again = true;
    else waiting.add(key);
    planStart();
  };

  const addAfter = (key: string, ms: number): void => {
    if (draining) return;
    const entry = entryOf(key);
    const due = after(clock.mono(), ms);
    if (entry.timer && entry.timer.due <= due) return;
    entry.timer?.cancel();
    const cancel = clock.timer(ms, () => {
      entry.timer = undefined;
      add(key);
    });
    entry.timer = { due, cancel };
  };

  /** Runs begin after the caller is done, so that a burst of adds is one run. */
  const planStart = (): void => {
    if (startPlanned) return;
    startPlanned = true;
    queueMicrotask(() => {
      startPlanned = false;
      for (const key of waiting) {
        if (runs.size >= concurrency) return;
        waiting.delete(key);
        const run = runOnce(key, entryOf(key));
        runs.add(run);
        void run.finally(() => {
          runs.delete(run);
          planStart();
        });
      }
    });
  };

  const runOnce = async (key: string, entry: Entry): Promise<void> => {
    entry.running = true;
    const start = clock.mono();
    const outcome = await attempt(key);
    duration?.observe(elapsed(start, clock.mono()) / 1000);
    entry.running = false;
    if (entry.forgotten) entry.failures = 0;
    else follow(key, entry, outcome);
    entry.forgotten = false;
    if (entry.again && !draining) waiting.add(key);
    entry.again = false;
    free(key, entry);
  };

  const attempt = async (key: string): Promise<Outcome> => {
    try {
      const { requeueAfterMs } = await reconcile(key, abort.signal);
      return requeueAfterMs === undefined ? { kind: "done" } : { kind: "requeue", afterMs: requeueAfterMs };
    } catch (error) {
      if (abort.signal.aborted) return { kind: "aborted" };
      return error instanceof TerminalError ? { kind: "terminal", error } : { kind: "failed", error };
    }
  };

  /** The one place that says what follows from a run. */
  const follow = (key: string, entry: Entry, outcome: Outcome): void => {
    switch (outcome.kind) {
      case "done":
        entry.failures = 0;
        return;
      case "requeue":
        entry.failures = 0;
        addAfter(key, outcome.afterMs);
        return;
      case "terminal":
        entry.failures = 0;
        log.error({ queue: name, resource: key, error: outcome.error }, "reconcile failed for good");
        return;
      case "failed": {
        entry.failures++;
        const retryMs = Math.round(backoffMs(entry.failures, backoff, random));
        const error = outcome.error instanceof Error ? outcome.error : String(outcome.error);
        log.warn(
          { queue: name, resource: key, failures: entry.failures, retryMs, error },
          "reconcile failed, will be repeated",
        );
        addAfter(key, retryMs);
        return;
      }
      case "aborted":
        entry.failures = 0;
        log.debug({ queue: name, resource: key }, "reconcile aborted");
        return;
      default: {
        const never: never = outcome;
        return never;
      }
    }
  };

  const drop = (key: string, entry: Entry): void => {
    entry.timer?.cancel();
    entry.timer = undefined;
    entry.again = false;
    entry.failures = 0;
    waiting.delete(key);
    free(key, entry);
  };

  const forget = (key: string): void => {
    const entry = entries.get(key);
    if (!entry) return;
    entry.forgotten = entry.running;
    drop(key, entry);
  };

  const drain = async (signal: AbortSignal): Promise<void> => {
    draining = true;
    for (const [key, entry] of entries) drop(key, entry);
    const stop = () => abort.abort(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    await Promise.allSettled(runs);
    signal.removeEventListener("abort", stop);
    entries.clear();
  };

  return { add, addAfter, forget, drain, size: () => entries.size };
};
