/**
 * Leader election on a Lease, for what should be done once in a cluster: reconcilers.
 *
 * | state | what happens | next |
 * | --- | --- | --- |
 * | standby | the Lease may be had, and the write succeeded in time | leading |
 * | standby | stop | ended; nothing is written |
 * | leading | renewed | leading, until the new deadline |
 * | leading | deadline, Lease names another or nobody, or is gone | lost: work aborted, then standby |
 * | leading | stop, or the work ended | work aborted, still renewed until it ended, released |
 *
 * The deadline counts from before the request that proved it was sent, less a margin, so that it comes before anybody
 * could take the Lease. Decisions are those of src/core/election.ts.
 */
import type { LeaseObject } from "../api/lease.ts";
import { type Ballot, nextMove, type Sighting, sight } from "../core/election.ts";
import { safeUntil } from "../core/hold.ts";
import { nextRenewTime } from "../core/lease.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import { formatMicroTime, parseMicroTime } from "../runtime/microtime.ts";
import { leaseKind } from "./kinds.ts";
import type { KubeClient, WriteResult } from "./types.ts";

export interface Election {
  /** Competes, leads and competes again until `signal` is aborted; resolves when all of it has ended. */
  run(signal: AbortSignal): Promise<void>;
  /** Asks the clock too: a process that was suspended knows it at once. */
  isLeader(): boolean;
}

export interface ElectionOptions {
  client: Pick<KubeClient, "get" | "create" | "update">;
  /** The Lease. It is made where it is missing. */
  ref: { namespace: string; name: string };
  /** Who we are: the pod's name and something that no other start of it shares. */
  identity: string;
  /** The work of a leader. Ends soon after its signal is aborted; leadership is given back when it ends by itself. */
  lead(signal: AbortSignal): Promise<void>;
  durationSeconds?: number | undefined;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** How long a request may take whose answer nobody waits for after the process was told to end. */
const releaseMs = 2000;
/** The deadline is looked at this often: timers stand still while a machine is suspended. */
const glanceMs = 1000;

const ballotOf = ({ metadata, spec }: LeaseObject): Ballot => ({
  uid: metadata.uid,
  terminating: metadata.deletionTimestamp !== undefined,
  holder: spec.holderIdentity,
  durationSeconds: spec.leaseDurationSeconds,
  renewTime: spec.renewTime,
});

export const makeElection = (options: ElectionOptions): Election => {
  const { client, ref, identity, clock, random, log, durationSeconds = 15 } = options;
  const renewMs = (durationSeconds * 1000) / 3;
  const retryMs = renewMs / 5;
  const pollMs = retryMs * 2;
  const fields = { lease: `${ref.namespace}/${ref.name}`, holder: identity };

  let sighting: Sighting | undefined;
  /** Until when leadership is certain; undefined while there is none. */
  let until: MonoTime | undefined;
  /** Our Lease as last written or read. */
  let ours: LeaseObject | undefined;
  /** The Lease may name us, also where we do not lead: a write without an answer, a leadership that ran out. */
  let claimed = false;
  let complaint: string | undefined;

  const certain = (): boolean => until !== undefined && clock.mono() < until;
  const jittered = (ms: number): number => ms * (0.5 + random.float() / 2);
  const pause = (ms: number, signal: AbortSignal): Promise<void> => clock.sleep(ms, signal).catch(() => {});

  /** Said once, however often it repeats: an outage is one line, not one per try. */
  const complain = (text: string | undefined): void => {
    if (text !== undefined && text !== complaint)
      log.warn({ ...fields, error: text }, "leader election hindered");
    complaint = text;
  };

  const attempt = async <T>(act: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await act();
    } catch (error) {
      complain(asError(error).message);
      return undefined;
    }
  };

  /** A request bounded in time. By a timer of its own: the process may be ending, and it still has to be answered. */
  const bounded = async <T>(ms: number, ask: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    const bound = new AbortController();
    const cancel = clock.timer(ms, () => bound.abort(new Error(`no answer within ${ms} ms`)));
    try {
      return await ask(bound.signal);
    } finally {
      cancel();
    }
  };

  const read = async (): Promise<LeaseObject | undefined> => {
    const found = await bounded(renewMs, (signal) => client.get(leaseKind, ref, signal));
    const lease = found.outcome === "found" ? found.object : undefined;
    sighting = sight(sighting, lease && ballotOf(lease), durationSeconds, clock.mono());
    complain(undefined);
    return lease;
  };

