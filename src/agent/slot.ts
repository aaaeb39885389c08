/**
 * One resource of the pod: the attempt that stands for it now, what the app is shown of it, and what is remembered.
 *
 * An attempt that ended never holds again; a slot may be given the next one.
 */
import type { LossReason } from "../core/lease.ts";
import type { Holder, Holding, ReleaseEnd } from "../holder/holder.ts";
import type { HoldView } from "../holder/right.ts";
import type { WaitEnd } from "../holder/wait.ts";
import type { Grant } from "../holder/wire.ts";
import type { Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Moments } from "../runtime/moment.ts";
import type { AppFiles } from "./files.ts";
import type { Memories, Memory } from "./memory.ts";

export interface SlotDeps {
  holder: Holder;
  memories: Memories;
  moments: Moments;
  files: AppFiles;
  random: Random;
  log: Logger;
  /** What people see as the holder's name. */
  label: string | undefined;
}

export interface Slot {
  /** Without the namespace. */
  readonly name: string;
  /** `namespace/name`. */
  readonly resource: string;
  view(): HoldView;
  /** Whether the app said that its work with this resource is over. */
  finished(): boolean;
  subscribe(listener: (view: HoldView) => void): () => void;
  /** Takes up what an agent before this one left. To be called once, first. */
  restore(): Promise<void>;
  /** Asks for the right, with a new attempt or the one that was left unanswered; resolves when the wait is over. */
  acquire(options: { waitMs?: number; contactMs?: number }, signal: AbortSignal): Promise<WaitEnd>;
  /** Says why the next try has to wait. */
  trouble(text: string): void;
  /** Ends the attempt and gives it back; shown as `next` from now on, unless it is lost and over for good. */
  giveBack(next: "waiting" | "released"): Promise<ReleaseEnd>;
  /** As {@link giveBack}, by the app's own word. */
  finish(): Promise<ReleaseEnd>;
  /** Renews no more: the right runs out by its own term. */
  letGo(): void;
  /** Forgets an attempt that is over. */
  forget(): void;
  /** Resolves when memory and files say what the view said at this moment, or later. */
  settle(): Promise<void>;
}

export const isLive = ({ state }: HoldView): boolean => state === "held" || state === "uncertain";

/** One pass at a time; who asks during one is served by the next, all together. */
const coalesced = (pass: () => Promise<void>): (() => Promise<void>) => {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  const start = (): Promise<void> => {
    running = pass().finally(() => {
      running = undefined;
    });
    return running;
  };
  return () => {
    if (running === undefined) return start();
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined;
        return start();
      });
    return next;
  };
};

const endOf = ({ state, reason }: HoldView): LossReason | undefined => {
  if (state === "lost") return reason ?? "deadline";
  return state === "released" ? "released" : undefined;
};

