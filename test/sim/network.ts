/** What lies between two parties: delays, and whatever faults put on it for a while. */
import type { Random } from "../../src/runtime/clock.ts";
import type { Actor, TrueTime } from "./time.ts";

/** What is wrong with a way just now. Chances are 0 … 1 per message. */
export interface Trouble {
  cutThere: boolean;
  cutBack: boolean;
  /** Chance that a message, or an answer, is lost. */
  loses: number;
  losesAnswers: number;
  /** Chance that a message arrives a second time, later. */
  doubles: number;
  /** Added to each message, up to this many milliseconds: they overtake one another. */
  slowMs: number;
  /** Nobody listens: at once an error, and surely not done. */
  refused: boolean;
}

export const noTrouble: Trouble = {
  cutThere: false,
  cutBack: false,
  loses: 0,
  losesAnswers: 0,
  doubles: 0,
  slowMs: 0,
  refused: false,
};

/** A way from one party to another one. Parts of it may be in trouble for several reasons at a time. */
export interface Way {
  trouble(): Trouble;
  /** Adds trouble; returns what takes it away again. */
  add(trouble: Partial<Trouble>): () => void;
  /** The next message is held back before it arrives, or its answer before it leaves, while `hold` lasts. */
  hold(phase: "there" | "back", hold: Promise<void>): void;
}

const sum = (all: Iterable<Partial<Trouble>>): Trouble => {
  const total = { ...noTrouble };
  for (const one of all) {
    total.cutThere ||= one.cutThere ?? false;
    total.cutBack ||= one.cutBack ?? false;
    total.refused ||= one.refused ?? false;
    total.loses = Math.max(total.loses, one.loses ?? 0);
    total.losesAnswers = Math.max(total.losesAnswers, one.losesAnswers ?? 0);
    total.doubles = Math.max(total.doubles, one.doubles ?? 0);
    total.slowMs = Math.max(total.slowMs, one.slowMs ?? 0);
  }
  return total;
};

const never = new Promise<never>(() => {});

export interface Network {
  way(): Way;
  /**
   * Carries one request and its answer. Never settles where either is lost: the sender has to have a time limit.
   * What `serve` throws is an answer, too.
   */
  carry<T>(way: readonly Way[], to: Actor | undefined, serve: () => Promise<T>): Promise<T>;
  refused(way: readonly Way[]): boolean;
  /** How long a message under way takes now. */
  delayMs(way: readonly Way[]): number;
}

interface Held {
  phase: "there" | "back";
  until: Promise<void>;
}

export const makeNetwork = (time: TrueTime, random: Pick<Random, "float">): Network => {
  const holds = new WeakMap<Way, Held[]>();
  const chance = (share: number): boolean => share > 0 && random.float() < share;
  const troubleOn = (way: readonly Way[]): Trouble => sum(way.map((part) => part.trouble()));
  const delayMs = (way: readonly Way[]): number => {
    const { slowMs } = troubleOn(way);
    return 0.2 + random.float() * 4 + (slowMs > 0 ? random.float() * slowMs : 0);
  };

  const held = async (way: readonly Way[], phase: Held["phase"]): Promise<void> => {
    for (const part of way) {
      const list = holds.get(part) ?? [];
      const index = list.findIndex((hold) => hold.phase === phase);
      if (index >= 0) await list.splice(index, 1)[0]?.until;
    }
  };

  return {
    way() {
      const troubles = new Set<Partial<Trouble>>();
      let now = noTrouble;
      const way: Way = {
        trouble: () => now,
        add(trouble) {
          troubles.add(trouble);
          now = sum(troubles);
          return () => {
            troubles.delete(trouble);
            now = sum(troubles);
          };
        },
        hold(phase, until) {
          holds.set(way, [...(holds.get(way) ?? []), { phase, until }]);
        },
      };
      return way;
    },

    refused: (way) => way.some((part) => part.trouble().refused),
    delayMs,

    async carry(way, to, serve) {
      const { cutThere, loses, doubles } = troubleOn(way);
      const lost = cutThere || chance(loses);
      const twice = chance(doubles) ? delayMs(way) * (1 + random.float() * 10) : undefined;
      await time.sleep(delayMs(way));
      await held(way, "there");
      if (lost || troubleOn(way).cutThere) return never;
      await to?.gate();
      if (twice !== undefined)
        time.at(time.now() + twice, () => {
          serve().catch(() => {});
        });
      let answer: Awaited<ReturnType<typeof serve>> | undefined;
      let error: unknown;
      let failed = false;
      try {
        answer = await serve();
      } catch (thrown) {
        failed = true;
        error = thrown;
      }
      await to?.gate();
      await held(way, "back");
      const lostBack = chance(troubleOn(way).losesAnswers);
      await time.sleep(delayMs(way));
      if (lostBack || troubleOn(way).cutBack) return never;
      if (failed) throw error;
      return answer as Awaited<ReturnType<typeof serve>>;
    },
  };
};
