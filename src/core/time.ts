/**
 * Two kinds of time that cannot be compared with one another.
 *
 * Decisions use {@link MonoTime} only. {@link WallTime} is written for people and other tools to read; no decision
 * of the protocol depends on it.
 */

declare const mono: unique symbol;
declare const wall: unique symbol;

/** Milliseconds on this process's own monotonic clock, counting suspension where the platform can. */
export type MonoTime = number & { readonly [mono]: true };

/** Microseconds since the Unix epoch, as this machine believes. */
export type WallTime = bigint & { readonly [wall]: true };

export const monoTime = (ms: number): MonoTime => ms as MonoTime;
export const wallTime = (microseconds: bigint): WallTime => microseconds as WallTime;

/** `time` moved by `ms`; negative moves back. */
export const after = (time: MonoTime, ms: number): MonoTime => (time + ms) as MonoTime;

/** Milliseconds from `start` to `end`; negative where `end` comes first. */
export const elapsed = (start: MonoTime, end: MonoTime): number => end - start;
