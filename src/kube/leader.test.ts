import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom } from "../../test/support/clock.ts";
import { type Fate, makeLeaseServer } from "../../test/support/leaseserver.ts";
import { makeLogger } from "../runtime/logger.ts";
import { makeElection } from "./leader.ts";

const ref = { namespace: "fenceline-system", name: "controller.fenceline.dev" };

const world = (durationSeconds = 15) => {
  const clock = makeFakeClock();
  const server = makeLeaseServer(clock);
  const lines: string[] = [];
  const log = makeLogger({ level: "info", sink: { write: (line) => lines.push(line) } });
  let seed = 0;

  /** A candidate that works until it is told to stop, plus `lingerMs`. */
  const candidate = (identity: string, more: { fate?: (verb: string) => Fate; lingerMs?: number } = {}) => {
    const stop = new AbortController();
    const state = { leading: false, terms: 0, over: false };
    const election = makeElection({
      client: server.client(more.fate ?? (() => "fine")),
      ref,
      identity,
      durationSeconds,
      clock,
      random: makeFakeRandom(++seed),
      log,
      lead: async (signal) => {
        state.leading = true;
        state.terms++;
        await new Promise((resolve) => {
          if (signal.aborted) resolve(undefined);
          signal.addEventListener("abort", resolve, { once: true });
        });
        state.leading = false;
        await clock.sleep(more.lingerMs ?? 0);
      },
    });
    const done = election.run(stop.signal).then(() => {
      state.over = true;
    });
    return { election, state, done, stop: () => stop.abort(new Error("SIGTERM")) };
  };
  return { clock, server, lines, candidate };
};

