import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FakeClock, makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import {
  type FakeCoordinator,
  grantOf,
  hangs,
  makeFakeCoordinator,
  problemOf,
  type Said,
  termOf,
} from "../../test/support/fakecoordinator.ts";
import { silentLogger } from "../runtime/logger.ts";
import { makeHolder } from "./holder.ts";
import type { HoldOptions, WaitEnd } from "./wait.ts";
import type { Grant, Problem } from "./wire.ts";

const begin = (
  acquire: (coordinator: FakeCoordinator, clock: FakeClock) => Promise<Said<Grant>> | Said<Grant>,
  options: Partial<HoldOptions> = {},
) => {
  const clock = makeFakeClock();
  const coordinator = makeFakeCoordinator(clock);
  coordinator.answers.acquire = () => acquire(coordinator, clock);
  const giveUp = new AbortController();
  const holder = makeHolder({ client: coordinator, clock, random: makeFakeRandom(), log: silentLogger });
  const holding = holder.hold({ resource: "shop/orders", ...options }, giveUp.signal);
  const seen: { end?: WaitEnd } = {};
  void holding.granted.then((end) => {
    seen.end = end;
  });
  const states: string[] = [];
  holding.subscribe((view) => {
    if (states.at(-1) !== view.state) states.push(view.state);
  });
  return { clock, coordinator, holding, states, giveUp, seen };
};

const busy = () => problemOf("busy", { holder: "user:abc/other", ahead: 2, retryAfterMs: 1000 });

/** Waits as long as it is asked to, as the coordinator does. */
const busyAfterWait = async (coordinator: FakeCoordinator, clock: FakeClock) => {
  await clock.sleep(coordinator.calls.at(-1)?.waitMs ?? 0);
  return busy();
};

describe("waiting for another holder", () => {
  it("asks once without waiting, then in long polls with the same attempt, until granted", async () => {
    const bench = begin((coordinator, clock) =>
      clock.mono() < 100_000 ? busyAfterWait(coordinator, clock) : grantOf(42n),
    );
    await bench.clock.advance(0);
    expect(bench.holding.view()).toMatchObject({ state: "waiting", waitingFor: "user:abc/other", ahead: 2 });
    await bench.clock.advance(130_000);
    expect(bench.seen.end).toMatchObject({ kind: "granted", token: 42n });
    const { calls } = bench.coordinator;
    expect(calls[0]?.waitMs).toBe(0);
    expect(calls.slice(1, 6).map((call) => call.waitMs)).toEqual(Array.from({ length: 5 }, () => 30_000));
    expect(new Set(calls.map((call) => call.attempt)).size).toBe(1);
    expect(bench.states).toEqual(["waiting", "held"]);
    expect(bench.holding.view().waitingFor).toBeUndefined();
  });

  it("gives up after the wait, and says who holds it", async () => {
    const bench = begin(busyAfterWait, { waitMs: 45_000 });
    await bench.clock.advance(44_999);
    expect(bench.seen.end).toBeUndefined();
    await bench.clock.advance(1);
    expect(bench.seen.end).toMatchObject({ kind: "busy", holder: "user:abc/other" });
    expect(bench.coordinator.calls.map((call) => call.waitMs)).toEqual([0, 30_000, 15_000]);
    expect(bench.holding.view().state).toBe("released");
    expect(await bench.holding.release()).toEqual({ kind: "never_held" });
    expect(bench.clock.pending()).toBe(0);
  });

  it("does not wait at all where it may not", async () => {
    const bench = begin(busy, { waitMs: 0 });
    await settle();
    expect(bench.seen.end).toMatchObject({ kind: "busy" });
    expect(bench.coordinator.count("acquire")).toBe(1);
  });

  it("is not drawn into a busy loop by a coordinator that never waits", async () => {
    const bench = begin(busy);
    await bench.clock.advance(60_000);
    expect(bench.coordinator.count("acquire")).toBeLessThan(62);
  });

  it("is ended by its signal, also while a request hangs", async () => {
    const bench = begin(hangs);
    await bench.clock.advance(1000);
    bench.giveUp.abort();
    await settle();
    expect(bench.seen.end).toEqual({ kind: "given_up" });
    expect(bench.clock.pending()).toBe(0);
  });

  it("does not run on a grant that met the signal, and gives it back", async () => {
    const bench = begin(() => grantOf(7n));
    bench.holding.subscribe(() => bench.giveUp.abort());
    await settle();
    expect(bench.seen.end).toEqual({ kind: "given_up" });
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.calls.at(-1)).toMatchObject({ verb: "release", token: 7n });
  });
});

