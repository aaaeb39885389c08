import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import { makeLogger, silentLogger } from "../runtime/logger.ts";
import { backoffMs, makeQueue, type Reconcile, TerminalError } from "./queue.ts";

const world = (reconcile: Reconcile, concurrency = 1) => {
  const clock = makeFakeClock();
  const lines: string[] = [];
  const seconds: number[] = [];
  const queue = makeQueue({
    name: "test",
    reconcile,
    concurrency,
    clock,
    random: makeFakeRandom(),
    log: makeLogger({ level: "debug", sink: { write: (line) => lines.push(line) } }),
    duration: { observe: (value) => seconds.push(value) },
    backoff: { baseMs: 100, ceilingMs: 1000 },
  });
  return { clock, queue, lines, seconds };
};

/** A reconcile whose runs end when the test says so. */
const gated = () => {
  const started: string[] = [];
  const ends: ((error?: Error) => void)[] = [];
  const reconcile: Reconcile = (key) =>
    new Promise((resolve, reject) => {
      started.push(key);
      ends.push((error) => (error ? reject(error) : resolve({})));
    });
  const end = async (error?: Error) => {
    ends.shift()?.(error);
    await settle();
  };
  return { started, reconcile, end };
};

describe("the work queue", () => {
  it("runs a key once for a burst of adds, and once more for those that came while it ran", async () => {
    const { started, reconcile, end } = gated();
    const { queue } = world(reconcile);
    for (let i = 0; i < 5; i++) queue.add("a");
    await settle();
    expect(started).toEqual(["a"]);
    for (let i = 0; i < 5; i++) queue.add("a");
    await end();
    expect(started).toEqual(["a", "a"]);
    await end();
    expect(started).toHaveLength(2);
    expect(queue.size()).toBe(0);
  });

  it("keeps its order and its bound", async () => {
    const { started, reconcile, end } = gated();
    const { queue } = world(reconcile, 2);
    for (const key of ["a", "b", "c", "d"]) queue.add(key);
    await settle();
    expect(started).toEqual(["a", "b"]);
    await end();
    expect(started).toEqual(["a", "b", "c"]);
    await end();
    await end();
    expect(started).toEqual(["a", "b", "c", "d"]);
  });

  it("repeats what fails, later each time up to a ceiling, and forgets the failures of what succeeds", async () => {
    const { started, reconcile, end } = gated();
    const { queue, clock, lines } = world(reconcile);
    queue.add("a");
    await settle();
    let longest = 0;
    for (let failure = 1; failure <= 8; failure++) {
      await end(new Error("not now"));
      const before = clock.mono();
      while (started.length === failure) await clock.advance(10);
      const waited = clock.mono() - before;
      expect(waited).toBeGreaterThanOrEqual(Math.min(1000, 100 * 2 ** (failure - 1)) / 2);
      expect(waited).toBeLessThanOrEqual(Math.min(1000, 100 * 2 ** (failure - 1)) + 10);
      longest = Math.max(longest, waited);
    }
    expect(longest).toBeGreaterThan(400);
    await end();
    expect(queue.size()).toBe(0);
    expect(lines).toHaveLength(8);
    expect(lines[7]).toContain('"failures":8');
    queue.add("a");
    await settle();
    await end(new Error("not now"));
    expect(lines[8]).toContain('"failures":1');
  });

  it("runs a failing key at once when it is added: there is news", async () => {
    const { started, reconcile, end } = gated();
    const { queue } = world(reconcile);
    queue.add("a");
    await settle();
    await end(new Error("not now"));
    queue.add("a");
    await settle();
    expect(started).toEqual(["a", "a"]);
  });

  it("does not repeat what failed for good, until it changes", async () => {
    const { started, reconcile, end } = gated();
    const { queue, clock, lines } = world(reconcile);
    queue.add("a");
    await settle();
    await end(new TerminalError("the spec is wrong"));
    expect(queue.size()).toBe(0);
    await clock.advance(3_600_000);
    expect(started).toEqual(["a"]);
    expect(lines.join("")).toContain("reconcile failed for good");
    queue.add("a");
    await settle();
    expect(started).toEqual(["a", "a"]);
  });

  it("runs again after the time that a run asked for, and tells how long runs took", async () => {
    let runs = 0;
    const { queue, clock, seconds } = world(async () => {
      runs++;
      await clock.sleep(500);
      return { requeueAfterMs: runs < 3 ? 1000 : undefined };
    });
    queue.add("a");
    await clock.advance(10_000);
    expect(runs).toBe(3);
    expect(seconds).toEqual([0.5, 0.5, 0.5]);
    expect(queue.size()).toBe(0);
    expect(clock.pending()).toBe(0);
  });

  it("takes the earliest of several delays", async () => {
    const at: number[] = [];
    const { queue, clock } = world(async () => {
      at.push(clock.mono());
      return {};
    });
    queue.addAfter("a", 500);
    queue.addAfter("a", 200);
    queue.addAfter("a", 900);
    await clock.advance(1000);
    expect(at).toEqual([200]);
  });

  it("forgets a key: nothing planned, no failures, and no repetition of the run under way", async () => {
    const { started, reconcile, end } = gated();
    const { queue, clock } = world(reconcile);
    queue.addAfter("later", 100);
    queue.forget("later");
    queue.add("a");
    await settle();
    queue.add("a");
    queue.forget("a");
    await end(new Error("not now"));
    await clock.advance(10_000);
    expect(started).toEqual(["a"]);
    expect(queue.size()).toBe(0);
    queue.add("a");
    await settle();
    expect(started).toEqual(["a", "a"]);
  });

  it("drains: drops what has not begun, waits for what has, aborts it with the signal", async () => {
    let aborted = false;
    const seen: string[] = [];
    const { queue, clock } = world(async (key, signal) => {
      seen.push(key);
      await clock.sleep(60_000, signal).catch((error: unknown) => {
        aborted = true;
        throw error;
      });
      return {};
    });
    queue.add("a");
    queue.add("b");
    queue.addAfter("c", 10);
    await settle();
    const bound = new AbortController();
    let drained = false;
    const draining = queue.drain(bound.signal).then(() => (drained = true));
    queue.add("d");
    await clock.advance(1000);
    expect(drained).toBe(false);
    bound.abort(new Error("time is up"));
    await draining;
    expect(aborted).toBe(true);
    expect(seen).toEqual(["a"]);
    expect(queue.size()).toBe(0);
    expect(clock.pending()).toBe(0);
  });
});

