/** Which faults meet which requests. */
import { type Call, type Match, matches } from "./call.ts";
import { type Fault, Faults } from "./fault.ts";
import type { Reply, Step } from "./steps.ts";

export interface Limits {
  /** So many requests are hit, then no more. Default: all. */
  times?: number;
  /** So many matching requests pass before the first is hit. Default 0. */
  skip?: number;
  /** Each matching request is hit with this probability, by the proxy's seed. Default 1. */
  chance?: number;
}

export interface RequestFault extends Fault {
  /** Requests hit so far. */
  readonly hits: number;
  /** Resolves once `count` requests were hit; does not by itself end. */
  hit(count?: number): Promise<void>;
}

/** A barrier. Healing it lets everything through for good. */
export interface Hold extends RequestFault {
  /** Requests standing before it now. */
  readonly waiting: number;
  /** Resolves once `count` requests stand before it. */
  arrived(count?: number): Promise<void>;
  /** Lets those that stand there now go on; later ones are held again. */
  release(): void;
}

interface Rule {
  match: Match;
  step: Step;
  skip: number;
  times: number;
  chance: number;
  hits: number;
}

/** Promises that resolve when a number that somebody counts has reached them. */
class Awaited {
  readonly #pending = new Set<() => void>();

  reaching(count: number, now: () => number): Promise<void> {
    return new Promise((resolve) => {
      const check = () => {
        if (now() < count) return;
        this.#pending.delete(check);
        resolve();
      };
      this.#pending.add(check);
      check();
    });
  }

  changed(): void {
    for (const check of this.#pending) check();
  }
}

export class Rules {
  readonly #rules = new Set<Rule>();
  readonly #faults = new Faults();
  readonly #random: () => number;
  readonly #hits = new Awaited();

  constructor(random: () => number) {
    this.#random = random;
  }

  add(match: Match, step: Step, limits: Limits = {}, onHeal = () => {}): RequestFault {
    const { skip = 0, times = Number.POSITIVE_INFINITY, chance = 1 } = limits;
    const rule: Rule = { match, step, skip, times, chance, hits: 0 };
    this.#rules.add(rule);
    const fault = this.#faults.add(() => {
      this.#rules.delete(rule);
      onHeal();
    });
    return {
      heal: () => fault.heal(),
      [Symbol.dispose]: () => fault.heal(),
      get hits() {
        return rule.hits;
      },
      hit: (count = 1) => this.#hits.reaching(count, () => rule.hits),
    };
  }

  hold(match: Match, at: "request" | "answer", limits: Limits): Hold {
    const standing = new Set<() => void>();
    const arrivals = new Awaited();
    const release = () => {
      for (const go of standing) go();
    };
    const stand = () =>
      new Promise<void>((resolve) => {
        const go = () => {
          standing.delete(go);
          resolve();
        };
        standing.add(go);
        arrivals.changed();
      });
    const step: Step = async (_call, forward) => {
      if (at === "request") await stand();
      const reply = await forward();
      if (at === "answer") await stand();
      return reply;
    };
    const fault = this.add(match, step, limits, release);
    return {
      heal: () => fault.heal(),
      [Symbol.dispose]: () => fault.heal(),
      hit: (count) => fault.hit(count),
      get hits() {
        return fault.hits;
      },
      get waiting() {
        return standing.size;
      },
      arrived: (count = 1) => arrivals.reaching(count, () => standing.size),
      release,
    };
  }

  /** Sends one request through every fault that meets it. */
  run(call: Call, forward: () => Promise<Reply>): Promise<Reply> {
    const met = [...this.#rules].filter((rule) => this.#meets(rule, call));
    if (met.length > 0) this.#hits.changed();
    return met.reduceRight<() => Promise<Reply>>(
      (next, { step }) =>
        () =>
          step(call, next),
      forward,
    )();
  }

  heal(): void {
    this.#faults.heal();
  }

  #meets(rule: Rule, call: Call): boolean {
    if (rule.hits >= rule.times || !matches(rule.match, call)) return false;
    if (rule.skip > 0) {
      rule.skip -= 1;
      return false;
    }
    if (rule.chance < 1 && this.#random() >= rule.chance) return false;
    rule.hits += 1;
    return true;
  }
}