describe("answers that pass by themselves", () => {
  it.each(["boundary_closed", "outcome_unknown", "store_unavailable", "not_ready"] as const)(
    "%s: the same attempt again, also for one that does not wait",
    async (code) => {
      const bench = begin(
        (coordinator) =>
          coordinator.count("acquire") < 4 ? problemOf(code, { retryAfterMs: 0 }) : grantOf(5n),
        { waitMs: 0 },
      );
      await bench.clock.advance(10_000);
      expect(bench.seen.end).toMatchObject({ kind: "granted", token: 5n });
      expect(new Set(bench.coordinator.calls.map((call) => call.attempt)).size).toBe(1);
    },
  );

  it.each<[Problem["code"], WaitEnd["kind"]]>([
    ["boundary_closed", "refused"],
    ["not_ready", "refused"],
    ["outcome_unknown", "unreachable"],
    ["store_unavailable", "unreachable"],
    ["overloaded", "busy"],
  ])("%s ends the wait as %s when it does not pass, in few requests", async (code, kind) => {
    const bench = begin(() => problemOf(code), { waitMs: 5000 });
    await bench.clock.advance(20_000);
    expect(bench.seen.end).toMatchObject({ kind });
    expect(bench.coordinator.count("acquire")).toBeLessThan(12);
  });

  it("a lost answer is asked for again, and the grant is the same one", async () => {
    const bench = begin((coordinator) =>
      coordinator.count("acquire") === 1 ? { silent: "reset" } : grantOf(9n),
    );
    await bench.clock.advance(1000);
    expect(bench.seen.end).toMatchObject({ kind: "granted", token: 9n });
    expect(new Set(bench.coordinator.calls.map((call) => call.attempt)).size).toBe(1);
  });

  it("is patient with a coordinator that answered once, and asks ever more seldom", async () => {
    const bench = begin(
      (coordinator) => (coordinator.count("acquire") === 1 ? busy() : { silent: "refused" }),
      {
        contactMs: 10_000,
      },
    );
    await bench.clock.advance(600_000);
    expect(bench.seen.end).toBeUndefined();
    expect(bench.holding.view()).toMatchObject({ state: "waiting", trouble: "refused" });
    expect(bench.coordinator.count("acquire")).toBeLessThan(130);
  });
});

describe("answers that end the wait", () => {
  it.each([
    "forbidden",
    "unauthenticated",
    "unknown_resource",
    "invalid_request",
    "tokens_exhausted",
    "issuer_mismatch",
    "a_code_of_the_future",
  ])("%s, at once and with its words", async (code) => {
    const bench = begin(() => problemOf(code));
    await settle();
    expect(bench.seen.end).toEqual({ kind: "refused", code, detail: `${code}, says the test` });
    expect(bench.holding.view().state).toBe("released");
    expect(bench.clock.pending()).toBe(0);
  });

  it("an attempt that ended before", async () => {
    const bench = begin(() => problemOf("lost", { reason: "forced" }));
    await settle();
    expect(bench.seen.end).toEqual({ kind: "lost", reason: "forced" });
    expect(bench.holding.view()).toMatchObject({ state: "lost", reason: "forced" });
    expect(bench.holding.lost.aborted).toBe(true);
  });

  it("nobody there, after the time for a first contact", async () => {
    const bench = begin(() => ({ silent: "connection refused" }), { contactMs: 10_000 });
    await bench.clock.advance(9000);
    expect(bench.seen.end).toBeUndefined();
    await bench.clock.advance(10_000);
    expect(bench.seen.end).toEqual({ kind: "unreachable", detail: "connection refused" });
  });

  it("the wrong server, at once", async () => {
    const bench = begin(() => ({ silent: "certificate not trusted", lasting: true }));
    await settle();
    expect(bench.seen.end).toEqual({ kind: "unreachable", detail: "certificate not trusted" });
  });
});

/** Granted token 42, when its term is long over. */
const beginLate = (renew: FakeCoordinator["answers"]["renew"], options: Partial<HoldOptions> = {}) => {
  const bench = begin(async (coordinator, clock) => {
    if (coordinator.count("acquire") === 1) return busy();
    await clock.sleep(20_000);
    return grantOf(42n);
  }, options);
  bench.coordinator.answers.renew = renew;
  return bench;
};