  const specAfter = (old: LeaseObject | undefined, holder: string): LeaseObject["spec"] => {
    const last = old?.spec.renewTime === undefined ? undefined : parseMicroTime(old.spec.renewTime);
    const renewTime = formatMicroTime(nextRenewTime(last, clock.wall()));
    const spec = { ...old?.spec, holderIdentity: holder, leaseDurationSeconds: durationSeconds, renewTime };
    if (holder === "" || holder === old?.spec.holderIdentity) return spec;
    return {
      ...spec,
      acquireTime: renewTime,
      leaseTransitions: old ? (old.spec.leaseTransitions ?? 0) + 1 : 0,
    };
  };

  /** Writes the Lease in our name. The new deadline, or undefined where that is not known to have succeeded. */
  const claim = async (old: LeaseObject | undefined): Promise<MonoTime | undefined> => {
    const spec = specAfter(old, identity);
    const sentAt = clock.mono();
    claimed = true;
    const result = await bounded(
      renewMs,
      (signal): Promise<WriteResult<LeaseObject>> =>
        old
          ? client.update(leaseKind, { ...old, spec }, signal)
          : client.create(leaseKind, { metadata: ref, spec }, signal),
    );
    if (result.outcome === "unknown" || result.outcome === "unavailable" || result.outcome === "refused")
      complain(result.message);
    if (result.outcome !== "ok") return undefined;
    ours = result.object;
    return safeUntil(sentAt, durationSeconds * 1000);
  };

  /** One look at the Lease, and one write where it can be had. */
  const compete = async (signal: AbortSignal): Promise<MonoTime | undefined> => {
    const lease = await read();
    if (signal.aborted) return undefined;
    const move = nextMove(lease && ballotOf(lease), identity, sighting, clock.mono());
    return move === "wait" ? undefined : claim(lease);
  };

  /** The new deadline, `lost`, or undefined where neither is known. */
  const renew = async (): Promise<MonoTime | "lost" | undefined> => {
    const deadline = await claim(ours);
    if (deadline !== undefined) return deadline;
    const lease = await read();
    if (!lease || lease.spec.holderIdentity !== identity || ballotOf(lease).terminating) return "lost";
    ours = lease;
    return undefined;
  };

  /** Leads from a won Lease on; resolves when the work has ended. */
  const lead = async (first: MonoTime, signal: AbortSignal): Promise<void> => {
    until = first;
    log.info(fields, "leading");
    const work = new AbortController();
    const ended = new AbortController();
    const stop = () => work.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    const working = (async () => {
      try {
        await options.lead(work.signal);
      } catch (error) {
        if (!work.signal.aborted)
          log.error({ ...fields, error: asError(error) }, "work of the leader failed");
      }
      ended.abort();
    })();
    const lose = (): void => {
      until = undefined;
      if (!work.signal.aborted) log.warn(fields, "leadership lost");
      work.abort(new Error("leadership lost"));
    };

    let next = clock.mono() + renewMs;
    let renewing: Promise<void> | undefined;
    const renewOnce = async (): Promise<void> => {
      const renewed = await attempt(renew);
      renewing = undefined;
      // Once lost it stays lost, whatever answer comes later.
      if (!certain()) return;
      if (renewed === "lost") return lose();
      if (renewed !== undefined) until = renewed;
      next = clock.mono() + (renewed === undefined ? jittered(retryMs) : renewMs);
    };

    // The deadline is judged apart from the renewal, which may hang.
    while (!ended.signal.aborted) {
      const now = clock.mono();
      if (until !== undefined && now >= until) lose();
      if (until === undefined) break;
      if (now >= next) renewing ??= renewOnce();
      const nextMs = renewing ? glanceMs : next - now;
      await pause(Math.min(glanceMs, nextMs, elapsed(now, until)), ended.signal);
    }
    await working;
    await renewing;
    signal.removeEventListener("abort", stop);
  };

  /** Clears the holder where that is us, so that the next one need not wait. */
  const release = async (): Promise<void> => {
    if (!certain()) {
      if (!claimed) return;
      const lease = await read();
      ours = lease?.spec.holderIdentity === identity ? lease : undefined;
    }
    const lease = ours;
    until = undefined;
    ours = undefined;
    claimed = false;
    if (!lease) return;
    const draft = { ...lease, spec: specAfter(lease, "") };
    const result = await bounded(releaseMs, (signal) => client.update(leaseKind, draft, signal));
    if (result.outcome === "ok") log.info(fields, "leadership released");
    else complain(result.message);
  };

  const run = async (signal: AbortSignal): Promise<void> => {
    while (!signal.aborted) {
      const won = await attempt(() => compete(signal));
      if (won !== undefined && clock.mono() < won) await lead(won, signal);
      if (certain()) await attempt(release);
      await pause(jittered(pollMs), signal);
    }
    await attempt(release);
  };

  return { run, isLeader: certain };
};

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
