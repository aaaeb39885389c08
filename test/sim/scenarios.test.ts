/** Scenarios by name, each to its exact outcome, on the shipped code and in controlled time. */
import { describe, expect, test } from "vitest";
import type { HolderId } from "../../src/core/lease.ts";
import { isLong } from "./long.ts";
import { noTrouble } from "./network.ts";
import { makeScene, orders, type Scene } from "./scene.ts";

const duration = 15_000;
const cut = { cutThere: true, cutBack: true };

/** A holds, B waits for it. */
const rivals = async (scene: Scene) => {
  const a = scene.holder("a");
  const first = await a.token();
  const b = scene.holder("b");
  await scene.pass(1_000);
  expect(b.state()).toBe("waiting");
  return { a, first, b };
};

/** The moment of the last version of the Lease that names A. */
const lastSeen = ({ recorder }: Scene, holder: HolderId): number =>
  recorder.history.findLast((event) => event.kind === "commit" && event.lease?.holder === holder)?.kind ===
  "commit"
    ? Math.max(
        ...recorder.history.flatMap((event) =>
          event.kind === "commit" && event.lease?.holder === holder ? [event.at] : [],
        ),
      )
    : Number.NaN;

describe("a holder that is gone and comes back", () => {
  test.for([
    ["FM-01 S1-01 S1-64 a paused owner wakes", 20_000],
    ["FM-01 S1-10 S2-13 a pause of a hundred times the lease", 100 * duration],
  ] as const)("%s", async ([, pauseMs]) => {
    const scene = await makeScene();
    const { a, first, b } = await rivals(scene);
    const seen = () => lastSeen(scene, a.me);
    a.actor.pause();
    const second = await b.token();
    expect(second).toBe(first + 1n);
    expect(scene.time.now() - seen()).toBeLessThanOrEqual(duration + 1_000);
    expect(await scene.settled(b.write(b.me, second))).toBe("accepted");
    await scene.pass(pauseMs);
    a.actor.resume();
    expect(await scene.settled(a.write(a.me, first))).toBe("stale_fencing_token");
    expect(a.holding.view()).toMatchObject({ state: "lost", reason: "deadline" });
    expect(a.states).toEqual(["held", "lost"]);
    expect(scene.accepted()).toEqual([second]);
    expect(scene.boundary().mark()).toBe(second);
    expect(b.state()).toBe("held");
    expect(scene.violations()).toEqual([]);
  });

  test("FM-08 S1-08 cut from the coordinator, not from the resource", async () => {
    const scene = await makeScene();
    const { a, first, b } = await rivals(scene);
    const mend = a.way.add(cut);
    await scene.until(() => a.state() === "uncertain");
    expect(await scene.settled(a.write(a.me, first))).toBe("accepted");
    await scene.until(() => a.state() === "lost");
    expect((await scene.lease()).holder).toBe(a.me);
    const second = await b.token();
    expect(await scene.settled(a.write(a.me, first))).toBe("stale_fencing_token");
    expect(await scene.settled(b.write(b.me, second))).toBe("accepted");
    mend();
    expect(
      await scene.settled(a.client.renew(orders, { attempt: a.attempt, token: first as never }, 5_000)),
    ).toMatchObject({ kind: "refused", problem: { code: "lost", reason: "superseded" } });
    expect(scene.accepted()).toEqual([first, second]);
    expect(scene.violations()).toEqual([]);
  });

  test("FM-16 S2-44 S2-46 lost beats before the deadline cost nothing; beyond it the right is lost for good", async () => {
    for (const cutMs of [4_500, 8_000]) {
      const scene = await makeScene();
      const a = scene.holder("a");
      const token = await a.token();
      // The first renewal makes the term a whole one.
      await scene.pass(6_000);
      const mend = a.way.add(cut);
      await scene.pass(cutMs);
      mend();
      await scene.pass(3_000);
      expect(a.states).toEqual(["held", "uncertain", "held"]);
      expect(a.holding.view()).toMatchObject({ state: "held", token });
      expect((await scene.lease()).credit?.token).toBe(token);
    }
    const scene = await makeScene();
    const a = scene.holder("a");
    await a.token();
    await scene.pass(6_000);
    const mend = a.way.add(cut);
    await scene.pass(15_000);
    mend();
    await scene.pass(30_000);
    expect(a.states).toEqual(["held", "uncertain", "lost"]);
  });

  test("FM-24 a black hole is noticed by the deadline, a lost answer costs nothing", async () => {
    const scene = await makeScene();
    const a = scene.holder("a");
    const token = await a.token();
    await scene.pass(6_000);
    const trouble = scene.slot(0).apiWay.add({ losesAnswers: 1 });
    const other = scene.slot(1).apiWay.add({ losesAnswers: 1 });
    await scene.pass(4_000);
    trouble();
    other();
    await scene.pass(6_000);
    expect(a.holding.view()).toMatchObject({ state: "held", token });
    const mend = a.way.add(cut);
    const took = await scene.until(() => a.state() === "lost", 300_000);
    expect(took).toBeLessThanOrEqual(duration);
    await scene.pass(300_000);
    mend();
    await scene.pass(10_000);
    expect(a.state()).toBe("lost");
    expect(scene.violations()).toEqual([]);
  });
});

