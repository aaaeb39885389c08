/**
 * One acquisition from the first request to the release: the loop behind agent, `exec` and client library.
 *
 * What may be believed is decided by src/core/hold.ts; here it is only asked at the right moments. A request without an
 * answer is repeated with the same attempt: it is the same acquisition, whatever became of the first.
 */
import type { Hold } from "../core/hold.ts";
import type { LossReason } from "../core/lease.ts";
import { after, elapsed } from "../core/time.ts";
import type { Token } from "../core/token.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import type { CoordinatorClient, Reply } from "./client.ts";
import { answerMs, releaseMs, renewEveryMs, renewRetryMs, renewTimeoutMs, settleMs } from "./pace.ts";
import { type HoldView, makeRight } from "./right.ts";
import {
  type Asked,
  type HoldOptions,
  type Known,
  type NoGrant,
  type Resume,
  slept,
  untilGranted,
  type WaitEnd,
} from "./wait.ts";
import type { Grant } from "./wire.ts";

export interface HolderDeps {
  client: CoordinatorClient;
  clock: Clock;
  random: Random;
  log: Logger;
}

export type ReleaseEnd =
  | { kind: "released" }
  /** The coordinator says that the right was not there any more. */
  | { kind: "gone"; reason: LossReason }
  /** Nobody knows; it ends with its term at the latest. */
  | { kind: "unknown"; detail: string }
  | { kind: "never_held" };

export interface Holding {
  readonly resource: string;
  readonly attempt: string;
  /** Settles once; never rejects. */
  readonly granted: Promise<WaitEnd>;
  /** Aborted with a HoldLost on loss. Final: this attempt never holds again. */
  readonly lost: AbortSignal;
  /** The state now: the deadline is judged before anything is told. */
  view(): HoldView;
  subscribe(listener: (view: HoldView) => void): () => void;
  /** Renews no more and gives nothing back: the right runs out by its own term, and is then lost by `deadline`. */
  letGo(): void;
  /**
   * Ends the wait or the renewals and gives the right back in one request of at most 2 s. To be called in every case,
   * once the work is over: also after a wait without a right (a grant may have come too late to be one) and after a
   * loss by `deadline` (a renewal that was under way may have kept the lease alive). Asks again after an end that was
   * `unknown`.
   */
  release(): Promise<ReleaseEnd>;
}

export interface Holder {
  /** Starts at once. `signal` ends the wait; what is held is given back by `release`. */
  hold(options: HoldOptions, signal?: AbortSignal): Holding;
}

export const makeHolder = (deps: HolderDeps): Holder => ({
  hold: (options, signal) => start(deps, options, signal),
});

