/** What each call costs at the API server, with warm watches. */
import { describe, expect, it } from "vitest";
import { makeBarrier } from "../../test/support/memapi/faults.ts";
import { caller, makeWorld, type World } from "../../test/support/world.ts";

const start = async (spec: object = {}) => {
  const world = await makeWorld();
  await world.declare(spec);
  const one = await world.replica("one");
  // The first block, and what a void credit asks of the sequence, come once in a Lease's life.
  await one.acquire(caller("first"));
  await one.release(caller("first"), 1n);
  await world.settle();
  return { world, one };
};

const total = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);
const writes = (counts: Record<string, number>) =>
  total(Object.fromEntries(Object.entries(counts).filter(([what]) => !what.startsWith("get "))));

const counted = async (world: World, run: () => Promise<unknown>, client?: string) => {
  const since = world.api.seen.length;
  await run();
  return world.api.counts({ since, ...(client !== undefined && { client }) });
};

describe("requests per call", () => {
  it("an acquire, a renewal and a release are one write each, and nothing else", async () => {
    const { world, one } = await start();
    const a = caller("a");
    const oneWrite = { "update leases": 1 };
    expect(await counted(world, () => one.acquire(a))).toEqual(oneWrite);
    expect(await counted(world, () => one.renew(a, 2n))).toEqual(oneWrite);
    expect(await counted(world, () => one.release(a, 2n))).toEqual(oneWrite);
  });

  it("a refusal from what the watch shows is none", async () => {
    const { world, one } = await start();
    await one.acquire(caller("a"));
    expect(await counted(world, () => one.acquire(caller("b")))).toEqual({});
    expect(await counted(world, () => one.acquire(caller("first")))).toEqual({});
  });

  it("over 1,000 acquires: at most 1 + 1/reserve writes and 2 requests each, every token higher", async () => {
    const { world, one } = await start();
    let last = 1n;
    const most = { requests: 0 };
    const counts = await counted(world, async () => {
      for (let turn = 0; turn < 1_000; turn += 1) {
        const me = caller("worker", String(turn));
        const since = world.api.seen.length;
        const answer = await one.acquire(me);
        most.requests = Math.max(most.requests, total(world.api.counts({ since })));
        if (answer.outcome !== "granted") throw new Error(answer.code);
        expect(answer.token).toBeGreaterThan(last);
        last = answer.token;
        await one.release(me, last);
      }
    });
    const releases = 1_000;
    expect(writes(counts) - releases).toBeLessThanOrEqual(1_000 * (1 + 1 / 64) + 1);
    expect(most.requests).toBeLessThanOrEqual(2);
    expect(last).toBe(1_001n);
  });

  it("three quiet intervals of a held resource: renewals only", async () => {
    const { world, one } = await start();
    const a = caller("a");
    await one.acquire(a);
    const counts = await counted(world, async () => {
      for (let beat = 0; beat < 3; beat += 1) {
        await world.clock.advance(5_000);
        await one.renew(a, 2n);
      }
    });
    expect(counts).toEqual({ "update leases": 3 });
  });

  it("waiting costs nothing while nothing happens", async () => {
    const { world, one } = await start();
    const a = caller("a");
    await one.acquire(a);
    await one.renew(a, 2n);
    const since = world.api.seen.length;
    const waiting = one.acquire(caller("b"), { waitMs: 14_000 });
    await world.within(waiting, 15_000);
    expect(world.api.counts({ since })).toEqual({});
  });
});

describe("FM-13 contenders", () => {
  it("S1-03 of one moment over two replicas: one winner, each loser at most one request, generation +1 per round", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    let last = 1n;
    for (let round = 0; round < 50; round += 1) {
      const contenders = Array.from({ length: 10 }, (_, index) => ({
        who: caller(`c${index}`, String(round)),
        at: index % 2 === 0 ? one : two,
      }));
      await world.settle();
      const since = world.api.seen.length;
      const barrier = makeBarrier();
      world.api.fault({ verb: "update", resource: "leases" }, barrier.fault, 10);
      const all = Promise.all(contenders.map(({ who, at }) => at.acquire(who)));
      await world.settle();
      barrier.open();
      const answers = await world.within(all, 2_000);
      const granted = answers.filter(({ outcome }) => outcome === "granted");
      expect(granted).toHaveLength(1);
      const [winner] = granted;
      if (winner?.outcome !== "granted") return;
      for (const answer of answers)
        expect(answer === winner || (answer.outcome === "refused" && answer.code === "busy")).toBe(true);
      expect(winner.token).toBeGreaterThan(last);
      last = winner.token;
      // One write wins; the head of the other queue may lose one; all others know without asking.
      const used = world.api.counts({ since });
      const grantedBy = 1 + (used["update fencedsequences/status"] ?? 0);
      expect(total(used) - grantedBy).toBeLessThanOrEqual(answers.length - 1);
      expect(used["update leases"]).toBeLessThanOrEqual(2);
      const { view } = await world.lease();
      expect(view).toMatchObject({
        holder: winner.holder,
        credit: { token: winner.token },
        transitions: round + 2,
      });
      const index = answers.indexOf(winner);
      const won = contenders[index];
      await won?.at.release(won.who, winner.token);
    }
  });

  it("S1-18 that wait over two replicas all get a turn, each with a higher token, and nobody overlaps", async () => {
    const { world, one } = await start();
    const two = await world.replica("two");
    const tokens: bigint[] = [];
    let holders = 0;
    let overlaps = 0;
    const turn = async (index: number) => {
      const at = index % 2 === 0 ? one : two;
      const me = caller(`c${index}`);
      for (;;) {
        const answer = await at.acquire(me, { waitMs: 30_000 });
        if (answer.outcome !== "granted") continue;
        holders += 1;
        if (holders > 1) overlaps += 1;
        tokens.push(answer.token);
        await world.clock.sleep(100);
        holders -= 1;
        return at.release(me, answer.token);
      }
    };
    const released = await world.within(
      Promise.all(Array.from({ length: 20 }, (_, index) => turn(index))),
      60_000,
    );
    expect(released.every(({ outcome }) => outcome === "released")).toBe(true);
    expect(overlaps).toBe(0);
    expect(tokens).toHaveLength(20);
    expect(tokens).toEqual(tokens.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(new Set(tokens).size).toBe(20);
  });
});