describe("a leader", () => {
  it("makes the Lease, so that kubectl shows who leads, and renews it without changing hands", async () => {
    const { clock, server, candidate } = world();
    const { election } = candidate("pod-a_1");
    await clock.advance(1000);
    expect(election.isLeader()).toBe(true);
    expect(server.lease()?.spec).toMatchObject({
      holderIdentity: "pod-a_1",
      leaseDurationSeconds: 15,
      leaseTransitions: 0,
      renewTime: expect.stringMatching(/\.\d{6}Z$/),
    });
    const first = server.lease()?.spec;
    await clock.advance(60_000);
    expect(server.lease()?.spec).toMatchObject({ acquireTime: first?.acquireTime, leaseTransitions: 0 });
    expect(server.requests.filter((verb) => verb === "update").length).toBeGreaterThanOrEqual(11);
    expect(server.requests.filter((verb) => verb === "update").length).toBeLessThanOrEqual(13);
  });

  it("gives the Lease back when told to stop, after its work has ended, and another leads soon", async () => {
    const { clock, server, candidate } = world();
    const first = candidate("a", { lingerMs: 20_000 });
    await clock.advance(1000);
    const second = candidate("b");
    await clock.advance(1000);
    first.stop();
    await clock.advance(19_000);
    expect(first.state.leading).toBe(false);
    expect(second.state.leading).toBe(false);
    expect(server.lease()?.spec.holderIdentity).toBe("a");
    await clock.advance(4000);
    expect(first.state.over).toBe(true);
    expect(second.state.leading).toBe(true);
    expect(server.lease()?.spec).toMatchObject({ holderIdentity: "b", leaseTransitions: 1 });
  });

  it("stops before its Lease could be taken when it cannot renew", async () => {
    const { clock, candidate, lines } = world();
    let down = false;
    const first = candidate("a", { fate: () => (down ? "down" : "fine") });
    await clock.advance(1000);
    const second = candidate("b");
    await clock.advance(1000);
    down = true;
    await clock.advance(14_000);
    expect(first.state.leading).toBe(false);
    expect(first.election.isLeader()).toBe(false);
    expect(second.state.leading).toBe(false);
    await clock.advance(8000);
    expect(second.state.leading).toBe(true);
    expect(lines.filter((line) => line.includes("hindered"))).toHaveLength(1);
  });

  it("stops at its deadline although a renewal hangs, and a late answer revives nothing", async () => {
    const { clock, candidate } = world();
    let fate: Fate = "fine";
    const first = candidate("a", { fate: () => fate });
    await clock.advance(1000);
    fate = "hangs";
    await clock.advance(14_000);
    expect(first.election.isLeader()).toBe(false);
    expect(first.state.leading).toBe(false);
  });

  it("counts its term from before the request, however late the answer", async () => {
    const { clock, candidate } = world();
    let fate: Fate = "fine";
    const first = candidate("a", { fate: () => fate });
    await clock.advance(4900);
    // Sent at 5 s, answered at 9 s: good until 18.5 s.
    fate = { lateMs: 4000, way: "back" };
    await clock.advance(200);
    fate = "down";
    await clock.advance(13_300);
    expect(first.election.isLeader()).toBe(true);
    await clock.advance(200);
    expect(first.election.isLeader()).toBe(false);
  });

  it("that lost does not lead again before its work has ended, whatever a late answer says", async () => {
    const { clock, candidate } = world();
    let fate: Fate = "fine";
    const first = candidate("a", { fate: () => fate, lingerMs: 20_000 });
    await clock.advance(1000);
    fate = "down";
    await clock.advance(11_000);
    fate = { lateMs: 3500, way: "back" };
    await clock.advance(1000);
    await clock.advance(600);
    expect(first.state).toMatchObject({ leading: false, terms: 1 });
    fate = "fine";
    for (let second = 0; second < 15; second++) {
      await clock.advance(1000);
      expect(first.election.isLeader()).toBe(false);
    }
    expect(first.state).toMatchObject({ leading: false, terms: 1 });
    await clock.advance(10_000);
    expect(first.state).toMatchObject({ leading: true, terms: 2 });
  });

  it("does not begin where the answer came after its own term", async () => {
    const { clock, candidate } = world();
    let slept = false;
    const first = candidate("a", {
      fate: (verb) => {
        if (verb === "create" && !slept) clock.suspend(60_000);
        slept ||= verb === "create";
        return "fine";
      },
    });
    await clock.advance(0);
    expect(first.state.terms).toBe(0);
    await clock.advance(3000);
    expect(first.state).toMatchObject({ leading: true, terms: 1 });
  });

  it("knows at once that it slept through its term", async () => {
    const { clock, candidate } = world();
    const first = candidate("a");
    await clock.advance(1000);
    expect(first.election.isLeader()).toBe(true);
    clock.suspend(60_000);
    expect(first.election.isLeader()).toBe(false);
    await clock.advance(0);
    expect(first.state.terms).toBe(1);
    expect(first.state.leading).toBe(false);
  });

  it.each([
    [
      "another took it",
      (server: ReturnType<typeof makeLeaseServer>) =>
        server.edit((lease) => ({ ...lease, spec: { ...lease.spec, holderIdentity: "thief" } })),
    ],
    [
      "somebody cleared it",
      (server: ReturnType<typeof makeLeaseServer>) =>
        server.edit((lease) => ({ ...lease, spec: { ...lease.spec, holderIdentity: "" } })),
    ],
    ["somebody deleted it", (server: ReturnType<typeof makeLeaseServer>) => server.remove()],
  ])("stops when %s", async (_name, meddle) => {
    const { clock, server, candidate } = world();
    const first = candidate("a");
    await clock.advance(1000);
    let lost = false;
    meddle(server);
    for (let ms = 0; ms < 6000 && !lost; ms += 100) {
      await clock.advance(100);
      lost = !first.state.leading;
    }
    expect(lost).toBe(true);
  });

  it("goes on when somebody else's tool only annotated the Lease", async () => {
    const { clock, server, candidate } = world();
    const first = candidate("a");
    await clock.advance(1000);
    server.edit((lease) => ({
      ...lease,
      metadata: { ...lease.metadata, annotations: { note: "hello" } },
    }));
    await clock.advance(30_000);
    expect(first.state).toMatchObject({ leading: true, terms: 1 });
    expect(server.lease()?.metadata.annotations).toEqual({ note: "hello" });
  });

  it("whose renewal was applied without an answer goes on", async () => {
    const { clock, candidate } = world();
    let once: Fate = "fine";
    const first = candidate("a", {
      fate: (verb) => {
        const met = verb === "update" ? once : "fine";
        if (verb === "update") once = "fine";
        return met;
      },
    });
    await clock.advance(1000);
    once = "lost";
    await clock.advance(30_000);
    expect(first.state).toMatchObject({ leading: true, terms: 1 });
  });

  it("gives back when its work ends by itself or fails, and competes again", async () => {
    const { clock, server, lines } = world();
    const stop = new AbortController();
    let terms = 0;
    const election = makeElection({
      client: server.client(() => "fine"),
      ref,
      identity: "a",
      clock,
      random: makeFakeRandom(),
      log: makeLogger({ level: "info", sink: { write: (line) => lines.push(line) } }),
      lead: async () => {
        terms++;
        throw new Error("work broke");
      },
    });
    const done = election.run(stop.signal);
    await clock.advance(0);
    expect(server.lease()?.spec.holderIdentity).toBe("");
    await clock.advance(5000);
    stop.abort();
    await clock.advance(5000);
    await done;
    expect(terms).toBeGreaterThan(1);
    expect(server.lease()?.spec.holderIdentity).toBe("");
    expect(lines.join("")).toContain("work broke");
    expect(clock.pending()).toBe(0);
  });
});