const start = (
  { client, clock, random, log }: HolderDeps,
  options: HoldOptions,
  signal: AbortSignal | undefined,
): Holding => {
  const { resource, label, resume } = options;
  const attempt = options.attempt ?? random.uuid();
  const right = makeRight({ resource, clock, log });
  const granted = Promise.withResolvers<WaitEnd>();
  /** Aborted when nothing more is asked for: on loss, at the end of the wait without a right, by release. */
  const over = new AbortController();
  const stop = (): void => over.abort();
  right.lost.addEventListener("abort", stop, { once: true });
  const patience = after(clock.mono(), Math.max(options.waitMs ?? Infinity, settleMs));
  let known: Known | undefined;
  let waiting = true;

  const endWait = (end: WaitEnd): void => {
    waiting = false;
    signal?.removeEventListener("abort", giveUp);
    if (end.kind !== "granted") right.step({ kind: "released" });
    granted.resolve(end);
  };
  const giveUp = (): void => {
    if (waiting) stop();
  };
  signal?.addEventListener("abort", giveUp, { once: true });
  if (signal?.aborted) giveUp();

  const acquire = (waitMs: number): Promise<Reply<Grant>> =>
    client.acquire(resource, { attempt, waitMs, label }, waitMs + answerMs, over.signal);

  const held = (token: Token) => ({ attempt, token });

  const run = async (): Promise<void> => {
    const end =
      resume === undefined
        ? await untilGranted({ options, clock, random, right, over: over.signal, acquire })
        : takeUp(resume);
    if (end.kind === "granted") {
      if (resume === undefined) entitle(end);
      await keepRenewing(end);
    }
    if (waiting) endWait(withoutRight(right.now(), end));
  };

  const takeUp = ({ grant, safeForMs }: Resume): Asked => {
    const { token, guarantee } = grant;
    known = { ...grant, sentAt: after(clock.mono(), -grant.leaseDurationMs) };
    const safeUntil = after(clock.mono(), safeForMs);
    right.step({ kind: "resumed", token, safeUntil }, { guarantee });
    return { kind: "granted", ...known };
  };

  const entitle = (answer: Known): void => {
    known = answer;
    const { token, sentAt, leaseDurationMs, guarantee } = answer;
    right.step({ kind: "granted", token, sentAt, termMs: leaseDurationMs }, { guarantee });
    options.onTerm?.(answer);
  };

  /** A bug: the state is left to the deadline, which a right without renewals meets soon. */
  const failed = (error: unknown): void => {
    const cause = error instanceof Error ? error : new Error(String(error));
    log.error({ resource, attempt, error: cause }, "the holder's loop failed");
    endWait({ kind: "unreachable", detail: cause.message });
    right.step({ kind: "doubt" });
  };

  /** Until the right is lost or given back. A grant that came after its own term becomes one by its first renewal. */
  const keepRenewing = async (grant: Known): Promise<void> => {
    const { guarantee } = grant;
    let everyMs = renewEveryMs(grant);
    // Long past for a grant that came late: it is renewed at once.
    let next = after(grant.sentAt, everyMs);
    let failures = 0;
    for (;;) {
      const { state } = right.now();
      if (over.signal.aborted) return;
      if (state === "held" && waiting) endWait({ ...grant, kind: "granted" });
      await slept(clock, elapsed(clock.mono(), next), over.signal);
      // A process that stood still may find this timer due before that of the deadline.
      right.now();
      if (over.signal.aborted) return;
      const reply = await client.renew(resource, held(grant.token), renewTimeoutMs(everyMs), over.signal);
      if (over.signal.aborted) return;
      if (reply.kind === "ok") {
        failures = 0;
        everyMs = renewEveryMs(reply.value);
        next = after(reply.sentAt, everyMs);
        right.step(
          { kind: "renewed", sentAt: reply.sentAt, termMs: reply.value.leaseDurationMs },
          { guarantee },
        );
        options.onTerm?.({ ...grant, ...reply.value, sentAt: reply.sentAt });
        continue;
      }
      if (reply.kind === "refused" && reply.problem.code === "lost") {
        right.step({ kind: "refused", reason: reply.problem.reason ?? "superseded" });
        return;
      }
      failures += 1;
      const detail = reply.kind === "refused" ? reply.problem.detail : reply.message;
      const asked = reply.kind === "refused" ? reply.problem.retryAfterMs : undefined;
      next = after(clock.mono(), renewRetryMs(failures, everyMs, asked, random));
      const { state: now } = right.step({ kind: "doubt" }, { guarantee, trouble: detail });
      if (now === "renewing" && clock.mono() >= patience) return endWait({ kind: "unreachable", detail });
      log.warn({ resource, attempt, error: detail }, "a renewal failed");
    }
  };

  const giveBack = async (): Promise<ReleaseEnd> => {
    stop();
    await running;
    const hold = right.now();
    if (known === undefined) return { kind: "never_held" };
    if (hold.state === "lost" && hold.reason !== "deadline") return { kind: "gone", reason: hold.reason };
    const reply = await client.release(resource, held(known.token), releaseMs);
    right.step({ kind: "released" });
    switch (reply.kind) {
      case "ok":
        return reply.value.released ? { kind: "released" } : { kind: "gone", reason: reply.value.reason };
      case "refused":
        return { kind: "unknown", detail: reply.problem.detail };
      case "silent":
        return { kind: "unknown", detail: reply.message };
      default: {
        const never: never = reply;
        return never;
      }
    }
  };

  const running = run().catch(failed);
  let releasing: Promise<ReleaseEnd> | undefined;
  const release = async (): Promise<ReleaseEnd> => {
    const end = await (releasing ??= giveBack());
    if (end.kind === "unknown") releasing = undefined;
    return end;
  };
  return {
    resource,
    attempt,
    granted: granted.promise,
    lost: right.lost,
    view: right.view,
    subscribe: right.subscribe,
    letGo() {
      stop();
      right.step({ kind: "doubt" }, { ...right.notes(), trouble: "it is not renewed any more" });
    },
    release,
  };
};

/** How the wait ended for one whose grant never became a right. */
const withoutRight = (hold: Hold, end: Asked): NoGrant => {
  if (hold.state === "lost") return { kind: "lost", reason: hold.reason };
  return end.kind === "granted" ? { kind: "given_up" } : end;
};