describe("what arrives late", () => {
  test("FM-03 S2-33 renew and release after expiry change nothing, in any order and number", async () => {
    const scene = await makeScene();
    const { a, first, b } = await rivals(scene);
    a.way.add(cut);
    const second = await b.token();
    await scene.pass(1_000);
    const late = scene.station("a");
    const held = { attempt: a.attempt, token: first as never };
    const renew = () => scene.settled(late.client.renew(orders, held, 5_000));
    const release = () => scene.settled(late.client.release(orders, held, 5_000));
    const before = await scene.lease();
    for (const call of [renew, release, renew, release, release, renew])
      expect(await call()).toMatchObject(
        call === renew
          ? { kind: "refused", problem: { code: "lost", reason: "superseded" } }
          : { kind: "ok", value: { released: false, reason: "superseded" } },
      );
    expect((await scene.lease()).text).toBe(before.text);
    await scene.pass(20_000);
    expect(b.holding.view()).toMatchObject({ state: "held", token: second });
    expect(scene.violations()).toEqual([]);
  });

  test("FM-12 a renewal that hangs in a slow store lands after the next grant, and nothing of it is seen", async () => {
    const scene = await makeScene();
    const a = scene.holder("a");
    const first = await a.token();
    await scene.pass(1_000);
    const hung = Promise.withResolvers<void>();
    const slow = () => {
      scene.slot(1).trap = { when: "there", resource: "leases", spring };
    };
    const spring = () => {
      slow();
      return hung.promise;
    };
    slow();
    const asked = scene.call(1, a.identity, "renew", { attempt: a.attempt, token: String(first) });
    a.actor.pause();
    scene.slot(1).way.add({ refused: true });
    const b = scene.holder("b");
    const second = await b.token();
    const before = await scene.lease();
    hung.resolve();
    expect(await scene.settled(asked)).toMatchObject({
      status: 409,
      body: { code: "lost", reason: "superseded" },
    });
    const now = await scene.lease();
    expect(now.holder).toBe(b.me);
    expect(now.credit).toEqual(before.credit);
    a.actor.resume();
    await scene.pass(20_000);
    expect(b.holding.view()).toMatchObject({ state: "held", token: second });
    expect(scene.violations()).toEqual([]);
  });
});

