/**
 * What a holder believes of its right, told to whoever listens.
 *
 * The state is stepped by src/core/hold.ts alone. A timer on `safeUntil` makes a right lost even while a renewal hangs;
 * where that timer is late itself (a stopped process, a blocked loop), the deadline is judged by whatever comes first.
 */
import type { Guarantee } from "../api/names.ts";
import { type Hold, type HoldEvent, type HoldState, safeForMs, shownState, stepHold } from "../core/hold.ts";
import type { LossReason } from "../core/lease.ts";
import type { Token } from "../core/token.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";

/** What an aborted `lost` signal carries. */
export class HoldLost extends Error {
  readonly resource: string;
  readonly reason: LossReason;
  constructor(resource: string, reason: LossReason, options?: ErrorOptions) {
    super(`the right to ${resource} is lost: ${reason}`, options);
    this.name = "HoldLost";
    this.resource = resource;
    this.reason = reason;
  }
}

/** A right as people and apps see it at one moment. */
export interface HoldView {
  state: HoldState;
  /** While `held` or `uncertain`. */
  token?: Token;
  guarantee?: Guarantee;
  /** Milliseconds for which the right is still safe. */
  safeForMs: number;
  /** With `lost`. */
  reason?: LossReason;
  /** Who holds it, as the Lease says, while this one waits. */
  waitingFor?: string;
  /** How many wait before this one, on the replica that answered last. */
  ahead?: number;
  /** Why the last call failed, in one line, until one succeeds. */
  trouble?: string;
}

/** What is worth telling beside the state; it decides nothing. */
export type HoldNotes = Pick<HoldView, "guarantee" | "waitingFor" | "ahead" | "trouble">;

export interface Right {
  /** The state after `event`; `notes` replace those before. Tells listeners what changed. */
  step: (event: HoldEvent, notes?: HoldNotes) => Hold;
  /** As {@link step} where only time passed. */
  now: (notes?: HoldNotes) => Hold;
  notes: () => HoldNotes;
  view: () => HoldView;
  /** `listener` hears every change from now on; returns what ends that. */
  subscribe: (listener: (view: HoldView) => void) => () => void;
  /** Aborted with {@link HoldLost} on loss. */
  readonly lost: AbortSignal;
}

interface RightDeps {
  resource: string;
  clock: Clock;
  log: Logger;
}

const tick: HoldEvent = { kind: "tick" };

export const makeRight = ({ resource, clock, log }: RightDeps): Right => {
  const lost = new AbortController();
  const listeners = new Set<(view: HoldView) => void>();
  let hold: Hold = { state: "waiting" };
  let notes: HoldNotes = {};
  let told = "";
  let cancelTimer: (() => void) | undefined;

  const viewOf = (hold: Hold): HoldView => ({
    ...notes,
    state: shownState(hold),
    safeForMs: safeForMs(hold, clock.mono()),
    ...(hold.state === "held" || hold.state === "uncertain" ? { token: hold.token } : {}),
    ...(hold.state === "lost" ? { reason: hold.reason } : {}),
  });

  const tell = (): void => {
    const view = viewOf(hold);
    const now = Object.entries({ ...view, safeForMs: 0 }).join();
    if (now === told) return;
    told = now;
    for (const listener of listeners) {
      try {
        listener(view);
      } catch (error) {
        const failed = error instanceof Error ? error : new Error(String(error));
        log.error({ resource, error: failed }, "a listener of a hold failed");
      }
    }
  };

  /** A timer may fire a little early by this clock: then it is set again. */
  const arm = (): void => {
    cancelTimer?.();
    if (hold.state !== "held" && hold.state !== "uncertain") return;
    cancelTimer = clock.timer(safeForMs(hold, clock.mono()), () => {
      step(tick);
      arm();
    });
  };

  const step = (event: HoldEvent, next: HoldNotes = notes): Hold => {
    const before = hold;
    notes = next;
    hold = stepHold(hold, event, clock.mono());
    if (hold !== before) arm();
    if (hold.state === "lost" && before.state !== "lost") {
      log.warn({ resource, reason: hold.reason }, "the right is lost");
      lost.abort(new HoldLost(resource, hold.reason));
    }
    tell();
    return hold;
  };

  return {
    step,
    now: (notes) => step(tick, notes),
    notes: () => notes,
    view: () => viewOf(step(tick)),
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    lost: lost.signal,
  };
};
