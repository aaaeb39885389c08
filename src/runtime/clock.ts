import type { MonoTime, WallTime } from "../core/time.ts";

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
