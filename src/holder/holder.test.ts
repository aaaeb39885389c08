import { describe, expect, it } from "vitest";
import { type FakeClock, makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import {
  type FakeCoordinator,
  grantOf,
  hangs,
  makeFakeCoordinator,
  problemOf,
  termOf,
} from "../../test/support/fakecoordinator.ts";
import { silentLogger } from "../runtime/logger.ts";
import { type Holding, makeHolder } from "./holder.ts";
import { HoldLost, type HoldView } from "./right.ts";
import type { HoldOptions } from "./wait.ts";

interface Bench {
  clock: FakeClock;
  coordinator: FakeCoordinator;
  holding: Holding;
  /** States in the order in which a listener heard of them. */
  states: string[];
  views: HoldView[];
  giveUp: AbortController;
}

/** A holder that begins to acquire when the test lets time pass. */
const begin = (
  prepare: (coordinator: FakeCoordinator, clock: FakeClock) => void = () => {},
  options: Partial<HoldOptions> = {},
): Bench => {
  const clock = makeFakeClock();
  const coordinator = makeFakeCoordinator(clock);
  prepare(coordinator, clock);
  const giveUp = new AbortController();
  const holder = makeHolder({ client: coordinator, clock, random: makeFakeRandom(), log: silentLogger });
  const holding = holder.hold({ resource: "shop/orders", ...options }, giveUp.signal);
  const states: string[] = [];
  const views: HoldView[] = [];
  holding.subscribe((view) => {
    views.push(view);
    if (states.at(-1) !== view.state) states.push(view.state);
  });
  return { clock, coordinator, holding, states, views, giveUp };
};

const state = (bench: Bench) => bench.holding.view().state;

const reasonOf = (signal: AbortSignal) =>
  signal.reason instanceof HoldLost ? signal.reason.reason : undefined;

/** Holds token 41 for 15 s from now. */
const held = async (
  prepare?: (coordinator: FakeCoordinator, clock: FakeClock) => void,
  options?: Partial<HoldOptions>,
): Promise<Bench> => {
  const bench = begin((coordinator, clock) => {
    coordinator.answers.acquire = () => grantOf(41n);
    prepare?.(coordinator, clock);
  }, options);
  await settle();
  expect(bench.holding.view()).toMatchObject({ state: "held", token: 41n });
  return bench;
};

describe("a right that is renewed", () => {
  it("is held with its token and guarantee, and stays so over many terms", async () => {
    const bench = await held();
    expect(await bench.holding.granted).toMatchObject({ kind: "granted", token: 41n, guarantee: "Advisory" });
    await bench.clock.advance(60_000);
    expect(bench.holding.view()).toMatchObject({ state: "held", token: 41n, guarantee: "Advisory" });
    expect(bench.coordinator.count("renew")).toBe(12);
    expect(bench.states).toEqual(["held"]);
    for (const call of bench.coordinator.calls.slice(1))
      expect(call).toMatchObject({ verb: "renew", token: 41n, attempt: bench.holding.attempt });
  });

  it("S1-45 counts from the moment the request was sent, not from its answer", async () => {
    const bench = begin((coordinator, clock) => {
      coordinator.answers.acquire = async () => {
        await clock.sleep(3000);
        return grantOf(41n);
      };
      coordinator.answers.renew = hangs;
    });
    await bench.clock.advance(3000);
    expect(bench.holding.view().safeForMs).toBe(10_500);
    await bench.clock.advance(10_499);
    expect(state(bench)).toBe("uncertain");
    await bench.clock.advance(1);
    expect(bench.states).toEqual(["held", "uncertain", "lost"]);
  });

  it("follows a term that becomes shorter or longer", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () => termOf(3000, 1000);
    });
    await bench.clock.advance(5000);
    // A shorter promise does not take back what was promised before.
    expect(bench.holding.view().safeForMs).toBe(8500);
    await bench.clock.advance(20_000);
    expect(bench.coordinator.count("renew")).toBe(21);
    bench.coordinator.answers.renew = () => termOf(3_600_000, 1_200_000);
    await bench.clock.advance(2_000_000);
    expect(bench.coordinator.count("renew")).toBe(23);
    expect(state(bench)).toBe("held");
  });

  it("renews in time whatever interval it is told", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.acquire = () => grantOf(41n, { renewAfterMs: 14_000 });
      coordinator.answers.renew = () => termOf(15_000, 0);
    });
    await bench.clock.advance(5000);
    expect(bench.coordinator.count("renew")).toBe(1);
    await bench.clock.advance(1000);
    expect(bench.coordinator.count("renew")).toBeLessThanOrEqual(11);
  });
});

