import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Hold, type HoldEvent, margin, safeForMs, safeUntil, shownState, stepHold } from "./hold.ts";
import { after, type MonoTime, monoTime } from "./time.ts";
import type { Token } from "./token.ts";

const at = monoTime;
const t41 = 41n as Token;
const t42 = 42n as Token;
const termMs = 10_000;

const granted = (sentAt: number, token: Token = t42): HoldEvent => ({
  kind: "granted",
  token,
  sentAt: at(sentAt),
  termMs,
});
const renewed = (sentAt: number): HoldEvent => ({ kind: "renewed", sentAt: at(sentAt), termMs });
const resumed = (until: number): HoldEvent => ({ kind: "resumed", token: t42, safeUntil: at(until) });
const doubt: HoldEvent = { kind: "doubt" };
const tick: HoldEvent = { kind: "tick" };
const refused: HoldEvent = { kind: "refused", reason: "superseded" };
const released: HoldEvent = { kind: "released" };

const waiting: Hold = { state: "waiting" };
const renewing: Hold = { state: "renewing", token: t42 };
const held: Hold = { state: "held", token: t42, safeUntil: at(9_000) };
const uncertain: Hold = { state: "uncertain", token: t42, safeUntil: at(9_000) };
const lost: Hold = { state: "lost", reason: "deadline" };
const done: Hold = { state: "released" };
const superseded: Hold = { state: "lost", reason: "superseded" };

describe("each state with each event", () => {
  const rows: [string, Hold, HoldEvent, number, Hold][] = [
    ["waiting, granted in time", waiting, granted(0), 100, held],
    ["waiting, granted at its own deadline", waiting, granted(0), 9_000, renewing],
    ["waiting, granted late", waiting, granted(0), 20_000, renewing],
    ["waiting, resumed", waiting, resumed(9_000), 100, uncertain],
    ["waiting, resumed at its deadline", waiting, resumed(9_000), 9_000, lost],
    ["held, resumed", held, resumed(20_000), 100, held],
    ["lost, resumed", lost, resumed(20_000), 100, lost],
    ["waiting, renewed", waiting, renewed(0), 100, waiting],
    ["waiting, doubt", waiting, doubt, 100, waiting],
    ["waiting, time", waiting, tick, 1e9, waiting],
    ["waiting, refused", waiting, refused, 100, superseded],
    ["waiting, released", waiting, released, 100, done],
    ["renewing, renewed in time", renewing, renewed(100), 200, { ...held, safeUntil: at(9_100) }],
    ["renewing, renewed late", renewing, renewed(100), 9_100, renewing],
    ["renewing, granted again", renewing, granted(0), 100, held],
    ["renewing, granted another token", renewing, granted(0, t41), 100, { ...held, token: t41 }],
    ["renewing, doubt", renewing, doubt, 100, renewing],
    ["renewing, time", renewing, tick, 1e9, renewing],
    ["renewing, refused", renewing, refused, 100, superseded],
    ["renewing, released", renewing, released, 100, done],
    ["held, renewed", held, renewed(5_000), 5_100, { ...held, safeUntil: at(14_000) }],
    ["held, an answer long on its way", held, renewed(-5_000), 5_100, held],
    ["held, granted again", held, granted(5_000), 5_100, { ...held, safeUntil: at(14_000) }],
    ["held, granted another token", held, granted(5_000, t41), 5_100, superseded],
    ["held, doubt", held, doubt, 5_000, uncertain],
    ["held, time", held, tick, 8_999, held],
    ["held, deadline", held, tick, 9_000, lost],
    ["held, refused", held, refused, 100, superseded],
    ["held, released", held, released, 100, done],
    ["uncertain, renewed", uncertain, renewed(5_000), 5_100, { ...held, safeUntil: at(14_000) }],
    ["uncertain, an answer that proves nothing new", uncertain, renewed(0), 5_100, uncertain],
    ["uncertain, granted again", uncertain, granted(5_000), 5_100, { ...held, safeUntil: at(14_000) }],
    ["uncertain, doubt", uncertain, doubt, 5_000, uncertain],
    ["uncertain, time", uncertain, tick, 8_999, uncertain],
    ["uncertain, deadline", uncertain, tick, 9_000, lost],
    ["uncertain, refused", uncertain, refused, 100, superseded],
    ["uncertain, released", uncertain, released, 100, done],
    ["S1-45 held, renewed after the deadline", held, renewed(8_900), 9_000, lost],
    ["S1-45 held, granted again after the deadline", held, granted(8_900), 9_001, lost],
    ["S1-45 held, released after the deadline", held, released, 9_000, lost],
    ["S1-45 held, refused after the deadline", held, refused, 9_000, lost],
    ["S1-45 uncertain, renewed after the deadline", uncertain, renewed(8_900), 9_000, lost],
    ["lost, granted", lost, granted(0), 1, lost],
    ["lost, renewed", lost, renewed(0), 1, lost],
    ["lost, released", lost, released, 1, lost],
    ["released, granted", done, granted(0), 1, done],
    ["released, refused", done, refused, 1, done],
  ];
  it.each(rows)("%s", (_name, hold, event, now, want) => {
    expect(stepHold(hold, event, at(now))).toEqual(want);
  });
});

