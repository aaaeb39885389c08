/**
 * The coordinator: orders acquisitions and hands out tokens, by compare-and-set on Leases alone.
 *
 * Any number of replicas may run; none of them is special. Each request reads what it needs, decides by src/core, writes
 * once, and answers only after the boundary knows the token. What a replica remembers (book, waiters) makes it fast and
 * fair; nothing that it remembers makes it right.
 */
import { claim, type HolderNote, holderId } from "../core/lease.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { after, elapsed, type MonoTime } from "../core/time.ts";
import type { Token } from "../core/token.ts";
import { KubeError } from "../kube/errors.ts";
import { keyOf, type ResourceName } from "../kube/leases.ts";
import { type Caller, type Granted, type Refusal, refuse, type Released, type Renewed } from "./answers.ts";
import { type Deps, partMs, readFresh } from "./deps.ts";
import { type Acquisition, type Step, tryAcquire, unknownResource } from "./grant.ts";
import { force, release, renew } from "./keep.ts";
import { makeWaiters, type Place, type WaitLimits } from "./waiters.ts";

export interface AcquireCall {
  resource: ResourceName;
  caller: Caller;
  note: HolderNote | undefined;
  /** Milliseconds that the caller is ready to wait. */
  waitMs: number;
}

/** Every call answers with a value, also when something is away: the code says what the caller can do. */
export interface Coordinator {
  /** `signal`: the caller went away. Its place is kept for a moment; nothing is committed for it. */
  acquire(call: AcquireCall, signal: AbortSignal): Promise<Granted | Refusal>;
  renew(resource: ResourceName, caller: Caller, token: Token): Promise<Renewed | Refusal>;
  release(resource: ResourceName, caller: Caller, token: Token): Promise<Released | Refusal>;
  /** `by` and `reason` go on record. */
  force(resource: ResourceName, by: string, reason: string): ReturnType<typeof force>;
  /** Attempts that wait on this replica. */
  waiting(resource: ResourceName): number;
  /** From now on nobody waits and nothing is granted; renewals and releases go on. */
  drain(): void;
}

export interface CoordinatorOptions {
  limits?: WaitLimits;
  /** Hears how many wait for `namespace/name` on this replica, whenever that changes. */
  onWaiting?: (resource: string, waiting: number) => void;
  /** Hears of a call that begins to wait, and again whenever somebody else has the resource meanwhile. */
  onWait?: (call: AcquireCall) => void;
}

/** How long a loser gives the watch to show it the winner before it asks. */
const patienceMs = 250;

const draining = (): Refusal =>
  refuse("not_ready", "this replica is shutting down: ask another one", {
    condition: "Ready/Draining",
    retryAfterMs: 0,
  });

const busy = (resource: ResourceName, place: Place, holder: string | undefined): Refusal =>
  refuse(
    "busy",
    `${keyOf(resource)} is held${holder === undefined ? " or not free yet" : ` by ${holder}`}: wait, or ask again`,
    {
      holder,
      aheadOnThisReplica: place.ahead(),
      retryAfterMs: 1000,
    },
  );