describe("renewals that fail", () => {
  it("FM-16 lost ones before the deadline make it uncertain, then held again with the same token", async () => {
    for (const lost of [1, 2, 3]) {
      const bench = await held((coordinator) => {
        coordinator.answers.renew = () =>
          coordinator.count("renew") <= lost ? { silent: "reset" } : termOf();
      });
      await bench.clock.advance(5000);
      expect(bench.holding.view()).toMatchObject({ state: "uncertain", token: 41n, trouble: "reset" });
      await bench.clock.advance(5000);
      expect(bench.holding.view()).toMatchObject({ state: "held", token: 41n });
      expect(bench.holding.view().trouble).toBeUndefined();
      expect(bench.states).toEqual(["held", "uncertain", "held"]);
      expect(bench.holding.lost.aborted).toBe(false);
    }
  });

  it("FM-16 beyond the deadline it is lost, once and for good", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () => ({ silent: "reset" });
    });
    await bench.clock.advance(13_499);
    expect(bench.holding.lost.aborted).toBe(false);
    await bench.clock.advance(1);
    expect(reasonOf(bench.holding.lost)).toBe("deadline");
    bench.coordinator.answers.renew = () => termOf();
    const { length } = bench.coordinator.calls;
    await bench.clock.advance(60_000);
    expect(bench.states).toEqual(["held", "uncertain", "lost"]);
    expect(bench.coordinator.calls).toHaveLength(length);
    expect(bench.clock.pending()).toBe(0);
  });

  it("FM-24 black hole: lost by the deadline while a renewal hangs", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = hangs;
    });
    await bench.clock.advance(13_500);
    expect(bench.holding.view()).toMatchObject({ state: "lost", reason: "deadline", safeForMs: 0 });
    expect(bench.holding.view().token).toBeUndefined();
    // Late ones were given up for new connections, instead of waiting for the first.
    expect(bench.coordinator.count("renew")).toBe(3);
  });

  it("FM-24 a renewal that was applied and not answered is repeated, and the state stays", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () =>
        coordinator.count("renew") % 2 === 1 ? problemOf("outcome_unknown") : termOf();
    });
    await bench.clock.advance(120_000);
    expect(state(bench)).toBe("held");
    expect(new Set(bench.states)).toEqual(new Set(["held", "uncertain"]));
    expect(bench.holding.lost.aborted).toBe(false);
  });

  it("a storm of 503 and refused connections is ridden out if it ends in time", async () => {
    const bench = await held((coordinator, clock) => {
      coordinator.answers.renew = () => {
        if (clock.mono() > 13_000) return termOf();
        return coordinator.count("renew") % 2 === 1
          ? problemOf("store_unavailable", { retryAfterMs: 60_000 })
          : { silent: "connection refused" };
      };
    });
    await bench.clock.advance(13_400);
    expect(state(bench)).toBe("uncertain");
    await bench.clock.advance(99);
    expect(bench.coordinator.count("renew")).toBeGreaterThan(5);
    await bench.clock.advance(60_000);
    expect(bench.states.at(-1)).toBe(bench.holding.lost.aborted ? "lost" : "held");
  });

  it("answers that only a person can mend leave it uncertain until the deadline: a bearer may yet be renewed", async () => {
    const bench = await held((coordinator, clock) => {
      coordinator.answers.renew = () => (clock.mono() < 9000 ? problemOf("unauthenticated") : termOf());
    });
    await bench.clock.advance(8000);
    expect(bench.holding.view()).toMatchObject({ state: "uncertain", trouble: expect.any(String) });
    await bench.clock.advance(4000);
    expect(state(bench)).toBe("held");
  });

  it("retries are quick, jittered, and never a burst", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () => ({ silent: "reset" });
    });
    await bench.clock.advance(14_000);
    const at = bench.coordinator.calls.filter((call) => call.verb === "renew").map((call) => call.sentAt);
    const gaps = at.slice(1).map((time, index) => time - (at[index] ?? 0));
    expect(at[0]).toBe(5000);
    expect(gaps.length).toBeGreaterThanOrEqual(6);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(250);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(1500);
    expect(new Set(gaps).size).toBe(gaps.length);
  });
});

describe("a renewal that is refused", () => {
  it.each(["superseded", "released", "forced", "deleted"] as const)("FM-12 is lost: %s", async (reason) => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () => problemOf("lost", { reason });
    });
    await bench.clock.advance(5000);
    expect(bench.holding.view()).toMatchObject({ state: "lost", reason });
    expect(reasonOf(bench.holding.lost)).toBe(reason);
    expect(await bench.holding.release()).toEqual({ kind: "gone", reason });
    expect(bench.coordinator.count("release")).toBe(0);
  });
});

describe("a process that was stopped", () => {
  it("FM-21 knows of its loss before anything else, whatever answers lie ready", async () => {
    const answer = Promise.withResolvers<ReturnType<typeof termOf>>();
    const bench = await held((coordinator) => {
      coordinator.answers.renew = () => answer.promise;
    });
    await bench.clock.advance(6000);
    bench.clock.suspend(40_000);
    answer.resolve(termOf());
    expect(state(bench)).toBe("lost");
    await bench.clock.advance(60_000);
    expect(bench.states).toEqual(["held", "lost"]);
  });

  it("S2-06 the answer of a renewal does not bring it back, though the coordinator kept the lease alive", async () => {
    const bench = await held((coordinator, clock) => {
      coordinator.answers.renew = async () => {
        await clock.sleep(1000);
        return termOf();
      };
    });
    await bench.clock.advance(5500);
    // Timers are late, and the answer comes before that of the deadline fires.
    bench.clock.suspend(8000);
    await bench.clock.advance(1);
    expect(bench.states).toEqual(["held", "lost"]);
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.calls.at(-1)).toMatchObject({ verb: "release", token: 41n });
  });

  it("sends no renewal for a right that it lost while it stood still", async () => {
    const bench = await held();
    bench.clock.suspend(20_000);
    await bench.clock.advance(20_000);
    expect(bench.states).toEqual(["held", "lost"]);
    expect(bench.coordinator.count("renew")).toBe(0);
  });

  it("goes on where the gap was short", async () => {
    const bench = await held();
    bench.clock.suspend(9000);
    await bench.clock.advance(0);
    expect(state(bench)).toBe("held");
    expect(bench.coordinator.count("renew")).toBe(1);
  });
});

