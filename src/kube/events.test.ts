import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom } from "../../test/support/clock.ts";
import { makeLogger } from "../runtime/logger.ts";
import { type EventRecorderOptions, makeEventRecorder, type Happening, type Subject } from "./events.ts";
import type { WriteResult } from "./types.ts";

const orders: Subject = {
  apiVersion: "fenceline.dev/v1alpha1",
  kind: "FencedResource",
  namespace: "shop",
  name: "orders",
  uid: "u-orders",
};
const pod: Subject = { apiVersion: "v1", kind: "Pod", namespace: "shop", name: "worker-1", uid: "u-pod" };

interface Write {
  at: number;
  verb: "create" | "patch";
  name: string;
  body: Record<string, unknown>;
}

const world = () => {
  const clock = makeFakeClock();
  const writes: Write[] = [];
  const lines: string[] = [];
  let fate: (() => WriteResult<never> | undefined) | undefined;
  const seen = <T>(verb: Write["verb"], name: string, body: unknown, object: () => T): WriteResult<T> => {
    const text: Record<string, unknown> = JSON.parse(JSON.stringify(body));
    writes.push({ at: clock.mono(), verb, name, body: text });
    return fate?.() ?? { outcome: "ok", object: object() };
  };
  const meta = { uid: "u", resourceVersion: "1" };
  const client: EventRecorderOptions["client"] = {
    create: async (kind, draft) =>
      seen("create", draft.metadata.name, draft, () =>
        kind.parse({ metadata: { ...meta, ...draft.metadata } }),
      ),
    patch: async (kind, ref, patch) =>
      seen("patch", ref.name, patch, () => kind.parse({ metadata: { ...meta, ...ref } })),
  };
  const recorder = makeEventRecorder({
    client,
    controller: "fenceline.dev/controller",
    instance: "controller-0",
    clock,
    random: makeFakeRandom(),
    log: makeLogger({ level: "info", sink: { write: (line) => lines.push(line) } }),
  });
  return {
    clock,
    writes,
    lines,
    recorder,
    meet: (next: typeof fate) => {
      fate = next;
    },
    say: (reason: Happening["reason"], note: string, more: Partial<Happening> = {}) =>
      recorder.record({ regarding: orders, reason, note, ...more }),
  };
};

const never = AbortSignal.any([]);

