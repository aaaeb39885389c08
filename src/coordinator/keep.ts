/**
 * What happens to a right after its grant: renewed, given back, taken away.
 *
 * Each is one conditional write. The cache may say yes, as the write proves it; only a fresh read says no. [R]
 */
import {
  believable,
  forced,
  type HolderId,
  holderId,
  leaseFormat,
  type LeaseChange,
  lossReason,
  released,
  type Renewal,
  renewal,
  renewed,
  validCredit,
} from "../core/lease.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { renewAfterMs } from "../core/timing.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf, type ResourceName } from "../kube/leases.ts";
import { raiseAbove } from "../store/raise.ts";
import { type Caller, type Refusal, refuse, type Released, type Renewed } from "./answers.ts";
import type { Known } from "./book.ts";
import { type Deps, notWritten, partMs, readFresh } from "./deps.ts";

/** How often one request tries again after a conflict or an answer that got lost. */
const rounds = 5;

const busyWriting = (key: string): Refusal =>
  refuse(
    "outcome_unknown",
    `the Lease of ${key} keeps changing, or the API server loses its answers: ask again`,
    {
      retryAfterMs: 200,
    },
  );

const notOwner = (): Refusal =>
  refuse("forbidden", "this attempt was made by another identity: choose an attempt of your own");

const formatTooNew = (key: string, format: number): Refusal =>
  refuse("not_ready", `the Lease of ${key} has format ${format}: upgrade this replica`, {
    condition: "LeaseBound/NewerFormat",
  });

const renewedAnswer = (resource: ResourceSpec): Renewed => ({
  outcome: "renewed",
  leaseDurationMs: resource.durationSeconds * 1000,
  renewAfterMs: renewAfterMs(resource.durationSeconds, resource.renewIntervalSeconds),
});

/** Renews for a whole term, if attempt and token are the Lease's. */
export const renew = async (
  deps: Deps,
  resource: ResourceSpec,
  caller: Caller,
  token: Token,
): Promise<Renewed | Refusal> => {
  const me = holderId(caller.identity, caller.attempt);
  for (let round = 0; round < rounds; round += 1) {
    if (round > 1) await deps.clock.sleep(partMs(deps.random));
    const cached = round === 0 ? deps.book.get(resource) : undefined;
    const hopeful = cached !== undefined && renewal(cached.lease.view, me, token).kind === "renew";
    const known = hopeful ? cached : await readFresh(deps, resource);
    const decided = renewal(known?.lease.view, me, token);
    if (known === undefined || decided.kind !== "renew")
      return refuseRenewal(deps, resource, known, decided, token);
    const change = renewed(known.lease.view, resource.durationSeconds, deps.clock.wall());
    const written = await deps.leases.write(resource, known.lease, change);
    if (written.outcome === "ok") {
      const age = deps.clock.mono() - known.observation.since;
      deps.metrics.leaseAge.observe(age / 1000);
      deps.book.put(resource, written.object);
      return renewedAnswer(resource);
    }
    if (written.outcome === "refused" || written.outcome === "unavailable")
      return notWritten(deps, resource, written);
    if (written.outcome === "unknown") {
      const now = await readFresh(deps, resource);
      const applied = now !== undefined && now.lease.view.renewTime === change.renewTime;
      if (applied && renewal(now.lease.view, me, token).kind === "renew") return renewedAnswer(resource);
    }
  }
  return busyWriting(keyOf(resource));
};

const refuseRenewal = async (
  deps: Deps,
  resource: ResourceSpec,
  known: Known | undefined,
  decided: Renewal,
  token: Token,
): Promise<Refusal> => {
  const lost = (reason: string) =>
    refuse("lost", `this attempt does not hold ${keyOf(resource)} any more: acquire with a new one`, {
      reason,
    });
  switch (decided.kind) {
    case "newer":
      return formatTooNew(keyOf(resource), decided.format);
    case "forbidden":
      return notOwner();
    case "regressed": {
      const ceiling = (known && validCredit(known.lease.view)?.ceiling) ?? noToken;
      return (await testimony(deps, resource, known, ceiling, token)) ?? lost(decided.reason);
    }
    case "lost": {
      if (decided.reason !== "deleted") return lost(decided.reason);
      // The Lease remembers no token at all. A deleted one is ordinary: the sequence knows what it was lent.
      const sequence = await deps.storeOf(resource)?.read(keyOf(resource));
      const restored = sequence?.state === "open" && token > sequence.ceiling;
      const invalid = restored ? await testimony(deps, resource, known, sequence.ceiling, token) : undefined;
      return invalid ?? lost(decided.reason);
    }
    case "renew":
      return lost("deleted");
    default: {
      const never: never = decided;
      return never;
    }
  }
};