export const makeSlot = (namespace: string, name: string, deps: SlotDeps): Slot => {
  const { holder, memories, moments, files, random, log } = deps;
  const resource = `${namespace}/${name}`;
  const listeners = new Set<(view: HoldView) => void>();
  let current: Holding | undefined;
  let grant: Grant | undefined;
  let attempt: string | undefined;
  /** Shown while no attempt stands for the resource. */
  let rest: HoldView = { state: "waiting", safeForMs: 0 };
  let finished = false;

  const view = (): HoldView => current?.view() ?? rest;

  const memoryOf = (seen: HoldView): Memory | undefined => {
    if (attempt === undefined) return undefined;
    const ended = finished ? "released" : endOf(seen);
    return {
      attempt,
      ...(grant === undefined ? {} : { grant, deadline: moments.in(seen.safeForMs) }),
      ...(ended === undefined ? {} : { ended }),
    };
  };

  const show = (seen: HoldView): Promise<void> =>
    files.show({
      state: seen.state,
      token: seen.token?.toString(),
      holding: `${JSON.stringify(holdingOf(resource, seen, moments))}\n`,
    });

  // What is gained is remembered before it is shown; what is lost disappears first.
  const settle = coalesced(async () => {
    const seen = view();
    const memory = memoryOf(seen);
    if (!isLive(seen)) await show(seen);
    await memories.write(name, memory);
    if (isLive(seen)) await show(seen);
  });

  const changed = (): void => {
    const seen = view();
    for (const listener of listeners) listener(seen);
    settle().catch((error: unknown) => {
      const failed = error instanceof Error ? error : new Error(String(error));
      log.error({ resource, error: failed }, "the state of a right cannot be written");
    });
  };

  const onTerm = (known: Grant): void => {
    grant = known;
    changed();
  };

  const take = (holding: Holding): void => {
    current = holding;
    holding.subscribe(() => {
      if (current === holding) changed();
    });
  };

  const detach = (next: HoldView): Holding | undefined => {
    const before = current;
    current = undefined;
    rest = next;
    return before;
  };

  const releaseOf = async (holding: Holding | undefined): Promise<ReleaseEnd> => {
    const end = (await holding?.release()) ?? { kind: "never_held" };
    if (end.kind !== "never_held") log.info({ resource, outcome: end.kind }, "the right was given back");
    return end;
  };

  const giveBack: Slot["giveBack"] = async (next) => {
    if (next === "released") {
      const end = await releaseOf(current);
      if (current === undefined && rest.state === "waiting") rest = { state: "released", safeForMs: 0 };
      changed();
      return end;
    }
    const before = detach({ state: "waiting", safeForMs: 0 });
    attempt = undefined;
    grant = undefined;
    finished = false;
    changed();
    return releaseOf(before);
  };

  return {
    name,
    resource,
    view,
    finished: () => finished,
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async restore() {
      const memory = await memories.read(name);
      attempt = memory?.attempt;
      grant = memory?.grant;
      finished = memory?.ended === "released";
      if (memory?.grant === undefined) {
        if (finished) rest = { state: "released", safeForMs: 0 };
      } else {
        const over = memory.deadline === undefined || memory.ended !== undefined;
        const safeForMs = over || memory.deadline === undefined ? 0 : moments.until(memory.deadline);
        log.info({ resource, attempt, token: memory.grant.token, safeForMs }, "a right of the agent before");
        const holding = holder.hold({
          resource,
          attempt: memory.attempt,
          label: deps.label,
          resume: { grant: memory.grant, safeForMs },
          onTerm,
        });
        if (finished) {
          rest = { state: "released", safeForMs: 0 };
          void releaseOf(holding);
        } else if (memory.ended !== undefined && memory.ended !== "deadline") {
          rest = { state: "lost", reason: memory.ended, safeForMs: 0 };
        } else {
          take(holding);
        }
      }
      await settle();
    },
    async acquire({ waitMs, contactMs }, signal) {
      const own = (attempt ??= random.uuid());
      rest = { state: "waiting", safeForMs: 0 };
      await settle();
      if (signal.aborted) return { kind: "given_up" };
      const holding = holder.hold(
        { resource, attempt: own, label: deps.label, waitMs, contactMs, onTerm },
        signal,
      );
      take(holding);
      changed();
      const end = await holding.granted;
      if (end.kind === "granted") {
        log.info({ resource, attempt: own, token: end.token, guarantee: end.guarantee }, "granted");
        return end;
      }
      if (current === holding) {
        detach({ state: finished ? "released" : "waiting", safeForMs: 0 });
        attempt = undefined;
        grant = undefined;
        changed();
      }
      // It may have been granted too late to be a right.
      await releaseOf(holding);
      return end;
    },
    trouble(text) {
      if (current !== undefined || rest.state !== "waiting") return;
      rest = { ...rest, trouble: text };
      changed();
    },
    giveBack,
    async finish() {
      finished = true;
      // Should the agent end in the middle, the next one knows that this right is not to be renewed.
      await settle().catch(() => {});
      return giveBack("released");
    },
    letGo: () => current?.letGo(),
    forget() {
      detach({ state: "waiting", safeForMs: 0 });
      attempt = undefined;
      grant = undefined;
      changed();
    },
    settle,
  };
};

/** A right as the API and `holding.json` show it. */
export const holdingOf = (resource: string, seen: HoldView, moments: Moments) => ({
  resource,
  state: seen.state,
  token: seen.token?.toString() ?? null,
  guarantee: seen.guarantee ?? null,
  safeForMs: Math.floor(seen.safeForMs),
  /** Milliseconds since the machine's boot, as in /proc/uptime: lets a reader judge by its own clock. */
  safeUntilUptimeMs: isLive(seen) ? floorOf(moments.in(seen.safeForMs).uptime) : null,
  ...(seen.reason === undefined ? {} : { reason: seen.reason }),
  ...(seen.waitingFor === undefined ? {} : { waitingFor: seen.waitingFor }),
  ...(seen.ahead === undefined ? {} : { ahead: seen.ahead }),
  ...(seen.trouble === undefined ? {} : { trouble: seen.trouble }),
});

const floorOf = (value: number | null): number | null => (value === null ? null : Math.floor(value));
