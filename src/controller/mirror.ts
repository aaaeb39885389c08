/** The part of the status that repeats, for people, what Lease, sequence and replicas say. It decides nothing. */
import type { FencedResourceStatus } from "../api/fencedresource.ts";
import { grantedToken } from "../core/lease.ts";
import { type MonoTime, after, elapsed } from "../core/time.ts";
import { higher, noToken, parseToken, type Token } from "../core/token.ts";
import type { FencedLease } from "../kube/leases.ts";

export type HolderMirror = NonNullable<FencedResourceStatus["holder"]>;

const expiredMark = " (expired)";

/** Did the status say that the lease of this holder ran out? */
export const saidExpired = (holder: HolderMirror | undefined): boolean =>
  holder?.display.endsWith(expiredMark) ?? false;

/** Did it say so of this very holder and token? */
export const toldExpired = (status: FencedResourceStatus | undefined, { view }: FencedLease): boolean =>
  saidExpired(status?.holder) &&
  status?.holder?.identity === view.holder &&
  status?.holder?.token === grantedToken(view).toString();

/** What people call a holder: its own words, its pod, or its identity. */
export const nameOf = (holder: Pick<HolderMirror, "identity" | "label" | "pod">): string =>
  holder.label ?? holder.pod ?? holder.identity;

/** Who holds the resource by its Lease. A void credit grants nothing, so its holder is shown with token 0. */
export const holderMirror = (lease: FencedLease | undefined, expired: boolean): HolderMirror | undefined => {
  const view = lease?.view;
  if (lease === undefined || view?.holder === undefined) return undefined;
  const { pod, label } = view.note ?? {};
  const names = {
    identity: view.holder,
    ...(pod === undefined ? {} : { pod }),
    ...(label === undefined ? {} : { label }),
  };
  return {
    ...names,
    display: nameOf(names) + (expired ? expiredMark : ""),
    token: grantedToken(view).toString(),
    since: lease.object.spec.acquireTime ?? lease.object.spec.renewTime ?? "1970-01-01T00:00:00Z",
  };
};

/** The number of a mirror; none where it was never written. */
export const numberOf = (text: string | undefined): Token | undefined =>
  text === undefined ? undefined : parseToken(text);

/** Highest token granted, which stays when a Lease is deleted, and the sequence's ceiling as last read. */
export const tokensMirror = (
  before: FencedResourceStatus["tokens"],
  lease: FencedLease | undefined,
  ceiling: Token | undefined,
): NonNullable<FencedResourceStatus["tokens"]> => {
  const granted = higher(
    numberOf(before?.granted) ?? noToken,
    lease === undefined ? noToken : grantedToken(lease.view),
  );
  const top = ceiling ?? numberOf(before?.ceiling);
  return { granted: granted.toString(), ...(top === undefined ? {} : { ceiling: top.toString() }) };
};

/** A report of one replica, and since when it has stood like this. */
export interface Beat {
  report: string;
  since: MonoTime;
}

/** A replica that waits for somebody repeats its report well within this time: one that stands still is gone. */
const beatMs = 60_000;

export interface Waiters {
  total: number;
  byReplica: NonNullable<FencedResourceStatus["waitersByReplica"]>;
  beats: Map<string, Beat>;
  /** When the next report will have stood still for too long. */
  dueAt: MonoTime | undefined;
}

/** Who waits, by reports that are alive. */
export const waitersOf = (
  reports: FencedResourceStatus["waitersByReplica"],
  known: ReadonlyMap<string, Beat>,
  now: MonoTime,
): Waiters => {
  const waiters: Waiters = { total: 0, byReplica: {}, beats: new Map(), dueAt: undefined };
  for (const [replica, entry] of Object.entries(reports ?? {})) {
    const report = `${entry.count}/${entry.beat ?? ""}`;
    const before = known.get(replica);
    const beat = before?.report === report ? before : { report, since: now };
    waiters.beats.set(replica, beat);
    if (elapsed(beat.since, now) >= beatMs) continue;
    waiters.total += entry.count;
    waiters.byReplica[replica] = entry;
    const due = after(beat.since, beatMs);
    if (waiters.dueAt === undefined || due < waiters.dueAt) waiters.dueAt = due;
  }
  return waiters;
};
