/**
 * The holder's side of one attempt: what it may still believe, by its own clock.
 *
 * | state | grant | resumed | renewed | failed, late | deadline | refused | released |
 * | --- | --- | --- | --- | --- | --- | --- | --- |
 * | waiting | held (late: renewing) | uncertain (late: lost) | – | waiting | – | lost | released |
 * | renewing | – | – | held | renewing | – | lost | released |
 * | held | – | – | held | uncertain | lost | lost | released |
 * | uncertain | – | – | held | uncertain | lost | lost | released |
 * | lost, released | final | | | | | | |
 *
 * `renewing` is seen from outside as `waiting`: a grant whose answer came after its own term makes nothing held nor lost.
 * `safeUntil` is counted from the moment the request was *sent*, so that no delay of an answer can stretch it. The
 * deadline is judged before anything is answered, also before a late answer is believed.
 */
import type { LossReason } from "./lease.ts";
import { after, type MonoTime } from "./time.ts";
import type { Token } from "./token.ts";

export type Hold =
  | { state: "waiting" }
  | { state: "renewing"; token: Token }
  | { state: "held" | "uncertain"; token: Token; safeUntil: MonoTime }
  | { state: "lost"; reason: LossReason }
  | { state: "released" };

/** What people and apps are shown. */
export type HoldState = "waiting" | "held" | "uncertain" | "lost" | "released";

export type HoldEvent =
  /** The coordinator granted, or granted again, `token` for a term; the request left at `sentAt`. */
  | { kind: "granted"; token: Token; sentAt: MonoTime; termMs: number }
  /** A process before this one held `token`, and what it was promised ends at `safeUntil`. */
  | { kind: "resumed"; token: Token; safeUntil: MonoTime }
  | { kind: "renewed"; sentAt: MonoTime; termMs: number }
  /** A renewal failed, is late, or its outcome is unknown. */
  | { kind: "doubt" }
  | { kind: "refused"; reason: LossReason }
  | { kind: "released" }
  /** Only time passed. */
  | { kind: "tick" };

/** The share of a term that is given up for the difference of clock rates. */
export const margin = 0.1;

/** Until when a right answered for a request sent at `sentAt` may be relied on. */
export const safeUntil = (sentAt: MonoTime, termMs: number): MonoTime => after(sentAt, termMs * (1 - margin));

/** The state that an event leads to at `now`. */
export const stepHold = (hold: Hold, event: HoldEvent, now: MonoTime): Hold => {
  switch (hold.state) {
    case "lost":
    case "released":
      return hold;
    case "held":
    case "uncertain":
      if (now >= hold.safeUntil) return { state: "lost", reason: "deadline" };
      return stepLive(hold, event);
    case "waiting":
    case "renewing":
      return stepWaiting(hold, event, now);
    default: {
      const never: never = hold;
      return never;
    }
  }
};

const stepWaiting = (
  hold: Extract<Hold, { state: "waiting" | "renewing" }>,
  event: HoldEvent,
  now: MonoTime,
): Hold => {
  switch (event.kind) {
    case "granted":
      return entitled(event.token, event, now);
    case "resumed":
      return now < event.safeUntil
        ? { state: "uncertain", token: event.token, safeUntil: event.safeUntil }
        : { state: "lost", reason: "deadline" };
    case "renewed":
      return hold.state === "renewing" ? entitled(hold.token, event, now) : hold;
    case "refused":
      return { state: "lost", reason: event.reason };
    case "released":
      return { state: "released" };
    case "doubt":
    case "tick":
      return hold;
    default: {
      const never: never = event;
      return never;
    }
  }
};

const stepLive = (hold: Extract<Hold, { state: "held" | "uncertain" }>, event: HoldEvent): Hold => {
  switch (event.kind) {
    case "granted":
      // A newer token for the same attempt: what was begun under the old one is refused from now on, so the attempt ends.
      return event.token === hold.token ? extended(hold, event) : { state: "lost", reason: "superseded" };
    case "renewed":
      return extended(hold, event);
    case "doubt":
      return { ...hold, state: "uncertain" };
    case "refused":
      return { state: "lost", reason: event.reason };
    case "released":
      return { state: "released" };
    case "resumed":
    case "tick":
      return hold;
    default: {
      const never: never = event;
      return never;
    }
  }
};

const entitled = (token: Token, answer: { sentAt: MonoTime; termMs: number }, now: MonoTime): Hold => {
  const until = safeUntil(answer.sentAt, answer.termMs);
  return now < until ? { state: "held", token, safeUntil: until } : { state: "renewing", token };
};

const extended = (
  hold: Extract<Hold, { state: "held" | "uncertain" }>,
  answer: { sentAt: MonoTime; termMs: number },
): Hold => {
  const until = safeUntil(answer.sentAt, answer.termMs);
  // An answer that was long on its way proves less than what is already known.
  if (until <= hold.safeUntil) return hold;
  return { state: "held", token: hold.token, safeUntil: until };
};

/** How a hold is shown to people and apps. */
export const shownState = (hold: Hold): HoldState => (hold.state === "renewing" ? "waiting" : hold.state);

/** Milliseconds for which the right is still safe at `now`; 0 where there is none. */
export const safeForMs = (hold: Hold, now: MonoTime): number =>
  hold.state === "held" || hold.state === "uncertain" ? Math.max(0, hold.safeUntil - now) : 0;