describe("a coordinator that ends in the middle", () => {
  test.for([
    ["before allocation: nothing is lost", "there", "fencedsequences/status", 0n],
    ["after allocation: a gap", "back", "fencedsequences/status", 1n],
    ["before the Lease write: a gap", "there", "leases", 1n],
    ["after the Lease write: the same token again", "back", "leases", 0n],
  ] as const)("FM-04 FM-05 killed %s", async ([, when, resource, gaps]) => {
    const scene = await makeScene({ reserve: 1 });
    const a = scene.holder("a");
    const first = await a.token();
    await scene.settled(a.holding.release());
    const before = await scene.lease();
    scene.slot(0).way.add({ refused: true });
    const slot = scene.slot(1);
    slot.trap = { when, resource, spring: () => scene.killReplica(1) };
    const b = scene.holder("b");
    await scene.until(() => slot.actor.dead());
    const between = await scene.lease();
    const committed = when === "back" && resource === "leases";
    expect(between.holder).toBe(committed ? b.me : undefined);
    expect(between.text === before.text).toBe(!committed);
    scene.reviveReplica(1);
    const token = await b.token();
    expect(token).toBe(first + 1n + gaps);
    // What was only allocated, or held before, is nobody's.
    expect(await scene.settled(b.write(b.me, token - 1n))).toBe("stale_fencing_token");
    expect(await scene.settled(b.write(b.me, token))).toBe("accepted");
    expect(scene.violations()).toEqual([]);
  });

  test("FM-05 killed after the answer: the owner stays, and the new process waits a full duration", async () => {
    const scene = await makeScene();
    const a = scene.holder("a");
    const first = await a.token();
    const b = scene.holder("b");
    await scene.pass(6_000);
    for (const index of [0, 1]) scene.killReplica(index);
    await scene.pass(1_000);
    for (const index of [0, 1]) scene.reviveReplica(index);
    await scene.pass(20_000);
    expect(a.holding.view()).toMatchObject({ state: "held", token: first });
    a.actor.kill();
    await scene.pass(4_000);
    for (const index of [0, 1]) scene.killReplica(index);
    for (const index of [0, 1]) scene.reviveReplica(index);
    const restarted = scene.time.now();
    await b.token();
    expect(scene.time.now() - restarted).toBeGreaterThanOrEqual(duration);
    expect(scene.violations()).toEqual([]);
  });

  test("FM-04 cancelled by the client before the Lease write: nothing is committed for it", async () => {
    const scene = await makeScene({ reserve: 1 });
    const a = scene.holder("a");
    await a.token();
    await scene.settled(a.holding.release());
    const gone = new AbortController();
    const held = Promise.withResolvers<void>();
    const before = await scene.lease();
    scene.slot(1).trap = { when: "back", resource: "fencedsequences/status", spring: () => held.promise };
    const asked = scene.slot(1).coordinator.acquire(
      {
        resource: { namespace: "shop", name: "orders" },
        caller: { identity: "pod:x", attempt: "x-1" },
        note: undefined,
        waitMs: 0,
      },
      gone.signal,
    );
    await scene.pass(100);
    gone.abort();
    held.resolve();
    expect(await scene.settled(asked)).toMatchObject({ outcome: "refused", code: "busy" });
    expect((await scene.lease()).text).toBe(before.text);
    expect(await scene.holder("b").token()).toBeGreaterThan(1n);
    expect(scene.violations()).toEqual([]);
  });
});

describe("many at once", () => {
  test.for([
    [2, isLong ? 1_000 : 60],
    [200, isLong ? 1_000 : 2],
  ] as const)(
    "FM-13 S1-61 S2-07 S2-17 S2-35 %i start at once, %i rounds: one is granted, the others are told by whom",
    { timeout: isLong ? 7_200_000 : 600_000 },
    async ([contenders, rounds]) => {
      const scene = await makeScene();
      for (let round = 1; round <= rounds; round += 1) {
        const asked = Array.from({ length: contenders }, async (_, index) => {
          const [identity, attempt] = [`pod:c${index}`, `${round}-${index}`];
          return {
            identity,
            attempt,
            ...(await scene.call(index % 2, identity, "acquire", { attempt, waitMs: 0 })),
          };
        });
        const answers = await scene.settled(Promise.all(asked));
        const [winner, ...others] = answers.filter(({ status }) => status === 200);
        expect(others).toEqual([]);
        expect(winner?.body).toMatchObject({ token: String(round) });
        const busy = { code: "busy", aheadOnThisReplica: expect.any(Number) };
        const refused = answers.filter(({ status }) => status !== 200).map(({ body }) => body);
        expect(refused).toEqual(refused.map(() => expect.objectContaining(busy)));
        const { identity = "", attempt } = winner ?? {};
        await scene.settled(scene.call(0, identity, "release", { attempt, token: String(round) }));
      }
      expect(scene.violations()).toEqual([]);
    },
  );

  test("FM-36 two replicas rolled under a hundred holders: nobody loses anything", {
    timeout: 60_000,
  }, async () => {
    const resources = Array.from({ length: 100 }, (_, index) => `r${index}`);
    const scene = await makeScene({
      replicas: [
        { rate: 1, leads: "elected" },
        { rate: 1, leads: "elected" },
      ],
      more: resources,
    });
    const holders = resources.map((name) => scene.holder(`h-${name}`, 1, `shop/${name}`));
    for (const holder of holders) await holder.token();
    for (const index of [0, 1]) {
      scene.roll(index);
      await scene.pass(20_000);
    }
    for (const { states, holding } of holders) {
      expect(states.filter((state) => state !== "uncertain" && state !== "held")).toEqual([]);
      expect(holding.view().state).toBe("held");
    }
    const owners = new Set(
      scene.recorder.history.flatMap((event) =>
        event.kind === "commit" && event.lease?.holder !== undefined ? [event.lease.holder] : [],
      ),
    );
    expect(owners.size).toBe(100);
    expect(scene.violations()).toEqual([]);
  });
});