describe("what others see", () => {
  it("of a grant that came late: waiting, without any time", () => {
    expect(shownState(renewing)).toBe("waiting");
    expect(safeForMs(renewing, at(0))).toBe(0);
  });
  it("of a hold: its state and the time that is left, never below 0", () => {
    expect(shownState(uncertain)).toBe("uncertain");
    expect(safeForMs(held, at(8_000))).toBe(1_000);
    expect(safeForMs(held, at(9_500))).toBe(0);
    expect(safeForMs(lost, at(0))).toBe(0);
  });
  it("S1-45 of a term: a tenth less, from when the request was sent", () => {
    expect(safeUntil(at(500), 15_000)).toBe(14_000);
    expect(margin).toBe(0.1);
  });
});

const times = fc.integer({ min: 0, max: 60_000 });
const events: fc.Arbitrary<HoldEvent> = fc.oneof(
  fc.record({
    kind: fc.constant("granted" as const),
    token: fc.constantFrom(t41, t42),
    sentAt: times.map(at),
    termMs: fc.integer({ min: 1_000, max: 20_000 }),
  }),
  fc.record({
    kind: fc.constant("renewed" as const),
    sentAt: times.map(at),
    termMs: fc.integer({ min: 1_000, max: 20_000 }),
  }),
  fc.constant(doubt),
  fc.constant(tick),
  fc.constant(released),
  fc.record({ kind: fc.constant("refused" as const), reason: fc.constantFrom("superseded", "forced") }),
);

/** Events in order of time; no answer comes before its request was sent. */
const histories = fc
  .array(fc.record({ event: events, pause: fc.integer({ min: 0, max: 6_000 }) }), { maxLength: 40 })
  .map((steps) => {
    let now = 0;
    return steps.map(({ event, pause }) => {
      now += pause;
      const sent = "sentAt" in event ? { ...event, sentAt: at(Math.min(event.sentAt, now)) } : event;
      return { event: sent, now: at(now) };
    });
  });

interface Step {
  before: Hold;
  next: Hold;
  event: HoldEvent;
  now: MonoTime;
}

/** The first step of any history that breaks the rule; fast-check makes it small. */
const broken = (rule: (before: Hold, after: Hold, event: HoldEvent, now: MonoTime) => boolean) => {
  const walk = fc.property(histories, (history) => {
    let before: Hold = waiting;
    for (const { event, now } of history) {
      const next = stepHold(before, event, now);
      if (!rule(before, next, event, now))
        throw new Error(
          JSON.stringify({ before, event, now, next } satisfies Step, (_key, value: unknown) =>
            typeof value === "bigint" ? value.toString() : value,
          ),
        );
      before = next;
    }
  });
  const found = fc.check(walk, { numRuns: 2_000 });
  return found.failed ? found.errorInstance : undefined;
};

describe("S1-45 over any history", () => {
  it("what is lost or released stays so", () => {
    const found = broken(
      (before, next) => (before.state !== "lost" && before.state !== "released") || next === before,
    );
    expect(found).toBeUndefined();
  });

  it("nobody relies on a right beyond sentAt + term, nor at a moment when it is over", () => {
    const found = broken((before, next, event, now) => {
      if (next.state !== "held" && next.state !== "uncertain") return true;
      if (event.kind !== "granted" && event.kind !== "renewed") return now < next.safeUntil;
      return (
        now < next.safeUntil && next.safeUntil <= Math.max(after(event.sentAt, event.termMs), reach(before))
      );
    });
    expect(found).toBeUndefined();
  });

  it("a doubt, a tick and a late answer never extend", () => {
    const found = broken((before, next, event) => {
      if (!("safeUntil" in before) || !("safeUntil" in next)) return true;
      if (event.kind === "doubt" || event.kind === "tick") return next.safeUntil === before.safeUntil;
      return next.safeUntil >= before.safeUntil;
    });
    expect(found).toBeUndefined();
  });

  it("one hold never changes its token under the feet of whoever works with it", () => {
    const found = broken(
      (before, next) => !("safeUntil" in before) || !("token" in next) || next.token === before.token,
    );
    expect(found).toBeUndefined();
  });

  it("what is held or uncertain is past its deadline nowhere", () => {
    const found = broken((before, next, _event, now) =>
      "safeUntil" in before && now >= before.safeUntil ? next.state === "lost" : true,
    );
    expect(found).toBeUndefined();
  });
});

const reach = (hold: Hold): number => ("safeUntil" in hold ? hold.safeUntil : 0);