describe("an event", () => {
  it("is written as the API wants it, off the caller's path", async () => {
    const { clock, writes, say } = world();
    say("LeaseExpired", "token 42 of pod:1/a was not renewed");
    expect(writes).toEqual([]);
    await clock.advance(0);
    expect(writes[0]?.body).toMatchObject({
      metadata: { namespace: "shop", name: expect.stringMatching(/^orders\.[0-9a-f-]{36}$/) },
      eventTime: "2026-01-01T00:00:00.000000Z",
      reportingController: "fenceline.dev/controller",
      reportingInstance: "controller-0",
      action: "LeaseExpired",
      reason: "LeaseExpired",
      type: "Warning",
      note: "token 42 of pod:1/a was not renewed",
      regarding: orders,
    });
    expect(writes[0]?.body).not.toHaveProperty("series");
  });

  it("is told on the pod as well, each naming the other", async () => {
    const { clock, writes, say } = world();
    say("TokenGranted", "token 42", { pod });
    await clock.advance(0);
    expect(writes.map(({ body }) => [body["regarding"], body["related"]])).toEqual([
      [orders, pod],
      [pod, orders],
    ]);
  });

  it("that happens again grows a count, written every 10 s at most", async () => {
    const { clock, writes, say } = world();
    for (let second = 0; second < 30; second++) {
      say("StaleWriteRejected", "an old token was refused");
      await clock.advance(1000);
    }
    await clock.advance(10_000);
    expect(writes.map(({ at, verb }) => `${verb} ${at}`)).toEqual([
      "create 0",
      "patch 10000",
      "patch 20000",
      "patch 30000",
    ]);
    expect(writes.at(-1)?.body).toEqual({
      series: { count: 30, lastObservedTime: "2026-01-01T00:00:29.000000Z" },
    });
  });

  it("that happened several times before it could be told says so at once", async () => {
    const { clock, writes, say } = world();
    for (let i = 0; i < 3; i++) say("Waiting", "two attempts wait");
    await clock.advance(0);
    expect(writes).toHaveLength(1);
    expect(writes[0]?.body).toMatchObject({ series: { count: 3 } });
  });

  it("that happens again after minutes of silence is a new one", async () => {
    const { clock, writes, say } = world();
    say("Waiting", "one attempt waits");
    await clock.advance(361_000);
    say("Waiting", "one attempt waits");
    await clock.advance(0);
    expect(writes.map(({ verb }) => verb)).toEqual(["create", "create"]);
    expect(writes[0]?.name).not.toBe(writes[1]?.name);
  });

  it("has a note of at most 1024 bytes in whole characters, without control characters", async () => {
    const { clock, writes, say } = world();
    say("GuaranteeChanged", `a\u001b[31m\nb ${"€".repeat(1000)}`);
    await clock.advance(0);
    const note = String(writes[0]?.body["note"]);
    expect(Buffer.byteLength(note)).toBeLessThanOrEqual(1024);
    expect(Buffer.byteLength(note)).toBeGreaterThan(1015);
    expect(note).toMatch(/^a \[31m b €+…$/);
  });

  it("has a valid name, whatever its object's name is like", async () => {
    const { clock, writes, recorder } = world();
    const long = { ...orders, name: `${"a".repeat(199)}.${"b".repeat(53)}` };
    recorder.record({ regarding: long, reason: "Waiting", note: "x" });
    await clock.advance(0);
    expect(writes[0]?.name).toMatch(/^a{199}\.[0-9a-f-]{36}$/);
    expect(writes[0]?.name.length).toBeLessThanOrEqual(253);
  });
});

describe("many events", () => {
  it("of one object are told one per second, in their order; news replaces what was not yet told", async () => {
    const { clock, writes, say } = world();
    say("LeaseExpired", "token 42 expired");
    for (let token = 43; token < 60; token++) say("TokenGranted", `token ${token}`);
    say("OwnershipTransferred", "from a to b");
    await clock.advance(10_000);
    expect(writes.map(({ at, body }) => `${at} ${String(body["note"])}`)).toEqual([
      "0 token 42 expired",
      "1000 token 59",
      "2000 from a to b",
    ]);
    // What was overtaken may still become news.
    await clock.advance(200_000);
    say("TokenGranted", "token 50");
    await clock.advance(0);
    expect(writes.at(-1)?.body).toMatchObject({ note: "token 50" });
  });

  it("of many objects do not wait for one another", async () => {
    const { clock, writes, recorder } = world();
    for (let i = 0; i < 50; i++)
      recorder.record({
        regarding: { ...orders, name: `r${i}`, uid: `u${i}` },
        reason: "Waiting",
        note: "x",
      });
    await clock.advance(0);
    expect(writes).toHaveLength(50);
  });

  it("are bounded: what is too much is dropped, counted, and said once", async () => {
    const { clock, writes, lines, recorder, meet } = world();
    meet(() => ({ outcome: "unavailable", message: "no connection" }));
    for (let i = 0; i < 2500; i++)
      recorder.record({
        regarding: { ...orders, name: `r${i}`, uid: `u${i}` },
        reason: "Waiting",
        note: "x",
      });
    expect(recorder.dropped()).toBe(500);
    expect(lines.filter((line) => line.includes("events are dropped"))).toHaveLength(1);
    meet(() => undefined);
    writes.length = 0;
    await clock.advance(60_000);
    expect(writes).toHaveLength(2000);
  });
});

describe("an API server that does not take events", () => {
  it("is asked again later, under the same name", async () => {
    const { clock, writes, say, recorder, meet } = world();
    let tries = 0;
    meet(() =>
      ++tries <= 2 ? { outcome: "unknown", message: "reset" } : { outcome: "exists", message: "exists" },
    );
    say("LeaseReleased", "token 42");
    await clock.advance(30_000);
    expect(new Set(writes.map(({ name }) => name)).size).toBe(1);
    expect(writes).toHaveLength(3);
    expect(recorder.dropped()).toBe(0);
  });

  it("is not told what is stale by the time it answers", async () => {
    const { clock, writes, say, recorder, meet } = world();
    meet(() => ({ outcome: "unavailable", message: "no connection" }));
    say("LeaseReleased", "token 42");
    await clock.advance(200_000);
    meet(() => undefined);
    writes.length = 0;
    await clock.advance(60_000);
    expect(writes).toEqual([]);
    expect(recorder.dropped()).toBe(1);
  });

  it("or fails in ways of its own is asked again", async () => {
    const { clock, writes, say, recorder, meet } = world();
    let tries = 0;
    meet(() => {
      if (++tries === 1) throw new Error("no such thing was foreseen");
      return undefined;
    });
    say("LeaseReleased", "token 42");
    await clock.advance(30_000);
    expect(writes.map(({ verb }) => verb)).toEqual(["create", "create"]);
    expect(recorder.dropped()).toBe(0);
  });

  it("and has forgotten an event by now gets a new one for the next repetition", async () => {
    const { clock, writes, say, meet } = world();
    say("StaleWriteRejected", "x");
    await clock.advance(0);
    meet(() => ({ outcome: "gone", message: "not found" }));
    say("StaleWriteRejected", "x");
    await clock.advance(20_000);
    meet(() => undefined);
    say("StaleWriteRejected", "x");
    await clock.advance(20_000);
    expect(writes.map(({ verb }) => verb)).toEqual(["create", "patch", "create"]);
  });

  it("and refuses is not asked again", async () => {
    const { clock, writes, say, recorder, meet } = world();
    meet(() => ({ outcome: "refused", status: 403, message: "namespace is terminating" }));
    say("LeaseReleased", "token 42");
    await clock.advance(60_000);
    expect(writes).toHaveLength(1);
    expect(recorder.dropped()).toBe(1);
  });
});

describe("at the end", () => {
  it("everything is told without pause, and nothing is taken afterwards", async () => {
    const { clock, writes, say, recorder } = world();
    say("LeaseExpired", "a");
    say("TokenGranted", "b");
    say("OwnershipTransferred", "c");
    await clock.advance(0);
    await recorder.flush(never);
    say("LeaseReleased", "d");
    await clock.advance(60_000);
    expect(writes.map(({ body }) => body["note"])).toEqual(["a", "b", "c"]);
    expect(clock.pending()).toBe(0);
  });

  it("what cannot be told in time is counted", async () => {
    const { clock, say, recorder, writes } = world();
    say("LeaseExpired", "a");
    say("TokenGranted", "b");
    await recorder.flush(AbortSignal.abort());
    expect(writes.length).toBeLessThan(2);
    expect(recorder.dropped() + writes.length).toBe(2);
    expect(clock.pending()).toBe(0);
  });
});

describe("whatever happens", () => {
  const step = fc.record({
    object: fc.integer({ min: 0, max: 2 }),
    reason: fc.constantFrom("TokenGranted" as const, "Waiting" as const, "LeaseExpired" as const),
    note: fc.integer({ min: 0, max: 3 }),
    ms: fc.integer({ min: 0, max: 5000 }),
    fails: fc.boolean(),
  });

  it("an object gets one write per second, a series one per 10 s, and the last word is told", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const { clock, writes, recorder, meet } = world();
        const last = new Map<string, string>();
        for (const { object, reason, note, ms, fails } of steps) {
          meet(() => (fails ? { outcome: "unavailable", message: "no connection" } : undefined));
          const regarding = { ...orders, name: `r${object}`, uid: `u${object}` };
          recorder.record({ regarding, reason, note: `n${note}` });
          last.set(`${regarding.name} ${reason}`, `n${note}`);
          await clock.advance(ms);
        }
        meet(() => undefined);
        await clock.advance(60_000);

        const byObject = Map.groupBy(writes, ({ name }) => name.split(".")[0]);
        for (const [, own] of byObject)
          for (const [index, { at }] of own.entries())
            expect(at - (own[index - 1]?.at ?? -1000)).toBeGreaterThanOrEqual(1000);
        const bySeries = Map.groupBy(
          writes.filter(({ verb }) => verb === "patch"),
          ({ name }) => name,
        );
        for (const [, own] of bySeries) {
          const counts = own.map(({ body }) => (body["series"] as { count: number }).count);
          expect(counts.toSorted((a, b) => a - b)).toEqual(counts);
        }
        const told = new Set(
          writes.map(
            ({ name, body }) => `${name.split(".")[0]} ${String(body["reason"])} ${String(body["note"])}`,
          ),
        );
        for (const [about, note] of last) expect(told).toContain(`${about} ${note}`);
        expect(recorder.dropped()).toBe(0);
        expect(clock.pending()).toBe(0);
      }),
      { numRuns: 60 },
    );
  });
});