/** Somebody shows a token above `ceiling`, up to which we know of grants: believed within reason, and mended. */
const testimony = async (
  deps: Deps,
  resource: ResourceSpec,
  known: Known | undefined,
  ceiling: Token,
  token: Token,
): Promise<Refusal | undefined> => {
  if (token > ceiling + believable)
    return refuse("invalid_request", `token ${token} was never granted for ${keyOf(resource)}`, {
      field: "token",
    });
  await mend(deps, resource, known?.lease, token);
  return undefined;
};

/**
 * Somebody holds a token that this Lease never granted, so the Lease went back in time: nobody is granted anything before
 * the sequence stands above it. Where the mend fails this replica remembers, and its next grant does it.
 */
const mend = async (
  deps: Deps,
  resource: ResourceSpec,
  lease: FencedLease | undefined,
  seen: Token,
): Promise<void> => {
  const key = keyOf(resource);
  deps.log.warn(
    { resource: key, token: seen },
    "a caller holds a token above the Lease; raising the sequence",
  );
  deps.book.testify(resource, seen);
  const store = deps.storeOf(resource);
  if (store === undefined) return;
  const suspect = deps.book.suspect(resource);
  const raised = await raiseAbove(deps, store, resource, lease, higher(seen, suspect?.seen ?? seen));
  if (raised.outcome !== "raised") return;
  if (raised.lease !== undefined) deps.book.put(resource, raised.lease);
  if (suspect !== undefined) deps.book.mended(resource, suspect);
};

/** Gives the right back. Late or repeated it changes nothing and says why. */
export const release = async (
  deps: Deps,
  resource: ResourceName,
  caller: Caller,
  token: Token,
): Promise<Released | Refusal> => {
  const me = holderId(caller.identity, caller.attempt);
  return vacate(deps, resource, {
    may: (known) => {
      const decided = renewal(known?.lease.view, me, token);
      if (decided.kind === "forbidden") return notOwner();
      if (decided.kind === "newer") return formatTooNew(keyOf(resource), decided.format);
      if (decided.kind === "renew") return true;
      return { outcome: "unchanged", reason: decided.reason };
    },
    change: (known) => released(known.lease.view, deps.clock.wall()),
    done: (known) => known !== undefined && hasEnded(known, me, "released"),
    fromCache: true,
  });
};

/** An operator takes the right away; `why` names who and for what reason. */
export const force = async (
  deps: Deps,
  resource: ResourceName,
  why: string,
): Promise<(Released & { holder?: HolderId; token?: Token }) | Refusal> => {
  let taken: { holder?: HolderId; token?: Token } = {};
  const result = await vacate(deps, resource, {
    may: (known) => {
      const view = known?.lease.view;
      if (view?.holder === undefined || !view.ours || view.terminating)
        return { outcome: "unchanged", reason: "nobody holds it" };
      if (view.format > leaseFormat) return formatTooNew(keyOf(resource), view.format);
      const token = validCredit(view)?.token;
      taken = { holder: view.holder, ...(token === undefined ? {} : { token }) };
      return true;
    },
    change: (known) => forced(known.lease.view, why, deps.clock.wall()),
    done: (known) =>
      taken.holder !== undefined && known !== undefined && hasEnded(known, taken.holder, "forced"),
    fromCache: false,
  });
  return result.outcome === "released" ? { ...result, ...taken } : result;
};

const hasEnded = (known: Known, holder: HolderId, reason: string): boolean =>
  known.lease.view.holder !== holder && lossReason(known.lease.view, holder) === reason;

interface Vacating {
  may(known: Known | undefined): true | Released | Refusal;
  change(known: Known): LeaseChange;
  /** A write of ours whose answer was lost turned out to be there. */
  done(known: Known | undefined): boolean;
  fromCache: boolean;
}

const vacate = async (deps: Deps, resource: ResourceName, how: Vacating): Promise<Released | Refusal> => {
  let wrote = false;
  for (let round = 0; round < rounds; round += 1) {
    if (round > 1) await deps.clock.sleep(partMs(deps.random));
    const cached = round === 0 && how.fromCache ? deps.book.get(resource) : undefined;
    const hopeful = cached !== undefined && how.may(cached) === true;
    const known = hopeful ? cached : await readFresh(deps, resource);
    if (wrote && how.done(known)) return { outcome: "released" };
    const may = how.may(known);
    if (may !== true) return may;
    if (known === undefined) return { outcome: "unchanged", reason: "deleted" };
    const written = await deps.leases.write(resource, known.lease, how.change(known));
    if (written.outcome === "ok") {
      deps.book.put(resource, written.object);
      return { outcome: "released" };
    }
    if (written.outcome === "refused" || written.outcome === "unavailable")
      return notWritten(deps, resource, written);
    wrote ||= written.outcome === "unknown";
  }
  return busyWriting(keyOf(resource));
};
