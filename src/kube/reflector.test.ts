import { afterEach, describe, expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import { failure, hang, makeListWatchServer, reset } from "../../test/support/kube/listwatch.ts";
import type { LeaseObject } from "../api/lease.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Change } from "./cache.ts";
import { leaseKind } from "./kinds.ts";
import { makeReflector } from "./reflector.ts";

const lease = (holderIdentity: string) => ({ spec: { holderIdentity } });
const gone = JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired" } });
const running: AbortController[] = [];
afterEach(() => {
  for (const stop of running.splice(0)) stop.abort();
});

const setup = async (
  options: { onChange?: (change: Change<LeaseObject>) => void | Promise<void>; objects?: string[] } = {},
) => {
  const clock = makeFakeClock();
  const server = makeListWatchServer(clock);
  for (const name of options.objects ?? ["a"]) server.put(name, lease("x"));
  const changes: string[] = [];
  const states: string[] = [];
  const logged: string[] = [];
  const write = (_fields: object, message: string) => void logged.push(message);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const reflector = makeReflector({
    transport: server.transport,
    kind: leaseKind,
    namespace: "shop",
    clock,
    random: makeFakeRandom(),
    log,
    onChange: (change) => {
      changes.push(`${change.type} ${change.object.metadata.name}`);
      return options.onChange?.(change);
    },
    onInterrupted: () => void states.push("interrupted"),
    onResumed: () => void states.push("resumed"),
    onRegressed: () => void changes.push("regressed"),
  });
  const stop = new AbortController();
  running.push(stop);
  const done = reflector.start(stop.signal);
  await settle();
  /** The cache is what a fresh list would give. */
  const level = () => {
    const cached = reflector.list().map((object) => [object.metadata.name, object.metadata]);
    expect(new Map(cached as [string, unknown][])).toEqual(
      new Map([...server.objects()].map(([name, object]) => [name, object.metadata])),
    );
  };
  return { clock, server, reflector, changes, states, logged, stop, done, level };
};

describe("in order", () => {
  it("lists, then follows", async () => {
    const { server, reflector, changes, level, clock } = await setup({ objects: ["a", "b"] });
    await reflector.synced();
    server.put("c", lease("x"));
    server.put("a", lease("y"));
    server.remove("b");
    await settle();
    expect(changes).toEqual(["added a", "added b", "added c", "modified a", "deleted b"]);
    expect(reflector.get({ namespace: "shop", name: "a" })?.spec.holderIdentity).toBe("y");
    expect(reflector.get({ namespace: "shop", name: "b" })).toBeUndefined();
    expect(reflector.lastSeen()).toBe(clock.mono());
    level();
  });

  it("reads all pages of a long list at one position", async () => {
    const names = Array.from({ length: 1201 }, (_, index) => `lease-${index}`);
    const { server, reflector, level } = await setup({ objects: names });
    expect(server.verbs()).toEqual(["list", "list", "list", "watch"]);
    expect(reflector.stats()).toMatchObject({ objects: 1201, lists: 1, watches: 1 });
    level();
  });

  it("opens the watch again and again without a list, a gap or an interruption", async () => {
    const { server, reflector, states, clock } = await setup();
    await clock.advance(600_000);
    expect(server.verbs().filter((verb) => verb === "list")).toHaveLength(1);
    const watches = server.verbs().filter((verb) => verb === "watch").length;
    expect(watches).toBeGreaterThanOrEqual(20);
    expect(watches).toBeLessThanOrEqual(31);
    expect(reflector.epoch()).toBe(0);
    expect(states).toEqual([]);
    expect(reflector.healthy()).toBe(true);
  });

  it("moves its position by bookmarks, so that a quiet kind survives compaction", async () => {
    const { server, reflector, clock } = await setup();
    server.remove("nothing-of-ours");
    for (let minute = 0; minute < 10; minute++) {
      await clock.advance(60_000);
      server.compact();
    }
    expect(reflector.stats().lists).toBe(1);
  });

  it("asks where the server stands when no bookmark came", async () => {
    const { server, clock, reflector } = await setup();
    server.withoutBookmarks();
    await clock.advance(31_000);
    expect(server.verbs()).toEqual(["list", "watch", "list", "watch"]);
    expect(server.requests[2]?.path).toContain("limit=1");
    expect(reflector.epoch()).toBe(0);
  });
});

describe("faults", () => {
  it("resumes a watch that was cut, without a list, and misses nothing", async () => {
    const { server, reflector, states, clock, changes, level } = await setup();
    const before = reflector.epoch();
    server.cut();
    server.put("b", lease("x"));
    server.remove("a");
    await settle();
    expect(states).toEqual(["interrupted"]);
    expect(reflector.healthy()).toBe(false);
    expect(reflector.epoch()).toBeGreaterThan(before);
    const during = reflector.epoch();
    await clock.advance(1_000);
    expect(states).toEqual(["interrupted", "resumed"]);
    expect(reflector.epoch()).toBeGreaterThan(during);
    expect(reflector.healthy()).toBe(true);
    expect(changes).toEqual(["added a", "added b", "deleted a"]);
    expect(reflector.stats()).toMatchObject({ lists: 1, interruptions: 1 });
    level();
  });

  it("finds a half-open watch by its missing end, within 35 s", async () => {
    const { server, states, clock, level } = await setup();
    server.silence();
    server.put("b", lease("x"));
    await clock.advance(36_000);
    expect(states).toEqual(["interrupted", "resumed"]);
    level();
  });

  it("ends an attempt that hangs, and goes on when it no longer does", async () => {
    const { server, reflector, clock, level } = await setup();
    server.cut();
    const limit = new AbortController();
    server.intercept(() => hang(limit.signal));
    await clock.advance(1_000);
    limit.abort();
    server.intercept(() => undefined);
    server.put("b", lease("x"));
    await clock.advance(1_000);
    expect(reflector.healthy()).toBe(true);
    level();
  });

  it.each(["status", "event"] as const)("answers 410 as %s with a list", async (form) => {
    const { server, reflector, states, clock, level } = await setup();
    if (form === "event") server.say(gone);
    else server.cut();
    server.put("b", lease("x"));
    if (form === "status") server.compact();
    await clock.advance(2_000);
    expect(states[0]).toBe("interrupted");
    expect(states.at(-1)).toBe("resumed");
    expect(reflector.stats().lists).toBe(2);
    level();
  });

  it("begins a list anew when a later page answers 410", async () => {
    const names = Array.from({ length: 700 }, (_, index) => `lease-${index}`);
    const clock = makeFakeClock();
    const server = makeListWatchServer(clock);
    for (const name of names) server.put(name, lease("x"));
    let refused = 0;
    server.intercept((_request, query) =>
      query.has("continue") && refused++ === 0 ? failure(410, "Expired") : undefined,
    );
    const stop = new AbortController();
    running.push(stop);
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const reflector = makeReflector({
      transport: server.transport,
      kind: leaseKind,
      clock,
      random: makeFakeRandom(),
      log,
    });
    void reflector.start(stop.signal);
    await clock.advance(1_000);
    expect(reflector.stats()).toMatchObject({ objects: 700, lists: 2 });
  });

  it("survives 500s on the list that follows a 410", async () => {
    const { server, reflector, clock, level, states } = await setup();
    server.put("b", lease("x"));
    server.cut();
    server.compact();
    server.put("c", lease("x"));
    let left = 4;
    server.intercept((request) => {
      if (request.verb === "watch" && reflector.stats().lists < 2) return failure(410, "Expired");
      return request.verb === "list" && !request.path.includes("limit=1&") && left-- > 0
        ? failure(500, "InternalError")
        : undefined;
    });
    await clock.advance(30_000);
    expect(states).toEqual(["interrupted", "resumed"]);
    level();
  });

  it("reports what was deleted and re-created in a gap as both", async () => {
    const { server, changes, clock } = await setup();
    server.cut();
    server.remove("a");
    server.put("a", lease("z"));
    server.compact();
    await clock.advance(2_000);
    expect(changes).toEqual(["added a", "deleted a", "added a"]);
  });

  it("takes half a line for a broken connection and resumes before it", async () => {
    const { server, reflector, clock, level, states } = await setup();
    server.say('{"type":"MODIFIED","object":{"metadata":{"na');
    await clock.advance(1_000);
    expect(states).toEqual(["interrupted", "resumed"]);
    server.put("b", lease("x"));
    await settle();
    expect(reflector.stats().lists).toBe(1);
    level();
  });

  it("waits as long as the server asks", async () => {
    const { server, clock } = await setup();
    server.cut();
    server.intercept(() => ({ ...failure(429, "TooManyRequests"), headers: { "retry-after": "7" } }));
    await clock.advance(1_000);
    const asked = server.requests.length;
    await clock.advance(6_000);
    expect(server.requests).toHaveLength(asked);
    await clock.advance(2_000);
    expect(server.requests.length).toBeGreaterThan(asked);
  });

  it.each([
    ["refuses every request", () => reset()],
    ["answers 500", () => failure(500, "InternalError")],
    ["answers 401", () => failure(401, "Unauthorized")],
    ["answers 410", () => failure(410, "Expired")],
    ["answers what is no list", () => ({ status: 200, headers: {}, body: "<html>" })],
  ])("sends at most 30 requests a minute to a server that %s", async (_name, fault) => {
    const { server, clock, reflector, level } = await setup();
    server.cut();
    server.intercept(fault);
    for (let minute = 0; minute < 5; minute++) {
      const before = server.requests.length;
      await clock.advance(60_000);
      expect(server.requests.length - before).toBeLessThanOrEqual(30);
    }
    server.intercept(() => undefined);
    await clock.advance(11_000);
    expect(reflector.healthy()).toBe(true);
    level();
  });

  it("sends at most 30 requests a minute when each watch is cut or ended as soon as it is open", async () => {
    for (const kind of ["cut", "end"] as const) {
      const { server, clock } = await setup();
      let busy = true;
      const chop = () => {
        server[kind]();
        if (busy) clock.timer(10, chop);
      };
      chop();
      await clock.advance(5_000);
      const before = server.requests.length;
      await clock.advance(60_000);
      busy = false;
      expect(server.requests.length - before).toBeLessThanOrEqual(30);
    }
  });
});

describe("a server that was restored from a backup", () => {
  it("is found when the connection broke, and answered by a list", async () => {
    const { server, reflector, clock, level, changes } = await setup();
    const restore = server.snapshot();
    server.put("b", lease("x"));
    server.put("a", lease("y"));
    await settle();
    restore();
    server.cut();
    await clock.advance(2_000);
    expect(reflector.stats().lists).toBe(2);
    expect(changes.slice(-3)).toEqual(["regressed", "deleted b", "modified a"]);
    level();
  });

  it("is found by a watch that gets no bookmark, though no connection broke", async () => {
    const { server, clock, level, reflector } = await setup();
    const restore = server.snapshot();
    for (const name of ["b", "c", "d", "e"]) server.put(name, lease("x"));
    await clock.advance(31_000);
    restore();
    server.put("f", lease("x"));
    await clock.advance(62_000);
    expect(reflector.epoch()).toBeGreaterThan(0);
    level();
  });

  it("is found after an outage even if it is past our position again", async () => {
    const { server, reflector, clock, level, changes } = await setup();
    const restore = server.snapshot();
    server.put("a", lease("y"));
    await settle();
    server.cut();
    server.intercept(() => reset());
    await clock.advance(3_000);
    restore();
    for (const name of ["c", "d", "e"]) server.put(name, lease("x"));
    server.intercept(() => undefined);
    await clock.advance(11_000);
    expect(reflector.healthy()).toBe(true);
    expect(changes).toContain("regressed");
    level();
  });

  it("is found by a bookmark below our position", async () => {
    const { server, clock, level, reflector } = await setup();
    server.put("b", lease("x"));
    await settle();
    server.say(JSON.stringify({ type: "BOOKMARK", object: { metadata: { resourceVersion: "3" } } }));
    await clock.advance(1_000);
    expect(reflector.stats().lists).toBe(2);
    level();
  });

  it("answers 'Too large resource version', as status and as event, with a list", async () => {
    const tooLarge = {
      kind: "Status",
      code: 504,
      reason: "Timeout",
      message: "Too large resource version",
      details: { causes: [{ reason: "ResourceVersionTooLarge" }] },
    };
    const { server, clock, reflector } = await setup();
    server.say(JSON.stringify({ type: "ERROR", object: tooLarge }));
    await clock.advance(1_000);
    expect(reflector.stats().lists).toBe(2);
    server.intercept((request) =>
      request.verb === "watch" && reflector.stats().lists < 3
        ? { status: 504, headers: {}, body: JSON.stringify(tooLarge) }
        : undefined,
    );
    server.cut();
    await clock.advance(5_000);
    expect(reflector.stats().lists).toBe(3);
    expect(reflector.healthy()).toBe(true);
  });
});

describe("what others do wrong", () => {
  it("counts and logs what a handler throws, at once or later, and goes on", async () => {
    let calls = 0;
    const { server, reflector, logged, level } = await setup({
      onChange: () => {
        calls++;
        if (calls === 1) throw new Error("thrown");
        return Promise.reject(new Error("rejected"));
      },
    });
    server.put("b", lease("x"));
    await settle();
    expect(reflector.stats().handlerErrors).toBe(2);
    expect(logged.filter((message) => message.includes("handler"))).toHaveLength(2);
    level();
  });

  it("leaves out an object that cannot be read, says so, and takes it when it can", async () => {
    const { server, reflector, logged } = await setup({ objects: [] });
    server.put("bad", { spec: { leaseDurationSeconds: "ten" } });
    server.put("good", lease("x"));
    await settle();
    expect(reflector.list().map((object) => object.metadata.name)).toEqual(["good"]);
    expect([...reflector.stats().unreadable.keys()]).toEqual(["shop/bad"]);
    expect(logged).toContain("object cannot be read");
    server.put("bad", { spec: { leaseDurationSeconds: 10 } });
    await settle();
    expect(reflector.list()).toHaveLength(2);
    expect(reflector.stats().unreadable.size).toBe(0);
  });

  it("keeps the last readable state of an object, also through a list", async () => {
    const { server, reflector, clock, changes } = await setup();
    server.put("a", { spec: { leaseTransitions: 2 ** 40 } });
    server.say(gone);
    await clock.advance(2_000);
    expect(reflector.stats().lists).toBe(2);
    expect(reflector.get({ namespace: "shop", name: "a" })?.spec.holderIdentity).toBe("x");
    expect([...reflector.stats().unreadable.keys()]).toEqual(["shop/a"]);
    expect(changes).toEqual(["added a"]);
    server.remove("a");
    await settle();
    expect(reflector.stats().unreadable.size).toBe(0);
    expect(changes).toEqual(["added a", "deleted a"]);
  });
});

describe("a clean stop", () => {
  it("during the list: nothing is opened and nothing called afterwards", async () => {
    const clock = makeFakeClock();
    const server = makeListWatchServer(clock);
    server.put("a", lease("x"));
    const stop = new AbortController();
    server.intercept(() => hang(stop.signal));
    const calls: string[] = [];
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const reflector = makeReflector({
      transport: server.transport,
      kind: leaseKind,
      clock,
      random: makeFakeRandom(),
      log,
      onChange: () => void calls.push("change"),
    });
    const done = reflector.start(stop.signal);
    await settle();
    stop.abort(new Error("stopped"));
    await done;
    await expect(reflector.synced()).rejects.toThrow("stopped");
    expect(server.verbs()).toEqual(["list"]);
    expect(calls).toEqual([]);
    expect(clock.pending()).toBe(0);
  });

  it("during the watch", async () => {
    const { server, reflector, stop, done, clock, changes, states } = await setup();
    stop.abort();
    await done;
    expect(clock.pending()).toBe(0);
    server.put("b", lease("x"));
    await clock.advance(60_000);
    expect(server.watching()).toBe(0);
    expect(server.verbs()).toEqual(["list", "watch"]);
    expect(changes).toEqual(["added a"]);
    expect(states).toEqual([]);
    expect(reflector.healthy()).toBe(false);
    expect(clock.pending()).toBe(0);
  });

  it("during back-off", async () => {
    const { server, stop, done, clock } = await setup();
    server.intercept(() => reset());
    server.cut();
    await clock.advance(5_000);
    const asked = server.requests.length;
    stop.abort();
    await done;
    await clock.advance(60_000);
    expect(server.requests).toHaveLength(asked);
    expect(clock.pending()).toBe(0);
  });

  it("while a handler runs: no later change of the same list is reported", async () => {
    const stop = new AbortController();
    const clock = makeFakeClock();
    const server = makeListWatchServer(clock);
    for (const name of ["a", "b", "c"]) server.put(name, lease("x"));
    const calls: string[] = [];
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const reflector = makeReflector({
      transport: server.transport,
      kind: leaseKind,
      clock,
      random: makeFakeRandom(),
      log,
      onChange: (change) => {
        calls.push(change.object.metadata.name);
        stop.abort();
      },
    });
    await reflector.start(stop.signal);
    expect(calls).toEqual(["a"]);
  });
});