describe("a grant that came late", () => {
  it("makes nothing held nor lost: it renews at once, and that makes it held", async () => {
    const answer = Promise.withResolvers<ReturnType<typeof termOf>>();
    const bench = beginLate(() => answer.promise);
    await bench.clock.advance(20_000);
    expect(bench.coordinator.count("renew")).toBe(1);
    expect(bench.holding.view().state).toBe("waiting");
    expect(bench.seen.end).toBeUndefined();
    answer.resolve(termOf());
    await settle();
    expect(bench.seen.end).toMatchObject({ kind: "granted", token: 42n });
    expect(bench.states).toEqual(["waiting", "held"]);
  });

  it("is lost where the renewal says so", async () => {
    const bench = beginLate(() => problemOf("lost", { reason: "superseded" }));
    await bench.clock.advance(20_000);
    expect(bench.seen.end).toEqual({ kind: "lost", reason: "superseded" });
    expect(bench.states).toEqual(["waiting", "lost"]);
  });

  it("is given up by one whose patience is over, and given back", async () => {
    const bench = beginLate(() => ({ silent: "reset" }), { waitMs: 25_000 });
    await bench.clock.advance(24_000);
    expect(bench.seen.end).toBeUndefined();
    await bench.clock.advance(8000);
    expect(bench.seen.end).toEqual({ kind: "unreachable", detail: "reset" });
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.calls.at(-1)).toMatchObject({ verb: "release", token: 42n });
  });

  it("is asked for again until answered, and given back by one who gave up", async () => {
    const bench = beginLate(() => ({ silent: "reset" }));
    await bench.clock.advance(30_000);
    expect(bench.coordinator.count("renew")).toBeGreaterThan(3);
    bench.giveUp.abort();
    await settle();
    expect(bench.seen.end).toEqual({ kind: "given_up" });
    expect(await bench.holding.release()).toEqual({ kind: "released" });
    expect(bench.coordinator.calls.at(-1)).toMatchObject({ verb: "release", token: 42n });
  });
});

describe("whatever is answered, and whenever", () => {
  type Step = { delay: number; say: "ok" | "lost" | "silent" | "unknown"; term: number };
  const step = fc.record({
    delay: fc.oneof(fc.integer({ min: 0, max: 500 }), fc.integer({ min: 0, max: 20_000 })),
    say: fc.constantFrom("ok", "ok", "ok", "ok", "lost", "silent", "unknown"),
    term: fc.integer({ min: 1000, max: 20_000 }),
  }) satisfies fc.Arbitrary<Step>;
  const passing = fc.record({
    ms: fc.oneof(fc.integer({ min: 0, max: 400 }), fc.integer({ min: 0, max: 15_000 })),
    suspended: fc.boolean(),
  });

  it("S1-45 S2-06 never held past what was answered, never held again after a loss, never two tokens", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 1, maxLength: 30 }),
        fc.array(passing, { minLength: 1, maxLength: 30 }),
        async (steps, times) => {
          const clock = makeFakeClock();
          const coordinator = makeFakeCoordinator(clock);
          /** The end of the best promise that was answered, by the time its request left. */
          let promised = 0;
          let next = 0;
          const answer = async <T>(value: T, termMs: (value: T) => number): Promise<Said<T>> => {
            const sentAt = clock.mono();
            const { delay, say } = steps[next++ % steps.length] as Step;
            await clock.sleep(delay);
            if (say === "lost") return problemOf("lost", { reason: "superseded" });
            if (say === "silent") return { silent: "reset" };
            if (say === "unknown") return problemOf("outcome_unknown");
            promised = Math.max(promised, sentAt + termMs(value));
            return { value };
          };
          const term = () => {
            const { term } = steps[next % steps.length] as Step;
            return { leaseDurationMs: term, renewAfterMs: Math.floor(term / 3) };
          };
          coordinator.answers.acquire = () =>
            answer({ ...grantOf(3n).value, ...term() }, (grant) => grant.leaseDurationMs);
          coordinator.answers.renew = () => answer(term(), (value) => value.leaseDurationMs);
          const holder = makeHolder({
            client: coordinator,
            clock,
            random: makeFakeRandom(),
            log: silentLogger,
          });
          const holding = holder.hold({ resource: "shop/orders" });
          let lost = false;
          const judge = (): void => {
            const view = holding.view();
            const believes = view.state === "held" || view.state === "uncertain";
            const safe = believes ? promised - clock.mono() : 0;
            expect(believes && (safe <= 0 || lost)).toBe(false);
            expect(view.safeForMs).toBeLessThanOrEqual(safe);
            expect(view.token).toBe(believes ? 3n : undefined);
            lost ||= view.state === "lost";
            expect(holding.lost.aborted).toBe(lost);
          };
          holding.subscribe((view) => {
            expect(lost && view.state !== "lost").toBe(false);
            lost ||= view.state === "lost";
          });
          for (const { ms, suspended } of times) {
            if (suspended) clock.suspend(ms);
            else await clock.advance(ms);
            judge();
          }
          const released = holding.release();
          await clock.advance(3000);
          await released;
          judge();
          expect(holding.view().state).toBe(lost ? "lost" : "released");
        },
      ),
      { numRuns: 300 },
    );
  });
});
