/** The wait for a right: asks with the same attempt until granted, refused, or out of patience. */
import type { LossReason } from "../core/lease.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Reply } from "./client.ts";
import { acquireRetryMs, longestPollMs, settleMs } from "./pace.ts";
import type { Right } from "./right.ts";
import type { Grant, Problem } from "./wire.ts";

export interface HoldOptions {
  /** `namespace/name`. */
  resource: string;
  /** UUID of the acquisition; left out: a new one. */
  attempt?: string | undefined;
  /** What people see as the holder's name. */
  label?: string | undefined;
  /** Milliseconds to wait while another holds it; left out: for as long as it takes. */
  waitMs?: number | undefined;
  /** Milliseconds to wait for the coordinator's first answer; left out: for as long as it takes. */
  contactMs?: number | undefined;
  /** What this attempt was promised in a process before this one: taken up as `uncertain`, and renewed at once. */
  resume?: Resume | undefined;
  /** Called with each term that was answered, once the state follows from it. */
  onTerm?: ((known: Known) => void) | undefined;
}

export interface Resume {
  grant: Grant;
  /** Milliseconds that are left of it; 0 or less: lost by `deadline`. */
  safeForMs: number;
}

/** How the wait ended: with the right, or without. */
export type WaitEnd =
  | ({ kind: "granted" } & Grant)
  /** `waitMs` passed while another held it. */
  | { kind: "busy"; detail: string; holder?: string }
  /** The attempt ended before it held anything (any more). */
  | { kind: "lost"; reason: LossReason }
  /** Asking again will not help. */
  | { kind: "refused"; code: string; detail: string }
  /** Nobody answered, or the coordinator itself cannot work, for as long as the options allow. */
  | { kind: "unreachable"; detail: string }
  /** The signal was aborted, or release() was called. */
  | { kind: "given_up" };

/** What the coordinator granted last, and when that was asked for. */
export interface Known extends Grant {
  sentAt: MonoTime;
}

/** Whether the whole time passed; false as soon as `signal` is aborted. */
export const slept = (clock: Clock, ms: number, signal: AbortSignal): Promise<boolean> =>
  clock.sleep(Math.max(0, ms), signal).then(
    () => !signal.aborted,
    () => false,
  );

interface Asking {
  options: HoldOptions;
  clock: Clock;
  random: Random;
  right: Right;
  over: AbortSignal;
  acquire: (waitMs: number) => Promise<Reply<Grant>>;
}

export type NoGrant = Exclude<WaitEnd, { kind: "granted" }>;
export type Asked = ({ kind: "granted" } & Known) | NoGrant;

/**
 * For how long somebody who is ready to wait `waitMs` for others puts up with this answer, in milliseconds: not at all
 * where asking again will not help, and for a while where the trouble is the coordinator's own and passes by itself.
 */
const patienceOf = ({ code }: Problem, waitMs: number): number => {
  switch (code) {
    case "busy":
    case "overloaded":
      return waitMs;
    case "boundary_closed":
    case "not_ready":
    case "outcome_unknown":
    case "store_unavailable":
      return Math.max(waitMs, settleMs);
    default:
      return 0;
  }
};

/** Asks until granted, refused, or out of patience; always with the same attempt. */
export const untilGranted = async ({
  options,
  clock,
  random,
  right,
  over,
  acquire,
}: Asking): Promise<Asked> => {
  const { waitMs, contactMs } = options;
  const started = clock.mono();
  const spent = (): number => elapsed(started, clock.mono());
  let reached = false;
  let failures = 0;
  // The first question does not wait: who holds it is worth knowing at once.
  let ask = 0;
  for (;;) {
    const askedAt = clock.mono();
    const reply = await acquire(ask);
    if (reply.kind === "ok") return { kind: "granted", ...reply.value, sentAt: reply.sentAt };
    if (over.aborted) return { kind: "given_up" };
    if (reply.kind === "refused" && reply.problem.code === "lost") {
      const reason = reply.problem.reason ?? "superseded";
      right.step({ kind: "refused", reason });
      return { kind: "lost", reason };
    }
    let pauseMs: number;
    if (reply.kind === "silent") {
      if (!reached && (reply.lasting || spent() >= (contactMs ?? Infinity)))
        return { kind: "unreachable", detail: reply.message };
      if (reached && spent() >= Math.max(waitMs ?? Infinity, settleMs))
        return { kind: "unreachable", detail: reply.message };
      failures += 1;
      pauseMs = acquireRetryMs(failures, undefined, random);
      right.now({ trouble: reply.message });
    } else {
      reached = true;
      const { problem } = reply;
      const left = patienceOf(problem, waitMs ?? Infinity) - spent();
      if (left <= 0) return outOfPatience(problem);
      if (problem.code === "busy") {
        failures = 0;
        // A coordinator that did not wait as long as it was asked to is not asked at once again.
        const waited = elapsed(askedAt, clock.mono()) >= ask / 2;
        pauseMs = waited ? 0 : acquireRetryMs(1, problem.retryAfterMs, random);
      } else {
        failures += 1;
        pauseMs = acquireRetryMs(failures, problem.retryAfterMs, random);
      }
      pauseMs = Math.min(pauseMs, left);
      right.now(notesOf(problem));
    }
    if (pauseMs > 0 && !(await slept(clock, pauseMs, over))) return { kind: "given_up" };
    ask = Math.round(Math.min(longestPollMs, Math.max(0, (waitMs ?? Infinity) - spent())));
  }
};

const notesOf = ({ code, detail, holder, ahead }: Problem) =>
  code === "busy"
    ? {
        ...(holder === undefined ? {} : { waitingFor: holder }),
        ...(ahead === undefined ? {} : { ahead }),
      }
    : { trouble: detail };

const outOfPatience = ({ code, detail, holder }: Problem): NoGrant => {
  switch (code) {
    case "busy":
    case "overloaded":
      return { kind: "busy", detail, ...(holder === undefined ? {} : { holder }) };
    case "outcome_unknown":
    case "store_unavailable":
      return { kind: "unreachable", detail };
    default:
      return { kind: "refused", code, detail };
  }
};