describe("time and distance", () => {
  test("FM-22 S1-02 S2-13 clocks that jump change no owner; rate and suspension cause no accepted stale write", async () => {
    const scene = await makeScene();
    const { a, first, b } = await rivals(scene);
    for (const ms of [3_600_000, -7_200_000, 3_600_000]) {
      for (const actor of [a.actor, scene.slot(0).actor, scene.slot(1).actor]) {
        actor.jump(ms);
        await scene.pass(10_000);
        expect(a.holding.view()).toMatchObject({ state: "held", token: first });
      }
    }
    // A coordinator whose clock runs twice as fast takes nothing from who renews.
    scene.slot(0).actor.setRate(2);
    await scene.pass(20_000);
    expect((await scene.lease()).holder).toBe(a.me);
    // The holder's machine is suspended for five minutes.
    a.actor.pause();
    const seen = lastSeen(scene, a.me);
    const second = await b.token();
    expect(scene.time.now() - seen).toBeGreaterThanOrEqual(duration / 2);
    await scene.pass(300_000);
    a.actor.resume();
    expect(await scene.settled(a.write(a.me, first))).toBe("stale_fencing_token");
    expect(a.holding.view()).toMatchObject({ state: "lost", reason: "deadline" });
    expect(await scene.settled(b.write(b.me, second))).toBe("accepted");
    expect(scene.violations()).toEqual([]);
  });

  test("FM-25 coordinator and API server apart: no grants, and a full duration of looking before anything expires", async () => {
    const scene = await makeScene();
    const { a, first, b } = await rivals(scene);
    // One replica alone: nothing is lost, and it grants nothing.
    const heal = scene.slot(1).apiWay.add(cut);
    // It is not ready, so nobody is sent there.
    const unready = scene.slot(1).way.add({ refused: true });
    await scene.pass(60_000);
    expect(scene.slot(1).process.healthy()).toBe(false);
    const held = { attempt: a.attempt, token: String(first) };
    const asked = scene.call(1, a.identity, "renew", held);
    expect(await scene.settled(asked)).toMatchObject({ status: 503, body: { code: "store_unavailable" } });
    heal();
    unready();
    await scene.pass(10_000);
    expect(a.holding.view()).toMatchObject({ state: "held", token: first });
    // An outage for all, beyond the duration.
    const back = scene.apiWay.add({ refused: true });
    scene.api.watches.cut();
    await scene.pass(3 * duration);
    expect(a.state()).toBe("lost");
    expect(b.state()).toBe("waiting");
    back();
    const restored = scene.time.now();
    const second = await b.token();
    expect(scene.time.now() - restored).toBeGreaterThanOrEqual(duration);
    expect(second).toBe(first + 1n);
    expect((await scene.lease()).transitions).toBe(2);
    // A watch that falls silent is found by the time since it was last heard.
    scene.api.watches.silence();
    const since = scene.api.seen.length;
    await scene.pass(60_000);
    expect(scene.slot(0).process.healthy()).toBe(true);
    expect(scene.api.seen.length - since).toBeLessThan(200);
    scene.api.compact();
    scene.api.watches.cut();
    await scene.pass(20_000);
    expect(scene.slot(1).process.healthy()).toBe(true);
    expect(b.holding.view()).toMatchObject({ state: "held", token: second });
    expect(scene.violations()).toEqual([]);
  });

  test("S2-03 S2-09 S1-72 S2-48 with no heartbeat at all effects keep the order of tokens, and others go on", async () => {
    const scene = await makeScene({ durationSeconds: 3 });
    const tokens: bigint[] = [];
    const stopped = [];
    for (let turn = 0; turn < 5; turn += 1) {
      const next = scene.holder(`n${turn}`);
      const token = await next.token();
      next.way.add({ ...noTrouble, ...cut });
      tokens.push(token);
      expect(await scene.settled(next.write(next.me, token))).toBe("accepted");
      // None of those before has stopped.
      for (const before of stopped)
        expect(await scene.settled(before.write(before.me, await before.token()))).toBe(
          "stale_fencing_token",
        );
      stopped.push(next);
    }
    expect(scene.accepted()).toEqual(tokens);
    expect(scene.violations()).toEqual([]);
  });
});
