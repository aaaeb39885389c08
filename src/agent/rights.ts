/**
 * The rights of a pod, which belong together: asked for in the order of their names, so that two pods never wait for one
 * another, and begun anew together when one is lost.
 *
 * | phase | all held | wait over without one | one lost | container starts again | the pod ends |
 * | --- | --- | --- | --- | --- | --- |
 * | asking | complete | failed (`Block` without time-out, `Start`: asks on) | not yet begun to work: asking anew; else stays | – | ended |
 * | complete | – | – | as shown by its state; `Start` with `Report`: asking anew once the others ran out | lost or finished: asking anew | ended |
 * | failed | – | – | – | asking anew, also when the gate asks again | ended |
 */
import type { LossAction, Wait } from "../api/agentconfig.ts";
import { after, elapsed, type MonoTime } from "../core/time.ts";
import { acquireRetryMs } from "../holder/pace.ts";
import { slept, type WaitEnd } from "../holder/wait.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Memories } from "./memory.ts";
import { isLive, type Slot } from "./slot.ts";

/** Why the app may not start. */
export interface Failure {
  kind: "busy" | "lost" | "failed" | "unreachable";
  /** One line that names the resource. */
  detail: string;
}

export interface Rights {
  readonly slots: readonly Slot[];
  /** Takes up what was left by an agent before this one, and begins to ask. Rejects where nothing can be kept. */
  start(): Promise<void>;
  /** Why the kubelet may not go on to the next container; undefined: it may. */
  heldBack(): string | undefined;
  /** What is lost for good, so that the app has to end; undefined: nothing. */
  fault(): string | undefined;
  /** A container of the app has started; its second start begins a new attempt where a right is over. */
  started(container: string): void;
  /** Resolves when all is held, or with what is in the way; undefined when `signal` was aborted before. */
  gate(signal: AbortSignal): Promise<"open" | Failure | undefined>;
  /** The app has ended: gives everything back, each in one request of at most 2 s. */
  end(): Promise<void>;
}