export const makeCoordinator = (deps: Deps, options: CoordinatorOptions = {}): Coordinator => {
  const { book, clock, metrics, random, resources } = deps;
  const stop = new AbortController();
  const waiters = makeWaiters(
    clock,
    (resource, waiting) => {
      metrics.acquireWaiters.set(waiters.total());
      options.onWaiting?.(resource, waiting);
    },
    options.limits,
  );

  /** The resource, or undefined once the API server itself has said that there is none. */
  const find = async (name: ResourceName): Promise<ResourceSpec | undefined> => {
    const cached = resources.cached(name);
    const found = cached === undefined || cached.deleted ? await resources.fresh(name) : cached;
    return found?.deleted ? undefined : found;
  };

  /** Waits until something about the resource changed, `until` came, or the caller or this replica stops. */
  const pause = async (until: MonoTime, signal: AbortSignal, armed: Armed): Promise<void> => {
    const ms = elapsed(clock.mono(), until);
    if (armed.rung || signal.aborted || ms <= 0) return;
    await new Promise<void>((resolve) => {
      const wake = () => {
        cancel();
        signal.removeEventListener("abort", wake);
        resolve();
      };
      const cancel = clock.timer(ms, wake);
      armed.wake = wake;
      signal.addEventListener("abort", wake);
    });
    armed.wake = undefined;
  };

  /** One try after the other, first in, first out, until granted, refused, or out of time. */
  const queue = async (
    asked: Omit<Acquisition, "resource"> & { resource: ResourceName },
    place: Place,
    deadline: MonoTime,
    waits: () => void,
  ): Promise<Granted | Refusal> => {
    const { resource, signal } = asked;
    // Who has it already does not stand in line behind those who wait for it.
    const isNext = () =>
      place.ahead() === 0 || claim(book.get(resource)?.lease.view, asked.me).kind === "mine";
    const armed: Armed = { rung: false, wake: undefined };
    const ring = () => {
      armed.rung = true;
      armed.wake?.();
    };
    const quiet = [book.onChange(resource, ring), waiters.onChange(keyOf(resource), ring)];
    let holder: string | undefined;
    let told: string | undefined;
    let conflicts = 0;
    try {
      for (;;) {
        armed.rung = false;
        let until = deadline;
        if (isNext()) {
          // A wait is long enough for another spec: suspended, deleted, a higher floor.
          const spec = await find(resource);
          if (spec === undefined) return unknownResource(keyOf(resource));
          const step: Step = await tryAcquire(deps, { ...asked, resource: spec });
          if (step.step === "done") return step.answer;
          if (step.step === "again") {
            conflicts += 1;
            const moved = after(clock.mono(), conflicts === 1 ? patienceMs : partMs(random));
            await pause(moved, signal, armed);
            if (!armed.rung || conflicts > 1) await readFresh(deps, resource);
            if (conflicts < 8) continue;
          } else if (step.step === "wait") {
            conflicts = 0;
            holder = step.holder;
            until = step.until < deadline ? step.until : deadline;
          }
        }
        if (stop.signal.aborted) return draining();
        if (signal.aborted || clock.mono() >= deadline)
          return busy(resource, place, holder ?? holderNow(resource));
        const has = holderNow(resource) ?? "nobody yet";
        if (has !== told) waits();
        told = has;
        await pause(until, signal, armed);
      }
    } finally {
      for (const end of quiet) end();
    }
  };

  const holderNow = (resource: ResourceName): string | undefined => book.get(resource)?.lease.view.holder;

  const acquire = async (call: AcquireCall, gone: AbortSignal): Promise<Granted | Refusal> => {
    if (stop.signal.aborted) return draining();
    const deadline = after(clock.mono(), call.waitMs);
    const { resource, note } = call;
    const me = holderId(call.caller.identity, call.caller.attempt);
    const signal = AbortSignal.any([gone, stop.signal]);
    const place = waiters.join(keyOf(resource), me, call.caller.identity);
    if (place === undefined)
      return refuse("overloaded", `too many attempts wait for ${keyOf(resource)}: come back later`, {
        retryAfterMs: 5000,
      });
    try {
      const answer = await queue({ resource, me, note, signal }, place, deadline, () =>
        options.onWait?.(call),
      );
      // Only who waits keeps a place: a single question leaves nothing behind.
      if (answer.outcome !== "refused" || answer.code !== "busy" || call.waitMs === 0) place.leave();
      return answer;
    } finally {
      place.pause();
    }
  };

  /** The API server did not answer a read: nothing is known, and nobody may take that for a no. */
  const unavailable = (error: unknown, resource: ResourceName): Refusal => {
    if (!(error instanceof KubeError)) throw error;
    const { message } = error;
    deps.log.warn({ resource: keyOf(resource), error: message }, "the API server does not answer");
    return refuse("store_unavailable", `the API server does not answer: ${message}`, { retryAfterMs: 1000 });
  };

  const timed = async <A extends { outcome: string }>(
    resource: ResourceName,
    run: () => Promise<A | Refusal>,
    report: (outcome: string, seconds: number) => void,
  ): Promise<A | Refusal> => {
    const started = clock.mono();
    const answer = await run().catch((error: unknown) => unavailable(error, resource));
    if (answer.outcome === "refused" && "code" in answer) {
      if (answer.code === "lost" && answer.extras.reason !== undefined)
        metrics.leaseLostTotal.inc({ reason: answer.extras.reason });
      report(answer.code, elapsed(started, clock.mono()) / 1000);
    } else report(answer.outcome, elapsed(started, clock.mono()) / 1000);
    return answer;
  };

  return {
    acquire: (call, gone) =>
      timed(
        call.resource,
        () => acquire(call, gone),
        (outcome, seconds) => {
          metrics.acquireTotal.inc({ outcome });
          metrics.acquireDuration.observe(seconds);
        },
      ),

    renew: (name, caller, token) =>
      timed<Renewed>(
        name,
        async () => {
          const resource = await find(name);
          if (resource === undefined)
            return refuse("lost", `there is no FencedResource ${keyOf(name)} any more`, {
              reason: "deleted",
            });
          return renew(deps, resource, caller, token);
        },
        (outcome, seconds) => {
          metrics.renewTotal.inc({ outcome });
          metrics.renewDuration.observe(seconds);
        },
      ),

    release: (name, caller, token) =>
      timed<Released>(
        name,
        () => release(deps, name, caller, token),
        (outcome) => {
          metrics.releaseTotal.inc({ outcome });
        },
      ),

    async force(name, by, reason) {
      const resource = await find(name).catch((error: unknown) => unavailable(error, name));
      if (resource === undefined) return unknownResource(keyOf(name));
      if ("outcome" in resource) return resource;
      deps.log.warn({ resource: keyOf(name), by, reason }, "taken away by force");
      return force(deps, name, `${by}: ${reason}`).catch((error: unknown) => unavailable(error, name));
    },

    waiting: (resource) => waiters.count(keyOf(resource)),

    drain() {
      stop.abort();
    },
  };
};

/** Whether something rang since the last look, and whom to wake when it does. */
interface Armed {
  rung: boolean;
  wake: (() => void) | undefined;
}