describe("a standby", () => {
  it("writes nothing when told to stop", async () => {
    const { clock, server, candidate } = world();
    candidate("a");
    await clock.advance(1000);
    const second = candidate("b");
    await clock.advance(10_000);
    const before = server.lease()?.metadata.resourceVersion;
    second.stop();
    await clock.advance(0);
    expect(second.state).toMatchObject({ over: true, terms: 0 });
    expect(server.lease()?.metadata.resourceVersion).toBe(before);
  });

  it("writes nothing when told to stop while it reads", async () => {
    const { clock, server, candidate } = world();
    const only = candidate("a", { fate: () => ({ lateMs: 1000, way: "back" }) });
    await clock.advance(500);
    only.stop();
    await clock.advance(5000);
    expect(only.state).toMatchObject({ over: true, terms: 0 });
    expect(server.requests).toEqual(["get"]);
  });

  it("whose claim was applied without an answer gives it back when told to stop", async () => {
    const { clock, server, candidate } = world();
    const only = candidate("a", { fate: (verb) => (verb === "create" ? "lost" : "fine") });
    await clock.advance(0);
    expect(server.lease()?.spec.holderIdentity).toBe("a");
    only.stop();
    await clock.advance(0);
    expect(only.state).toMatchObject({ over: true, terms: 0 });
    expect(server.lease()?.spec.holderIdentity).toBe("");
  });

  it("takes over from a leader that died, not before its term has passed unchanged", async () => {
    const { clock, server, candidate } = world();
    server.client(() => "fine");
    const dead = candidate("dead", { fate: (verb) => (verb === "update" ? "down" : "fine") });
    await clock.advance(3000);
    const second = candidate("b");
    await clock.advance(14_900);
    expect(second.state.leading).toBe(false);
    expect(dead.state.leading).toBe(false);
    dead.stop();
    await clock.advance(2200);
    expect(second.state.leading).toBe(true);
  });

  it("waits for the term of a leader whose Lease was deleted under it", async () => {
    const { clock, server, candidate } = world();
    candidate("a", { fate: (verb) => (server.requests.length > 3 && verb !== "get" ? "hangs" : "fine") });
    await clock.advance(500);
    const second = candidate("b");
    await clock.advance(2000);
    server.remove();
    await clock.advance(9000);
    expect(second.state.leading).toBe(false);
    await clock.advance(8000);
    expect(second.state.leading).toBe(true);
  });
});

describe("whatever becomes of requests", () => {
  const fate = fc.oneof(
    { weight: 6, arbitrary: fc.constant<Fate>("fine") },
    { weight: 1, arbitrary: fc.constantFrom<Fate>("lost", "refused", "down", "hangs") },
    {
      weight: 2,
      arbitrary: fc.record({
        lateMs: fc.integer({ min: 1, max: 12_000 }),
        way: fc.constantFrom("there" as const, "back" as const),
      }),
    },
  );
  const step = fc.record({
    ms: fc.integer({ min: 10, max: 4000 }),
    stop: fc.option(fc.integer({ min: 0, max: 2 }), { freq: 12, nil: undefined }),
  });

  it("no two lead at a time, all end when told to, and one leads when all is well", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 5, maxLength: 40 }),
        fc.infiniteStream(fate),
        async (steps, fates) => {
          const { clock, server, candidate } = world(6);
          let calm = false;
          const deal = (): Fate => (calm ? "fine" : (fates.next().value ?? "fine"));
          const all = ["a", "b", "c"].map((name) => candidate(name, { fate: deal }));
          for (const { ms, stop } of steps) {
            for (let passed = 0; passed < ms; passed += 100) {
              await clock.advance(100);
              expect(all.filter(({ election }) => election.isLeader()).length).toBeLessThanOrEqual(1);
              expect(all.filter(({ state }) => state.leading).length).toBeLessThanOrEqual(1);
            }
            if (stop !== undefined) all[stop]?.stop();
          }
          calm = true;
          const last = candidate("last", { fate: deal });
          for (const { stop } of all) stop();
          await clock.advance(30_000);
          expect(all.map(({ state }) => state.over)).toEqual([true, true, true]);
          expect(last.state.leading).toBe(true);
          last.stop();
          await clock.advance(5000);
          expect(server.lease()?.spec.holderIdentity).toBe("");
          expect(clock.pending()).toBe(0);
        },
      ),
      { numRuns: 40 },
    );
  }, 60_000);
});