export interface RightsDeps {
  slots: readonly Slot[];
  memories: Memories;
  wait: Wait;
  waitTimeoutMs: number | undefined;
  onLoss: LossAction;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** With `Fail` a coordinator that never answered is believed in for this long, in milliseconds. */
const contactMs = 10_000;

type NoRight = Exclude<WaitEnd, { kind: "granted" | "given_up" }>;

export const makeRights = (deps: RightsDeps): Rights => {
  const { slots, memories, wait, waitTimeoutMs, onLoss, clock, random, log } = deps;
  const standby = wait === "Start" && onLoss === "Report";
  const mayFail = wait === "Fail" || (wait === "Block" && waitTimeoutMs !== undefined);
  const containers = new Set<string>();
  let phase: "asking" | "complete" | "failed" | "ended" = "asking";
  let failure: Failure | undefined;
  /** The gate has told of the failure: when it asks again, the kubelet tries again. */
  let told = false;
  /** The app was let start: from now on a loss is the app's. */
  let opened = false;
  let round = new AbortController();
  let decided = Promise.withResolvers<void>();
  /** The slots are being changed together: what they say in between is not judged. */
  let changing = false;

  const lostSlot = (): Slot | undefined => slots.find((slot) => slot.view().state === "lost");

  const decide = (next: typeof phase): void => {
    phase = next;
    decided.resolve();
  };

  const fail = async (slot: Slot, end: NoRight): Promise<void> => {
    failure = failureOf(slot.resource, end);
    log.warn({ resource: slot.resource, error: failure.detail }, "the wait is over without the right");
    decide("failed");
    await Promise.all(slots.map((each) => each.giveBack("released")));
  };

  /** Asks until this right is held; what is in the way if that may end. */
  const askFor = async (
    slot: Slot,
    until: MonoTime | undefined,
    signal: AbortSignal,
  ): Promise<NoRight | undefined> => {
    for (let failures = 1; ; failures += 1) {
      const left = until === undefined ? undefined : Math.max(0, elapsed(clock.mono(), until));
      const patience =
        wait === "Fail"
          ? { waitMs: 0, contactMs }
          : left === undefined
            ? {}
            : { waitMs: left, contactMs: left };
      const end = await slot.acquire(patience, signal);
      if (end.kind === "granted" || end.kind === "given_up" || signal.aborted) return undefined;
      if (wait === "Fail" || (until !== undefined && clock.mono() >= until)) return end;
      const { detail } = failureOf(slot.resource, end);
      slot.trouble(detail);
      log.warn({ resource: slot.resource, error: detail }, "not granted: asking again later");
      const pause = Math.min(acquireRetryMs(failures, undefined, random), left ?? Infinity);
      if (!(await slept(clock, pause, signal))) return undefined;
    }
  };

  const ask = async (signal: AbortSignal, returning: Promise<unknown>): Promise<void> => {
    await returning;
    const until = mayFail && waitTimeoutMs !== undefined ? after(clock.mono(), waitTimeoutMs) : undefined;
    for (const slot of slots) {
      if (signal.aborted) return;
      if (isLive(slot.view()) || slot.finished()) continue;
      const end = await askFor(slot, until, signal);
      if (signal.aborted) return;
      if (end !== undefined) return fail(slot, end);
    }
    await Promise.all(slots.map((slot) => slot.settle()));
    await memories.open();
    if (signal.aborted) return;
    opened = true;
    decide("complete");
  };

  /** A new round. `anew`: with new attempts for all; what the old ones held is given back first. */
  const begin = (anew: boolean): void => {
    round.abort();
    round = new AbortController();
    const { signal } = round;
    if (phase !== "asking") decided = Promise.withResolvers();
    phase = "asking";
    failure = undefined;
    told = false;
    changing = true;
    const returning = anew ? slots.map((slot) => slot.giveBack("waiting")) : [];
    changing = false;
    ask(signal, Promise.all(returning)).catch((error: unknown) => {
      const failed = error instanceof Error ? error : new Error(String(error));
      log.error({ error: failed }, "asking for the pod's rights failed: beginning anew");
      void slept(clock, 1000, signal).then((whole) => {
        if (whole) begin(false);
      });
    });
  };

  const judge = (): void => {
    if (changing || phase === "failed" || phase === "ended" || lostSlot() === undefined) return;
    if (!opened) return begin(true);
    round.abort();
    if (!standby) return;
    changing = true;
    const live = slots.filter((slot) => isLive(slot.view()));
    for (const slot of live) slot.letGo();
    if (live.length === 0) for (const slot of slots) if (!slot.finished()) slot.forget();
    changing = false;
    if (live.length === 0) begin(false);
  };

  return {
    slots,
    async start() {
      opened = await memories.opened();
      if (wait === "Start" && !opened) {
        await memories.open();
        opened = true;
      }
      for (const slot of slots) await slot.restore();
      for (const slot of slots) slot.subscribe(judge);
      if (lostSlot() === undefined) begin(false);
      else judge();
    },
    heldBack() {
      if (wait === "Start" || phase === "complete" || phase === "failed") return undefined;
      const slot = slots.find((each) => !isLive(each.view()));
      if (slot === undefined) return "everything is held";
      const { state, waitingFor, trouble } = slot.view();
      const why = trouble ?? (waitingFor === undefined ? "" : `held by ${waitingFor}`);
      return `${slot.resource}: ${state}${why === "" ? "" : `: ${why}`}`;
    },
    fault() {
      const lost = lostSlot();
      if (lost !== undefined) return `${lost.resource}: lost: ${lost.view().reason}`;
      return phase === "failed" ? failure?.detail : undefined;
    },
    started(container) {
      const again = containers.has(container);
      containers.add(container);
      const over = phase === "failed" || lostSlot() !== undefined || slots.some((slot) => slot.finished());
      if (!again || !over || phase === "ended") return;
      log.info({ container }, "a container of the app started again: a new attempt");
      begin(true);
    },
    async gate(signal) {
      if (told && phase !== "ended") begin(true);
      const stopped = Promise.withResolvers<void>();
      signal.addEventListener("abort", () => stopped.resolve(), { once: true });
      await Promise.race([decided.promise, stopped.promise]);
      const lost = lostSlot();
      if (lost !== undefined) {
        told = true;
        return { kind: "lost", detail: `${lost.resource}: lost: ${lost.view().reason}` };
      }
      if (phase === "complete") return "open";
      if (failure === undefined) return undefined;
      told = true;
      return failure;
    },
    async end() {
      round.abort();
      decide("ended");
      await Promise.all(slots.map((slot) => slot.giveBack("released")));
      await Promise.all(slots.map((slot) => slot.settle()));
    },
  };
};

const failureOf = (resource: string, end: NoRight): Failure => {
  switch (end.kind) {
    case "busy":
      return { kind: "busy", detail: `${resource}: busy: ${end.detail}` };
    case "lost":
      return { kind: "lost", detail: `${resource}: lost before it was held: ${end.reason}` };
    case "refused":
      return { kind: "failed", detail: `${resource}: refused (${end.code}): ${end.detail}` };
    case "unreachable":
      return { kind: "unreachable", detail: `${resource}: the coordinator cannot be reached: ${end.detail}` };
    default: {
      const never: never = end;
      return never;
    }
  }
};
