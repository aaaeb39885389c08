import { after, type MonoTime } from "../core/time.ts";
import type { Clock } from "../runtime/clock.ts";

/** Answers that stay true for a while, asked for once however many want them. */
export interface Verdicts<T> {
  get(key: string, ask: () => Promise<T>): Promise<T>;
}

/** At most `most` are kept, the oldest go first; `keepMs` says for how long each. What fails is not kept. */
export const makeVerdicts = <T>(clock: Clock, most: number, keepMs: (verdict: T) => number): Verdicts<T> => {
  const kept = new Map<string, { verdict: Promise<T>; until: MonoTime }>();
  return {
    async get(key, ask) {
      const known = kept.get(key);
      if (known !== undefined && clock.mono() < known.until) return known.verdict;
      kept.delete(key);
      const entry = { verdict: ask(), until: after(clock.mono(), Number.POSITIVE_INFINITY) };
      kept.set(key, entry);
      for (const oldest of kept.keys()) {
        if (kept.size <= most) break;
        kept.delete(oldest);
      }
      try {
        const verdict = await entry.verdict;
        entry.until = after(clock.mono(), keepMs(verdict));
        return verdict;
      } catch (error) {
        if (kept.get(key) === entry) kept.delete(key);
        throw error;
      }
    },
  };
};