describe("back-off", () => {
  it("stays between half and whole of a doubling delay with a ceiling", () => {
    const limits = { baseMs: 250, ceilingMs: 60_000 };
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5000 }), fc.integer(), (failures, seed) => {
        const whole = Math.min(limits.ceilingMs, limits.baseMs * 2 ** (failures - 1));
        const ms = backoffMs(failures, limits, makeFakeRandom(seed));
        expect(ms).toBeGreaterThanOrEqual(whole / 2);
        expect(ms).toBeLessThanOrEqual(whole);
      }),
    );
  });
});

describe("whatever is added, whatever runs do", () => {
  const key = fc.constantFrom("a", "b", "c", "d");
  const ms = fc.integer({ min: 0, max: 3000 });
  const command = fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("add" as const), key }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("addAfter" as const), key, ms }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("forget" as const), key }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("advance" as const), ms }) },
  );
  const run = fc.record({
    ms: fc.integer({ min: 0, max: 800 }),
    end: fc.constantFrom("done", "done", "failed", "terminal", "requeue"),
  });

  it("a key never runs twice at a time, the bound holds, no add is lost, and nothing is kept in the end", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(command, { maxLength: 40 }),
        fc.infiniteStream(run),
        fc.integer({ min: 1, max: 3 }),
        async (commands, plans, concurrency) => {
          const clock = makeFakeClock();
          const running = new Set<string>();
          /** Keys that were added and have not begun a run since. */
          const owed = new Set<string>();
          const wrong: string[] = [];
          let calm = false;
          const queue = makeQueue({
            name: "property",
            concurrency,
            clock,
            random: makeFakeRandom(),
            log: silentLogger,
            reconcile: async (key) => {
              if (running.has(key)) wrong.push(`${key} ran twice at a time`);
              running.add(key);
              if (running.size > concurrency) wrong.push(`${running.size} ran at a time`);
              owed.delete(key);
              const plan = plans.next().value;
              await clock.sleep(plan?.ms ?? 0);
              running.delete(key);
              if (calm) return {};
              if (plan?.end === "failed") throw new Error("not now");
              if (plan?.end === "terminal") throw new TerminalError("never");
              return plan?.end === "requeue" ? { requeueAfterMs: 700 } : {};
            },
          });
          for (const step of commands) {
            switch (step.kind) {
              case "add":
                owed.add(step.key);
                queue.add(step.key);
                break;
              case "addAfter":
                owed.add(step.key);
                queue.addAfter(step.key, step.ms);
                break;
              case "forget":
                owed.delete(step.key);
                queue.forget(step.key);
                break;
              case "advance":
                await clock.advance(step.ms);
                break;
              default:
                throw new Error("no such step");
            }
          }
          calm = true;
          await clock.advance(300_000);
          expect(wrong).toEqual([]);
          expect([...owed]).toEqual([]);
          expect(queue.size()).toBe(0);
          expect(clock.pending()).toBe(0);
        },
      ),
      { numRuns: 150 },
    );
  });
});