describe("giving back", () => {
  it("is one request with attempt and token, and final", async () => {
    const bench = await held();
    const first = bench.holding.release();
    expect(await first).toEqual({ kind: "released" });
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.count("release")).toBe(1);
    await bench.clock.advance(60_000);
    expect(bench.states).toEqual(["held", "released"]);
    expect(bench.coordinator.count("renew")).toBe(0);
    expect(bench.holding.lost.aborted).toBe(false);
    expect(bench.clock.pending()).toBe(0);
  });

  it("interrupts a renewal that hangs, and is bounded itself", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.renew = hangs;
      coordinator.answers.release = hangs;
    });
    await bench.clock.advance(6000);
    const end = bench.holding.release();
    await bench.clock.advance(2000);
    expect(await end).toMatchObject({ kind: "unknown" });
    expect(state(bench)).toBe("released");
  });

  it("says what the coordinator says", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.release = () => ({ value: { released: false, reason: "forced" } });
    });
    expect(await bench.holding.release()).toEqual({ kind: "gone", reason: "forced" });
  });

  it("a failing listener disturbs neither the right nor the other listeners", async () => {
    const bench = begin();
    const seen: string[] = [];
    bench.holding.subscribe(() => {
      throw new Error("from the test");
    });
    bench.holding.subscribe((view) => seen.push(view.state));
    await bench.clock.advance(30_000);
    expect(seen).toEqual(["held"]);
    expect(state(bench)).toBe("held");
  });
});

describe("a right of a process before this one", () => {
  const resumed = (
    safeForMs: number,
    prepare?: (coordinator: FakeCoordinator, clock: FakeClock) => void,
  ): Bench =>
    begin(prepare, {
      attempt: "0f8fad5b-d9cb-469f-a165-70867728950e",
      resume: { grant: grantOf(41n).value, safeForMs },
    });

  it("FM-35 is uncertain until it is renewed, at once and without an acquire", async () => {
    const bench = resumed(8000);
    expect(bench.holding.view()).toMatchObject({ state: "uncertain", token: 41n, safeForMs: 8000 });
    await bench.clock.advance(0);
    expect(bench.holding.view()).toMatchObject({ state: "held", token: 41n, safeForMs: 13_500 });
    expect(await bench.holding.granted).toMatchObject({ kind: "granted", token: 41n });
    expect(bench.coordinator.count("acquire")).toBe(0);
    expect(bench.coordinator.calls[0]).toMatchObject({ verb: "renew", attempt: bench.holding.attempt });
  });

  it("FM-35 is lost by its old deadline if nobody renews it", async () => {
    const bench = resumed(8000, (coordinator) => {
      coordinator.answers.renew = hangs;
    });
    await bench.clock.advance(7999);
    expect(state(bench)).toBe("uncertain");
    await bench.clock.advance(1);
    expect(bench.holding.view()).toMatchObject({ state: "lost", reason: "deadline" });
    expect(await bench.holding.granted).toEqual({ kind: "lost", reason: "deadline" });
  });

  it.each([0, -1, -Infinity])(
    "FM-35 with %d ms left it is lost, and given back all the same",
    async (left) => {
      const bench = resumed(left);
      expect(state(bench)).toBe("lost");
      await settle();
      expect(bench.coordinator.calls).toEqual([]);
      expect(await bench.holding.release()).toEqual({ kind: "released" });
      expect(bench.coordinator.calls).toMatchObject([{ verb: "release", token: 41n }]);
    },
  );
});

describe("a right that is let go", () => {
  it("is renewed no more, given back by nobody, and lost by its deadline", async () => {
    const bench = await held();
    await bench.clock.advance(2000);
    bench.holding.letGo();
    expect(state(bench)).toBe("uncertain");
    await bench.clock.advance(60_000);
    expect(bench.states).toEqual(["held", "uncertain", "lost"]);
    expect(bench.coordinator.calls.map((call) => call.verb)).toEqual(["acquire"]);
  });
});

describe("an end that nobody knows", () => {
  it("is asked for again", async () => {
    const bench = await held((coordinator) => {
      coordinator.answers.release = () =>
        coordinator.count("release") === 1 ? { silent: "reset" } : { value: { released: true } };
    });
    expect(await bench.holding.release()).toMatchObject({ kind: "unknown" });
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.count("release")).toBe(2);
  });
});
