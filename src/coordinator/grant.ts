/**
 * Steps 1 to 5 of an acquisition: read, choose a token, commit, tell the boundary, answer.
 *
 * | after | Lease write | boundary | result |
 * | --- | --- | --- | --- |
 * | step 1 | – | – | mine → renew, then step 4 · busy, ended, forbidden, not ready → answered · free → step 2 |
 * | step 2 | – | – | no tokens → answered |
 * | step 3 | ok | – | step 4 |
 * | | conflict, gone | – | again from step 1 (the token is a gap) |
 * | | unknown | – | read fresh: names us under the same boundary → step 4 with *its* token; else again |
 * | step 4 | | ok | answered |
 * | | | refused | read fresh: not ours → lost; other token → step 4; same → the Lease went back: a token above the mark |
 * | | | closed, unknown | answered as such; the commit stands, the same attempt asks again |
 */
import {
  believable,
  claim,
  grant,
  grantedToken,
  type HolderId,
  type HolderNote,
  type LeaseView,
  lossReason,
  regressedBlock,
  renewed,
  safetyJump,
  spend,
  validCredit,
} from "../core/lease.ts";
import { takeableAt } from "../core/observation.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import { renewAfterMs } from "../core/timing.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import type { Guard } from "../boundary/guard.ts";
import { keyOf } from "../kube/leases.ts";
import { type Granted, type Refusal, refuse } from "./answers.ts";
import type { Known, Suspicion } from "./book.ts";
import { type Deps, notWritten, readFresh } from "./deps.ts";

export type Step =
  | { step: "done"; answer: Granted | Refusal }
  /** Somebody has it, at the longest until `until`. */
  | { step: "wait"; until: MonoTime; holder: string | undefined }
  /** The Lease moved under us; what was chosen is thrown away. */
  | { step: "again" }
  /** The caller, or this replica, went away; nothing was committed. */
  | { step: "abandoned" };

const again: Step = { step: "again" };
const done = (answer: Granted | Refusal): Step => ({ step: "done", answer });

/** One acquisition on its way. */
export interface Acquisition {
  resource: ResourceSpec;
  me: HolderId;
  note: HolderNote | undefined;
  /** The caller went away: nothing more is committed for it. */
  signal: AbortSignal;
}

type Open = Exclude<Guard, { kind: "unready" }>;

/** One try, from step 1 on. Throws a KubeError where the API server does not answer a read. */
export const tryAcquire = async (deps: Deps, acquisition: Acquisition): Promise<Step> => {
  const { resource, me } = acquisition;
  const cached = deps.book.level() ? deps.book.get(resource) : undefined;
  const known = cached ?? (await readFresh(deps, resource));
  const found = claim(known?.lease.view, me);
  if (known === undefined || found.kind === "absent") return createEmpty(deps, acquisition);
  switch (found.kind) {
    case "foreign":
      return done(
        refuse(
          "not_ready",
          `the Lease of ${keyOf(resource)} belongs to somebody else: rename it or the resource`,
          {
            condition: "LeaseBound/ForeignLease",
          },
        ),
      );
    case "newer":
      return done(
        refuse(
          "not_ready",
          `the Lease of ${keyOf(resource)} has format ${found.format}: upgrade this replica`,
          {
            condition: "LeaseBound/NewerFormat",
          },
        ),
      );
    case "forbidden":
      return done(
        refuse("forbidden", "this attempt was made by another identity: choose an attempt of your own"),
      );
    case "ended":
      return done(refuse("lost", "this attempt has ended: acquire with a new one", { reason: found.reason }));
    case "mine":
      return repeat(deps, acquisition, known);
    case "held":
      return takeOrWait(deps, acquisition, known, false);
    case "free":
      return takeOrWait(deps, acquisition, known, found.clean || (await neverGranted(deps, resource, known)));
    default: {
      const never: never = found;
      return never;
    }
  }
};

/** A void credit is a clean start only if the sequence never handed anything out. */
const neverGranted = async (deps: Deps, resource: ResourceSpec, known: Known): Promise<boolean> => {
  if (known.lease.view.unclean || validCredit(known.lease.view) !== undefined) return false;
  const sequence = await deps.storeOf(resource)?.read(keyOf(resource));
  if (sequence?.state === "open") return sequence.ceiling === sequence.base;
  // Not open: the reservation says so in better words. No answer: unknown never means free.
  return sequence?.state !== "unavailable";
};

const createEmpty = async (deps: Deps, { resource }: Acquisition): Promise<Step> => {
  const created = await deps.leases.create(resource);
  if (created.outcome === "ok") deps.book.put(resource, created.object);
  else if (created.outcome === "refused")
    return done(
      refuse("not_ready", `the Lease of ${keyOf(resource)} cannot be made: ${created.message}`, {
        condition: "LeaseBound/LeaseRefused",
      }),
    );
  else if ((await readFresh(deps, resource))?.lease.view.terminating)
    return done(
      refuse("not_ready", `the Lease of ${keyOf(resource)} is being deleted`, {
        condition: "LeaseBound/LeaseMissing",
        retryAfterMs: 1000,
      }),
    );
  return again;
};

const takeOrWait = async (
  deps: Deps,
  acquisition: Acquisition,
  known: Known,
  clean: boolean,
): Promise<Step> => {
  const { resource } = acquisition;
  const { view } = known.lease;
  const until = takeableAt(known.observation, view, clean, {
    durationSeconds: resource.durationSeconds,
    lockDelaySeconds: resource.lockDelaySeconds,
    fenced: resource.guarantee === "Fenced",
  });
  if (deps.clock.mono() < until) return { step: "wait", until, holder: view.holder };
  if (resource.suspended)
    return done(
      refuse("not_ready", `${keyOf(resource)} is suspended: set spec.suspend to false`, {
        condition: "Ready/Suspended",
      }),
    );
  const guard = await matched(deps, acquisition, view);
  if ("outcome" in guard) return done(guard);
  return commit(deps, { ...acquisition, ...guard }, known, until);
};

/** The acquisition, and the boundary that its answer will be true for. */
type Guarded = Acquisition & { guard: Open };

/**
 * The boundary as this replica sees it, if it is the one that the Lease was guarded for. Where they differ the resource
 * and its credential are read fresh once: a replica with an old one would advance the wrong database. [R]
 */
const matched = async (
  deps: Deps,
  { resource }: Acquisition,
  view: LeaseView,
): Promise<{ resource: ResourceSpec; guard: Open } | Refusal> => {
  const of = async (spec: ResourceSpec, fresh: boolean) => ({
    spec,
    guard: await deps.boundaries.guard(spec, view.uid, { fresh }),
  });
  let seen = await of(resource, false);
  if (seen.guard.kind === "unready" || seen.guard.hash !== view.boundary) {
    const fresh = await deps.resources.fresh(resource);
    if (fresh === undefined || fresh.deleted) return unknownResource(keyOf(resource));
    seen = await of(fresh, true);
  }
  if (seen.guard.kind === "unready")
    return refuse("not_ready", seen.guard.message, { condition: `BoundaryGuarded/${seen.guard.reason}` });
  if (seen.guard.hash !== view.boundary) return unguarded(keyOf(resource));
  return { resource: seen.spec, guard: seen.guard };
};

export const unknownResource = (key: string): Refusal =>
  refuse("unknown_resource", `there is no FencedResource ${key}: apply one, or mend the name`);

const unguarded = (key: string): Refusal =>
  refuse("not_ready", `the boundary of ${key} is not guarded for this Lease yet: the controller does it`, {
    condition: "BoundaryGuarded/BoundaryNotInstalled",
    retryAfterMs: 1000,
  });

/** A repeated acquire is a renewal: the caller counts its term from the request it sent last, so the term must move. */
const repeat = async (deps: Deps, acquisition: Acquisition, known: Known): Promise<Step> => {
  const { view } = known.lease;
  const guarded = await matched(deps, acquisition, view);
  if ("outcome" in guarded) return done(guarded);
  const { resource } = guarded;
  const written = await deps.leases.write(
    resource,
    known.lease,
    renewed(view, resource.durationSeconds, deps.clock.wall()),
  );
  switch (written.outcome) {
    case "ok":
      return settle(deps, { ...acquisition, ...guarded }, deps.book.put(resource, written.object));
    case "refused":
    case "unavailable":
      return done(notWritten(deps, resource, written));
    default:
      await readFresh(deps, resource);
      return again;
  }
};

interface Block {
  token: Token;
  ceiling: Token;
  /** How many tokens are lost if this block is thrown away; 0 for credit that stays in the Lease. */
  gap: bigint;
  /** What this block answers for, once it is committed. */
  mends?: Suspicion;
}

/** Step 2: the next token, from the Lease's credit or from a block reserved after the Lease was read. [R] */
const choose = async (deps: Deps, resource: ResourceSpec, view: LeaseView): Promise<Block | Refusal> => {
  const suspect = deps.book.suspect(resource);
  const next =
    suspect === undefined
      ? spend(view, resource.floor)
      : ({
          kind: "reserve",
          atLeast: higher(resource.floor, jump(higher(suspect.seen, ceilingOf(view)))),
        } as const);
  if (next.kind === "spend") return { token: next.token, ceiling: next.ceiling, gap: 0n };
  const block = await reserve(deps, resource, next.atLeast);
  if ("outcome" in block) return block;
  if (suspect !== undefined) return { ...block, mends: suspect };
  if (!regressedBlock(view, (block.token - 1n) as Token)) return block;
  deps.metrics.tokenGapsTotal.inc(Number(block.gap));
  deps.log.warn({ resource: keyOf(resource) }, "the sequence went back in time; raising it");
  return reserve(deps, resource, jump(ceilingOf(view)));
};

const ceilingOf = (view: LeaseView): Token => validCredit(view)?.ceiling ?? noToken;
const jump = (seen: Token): Token => (seen + safetyJump) as Token;

/** A block above `atLeast`, or why there is none. */
const reserve = async (deps: Deps, resource: ResourceSpec, atLeast: Token): Promise<Block | Refusal> => {
  const key = keyOf(resource);
  const store = deps.storeOf(resource);
  const notReady = (reason: string, detail: string) =>
    refuse("not_ready", `${detail} (${key})`, { condition: `TokensConsistent/${reason}` });
  if (store === undefined)
    return notReady("StoreNotSupported", `this installation has no ${resource.store} token store`);
  const reserved = await store.reserve(key, resource.reserve, atLeast);
  switch (reserved.outcome) {
    case "reserved": {
      const gap = reserved.ceiling - reserved.base;
      deps.metrics.tokensReservedTotal.inc(Number(gap));
      return { token: (reserved.base + 1n) as Token, ceiling: reserved.ceiling, gap };
    }
    case "exhausted":
      return refuse(
        "tokens_exhausted",
        `${key} has granted its last token: make a resource with another name`,
      );
    case "sealed":
      return notReady("SequenceSealed", "the token sequence was moved to another store");
    case "not_ready":
      return notReady(
        reserved.reason === "copied" ? "SequenceCopied" : "SequenceMissing",
        "the token sequence is not open yet: the controller opens it",
      );
    case "issuer_mismatch":
      return refuse("issuer_mismatch", `the tokens of ${key} are issued by ${reserved.issuer}`);
    case "unavailable":
      return refuse("store_unavailable", `no tokens for ${key}: ${reserved.message}`, { retryAfterMs: 1000 });
    default: {
      const never: never = reserved;
      return never;
    }
  }
};

/** Steps 2 and 3. `freeSince` is when the resource could be taken, for the record of the hand-over. */
const commit = async (deps: Deps, guarded: Guarded, known: Known, freeSince: MonoTime): Promise<Step> => {
  const { resource, me, note, guard } = guarded;
  const { view } = known.lease;
  const block = await choose(deps, resource, view);
  if ("outcome" in block) return done(block);
  if (guarded.signal.aborted) {
    deps.metrics.tokenGapsTotal.inc(Number(block.gap));
    return { step: "abandoned" };
  }
  const change = grant(view, me, block, resource.durationSeconds, deps.clock.wall(), note);
  const written = await deps.leases.write(resource, known.lease, change);
  switch (written.outcome) {
    case "ok": {
      if (block.mends !== undefined) deps.book.mended(resource, block.mends);
      recordTransfer(deps, view, freeSince);
      return settle(deps, guarded, deps.book.put(resource, written.object));
    }
    case "unknown": {
      // Only a fresh read tells; a cached one, or the token we meant to give, would be a guess. [R]
      const now = await readFresh(deps, resource);
      const view = now?.lease.view;
      if (now === undefined || view === undefined || claim(view, me).kind !== "mine") return again;
      if (view.boundary !== guard.hash) return done(unguarded(keyOf(resource)));
      return settle(deps, guarded, now);
    }
    case "refused":
    case "unavailable":
      deps.metrics.tokenGapsTotal.inc(Number(block.gap));
      return done(notWritten(deps, resource, written));
    case "conflict":
    case "gone":
    case "exists":
      deps.metrics.tokenGapsTotal.inc(Number(block.gap));
      return again;
    default: {
      const never: never = written;
      return never;
    }
  }
};

/** A grant that follows another attempt's is a transfer; the first one of all is none. */
const recordTransfer = ({ metrics, clock }: Deps, before: LeaseView, freeSince: MonoTime) => {
  const last = before.ended.at(-1);
  if (before.holder === undefined && last === undefined) return;
  if (before.holder !== undefined) metrics.leaseExpiredTotal.inc();
  metrics.ownershipTransfersTotal.inc({
    reason: before.holder === undefined && last ? last.reason : "superseded",
  });
  metrics.handoverDuration.observe(elapsed(freeSince, clock.mono()) / 1000);
};

/** How often a token may be refused and replaced within one request before the caller is asked to come again. */
const settleRounds = 4;

/** Step 4, which every path that hands out a token passes [R], and the answer. */
const settle = async (deps: Deps, guarded: Guarded, committed: Known): Promise<Step> => {
  const { resource, me, guard } = guarded;
  const key = keyOf(resource);
  let { view } = committed.lease;
  if (guard.kind === "none" || !guard.onGrant) return done(answer(guarded, view, false));
  for (let round = 0; round < settleRounds; round += 1) {
    const token = grantedToken(view);
    const started = deps.clock.mono();
    const advanced = await guard.boundary.advance(token, me);
    deps.metrics.advanceDuration.observe(elapsed(started, deps.clock.mono()) / 1000);
    if (advanced.outcome === "ok") return done(answer(guarded, view, true));
    if (advanced.outcome === "closed")
      return done(
        refuse(
          "boundary_closed",
          `the boundary of ${key} is closed until the controller re-opens it: ask again with the same attempt`,
          { retryAfterMs: 1000 },
        ),
      );
    if (advanced.outcome === "issuer_mismatch")
      return done(
        refuse("issuer_mismatch", `the boundary of ${key} belongs to the issuer ${advanced.issuer}`),
      );
    if (advanced.outcome === "unknown")
      return done(
        refuse(
          "outcome_unknown",
          `the boundary of ${key} did not answer (${advanced.message}): retry with the same attempt`,
          { retryAfterMs: 1000 },
        ),
      );
    const now = await readFresh(deps, resource);
    if (now === undefined || claim(now.lease.view, me).kind !== "mine")
      return done(
        refuse("lost", "another attempt was granted meanwhile: acquire with a new one", {
          reason: now === undefined ? "deleted" : lossReason(now.lease.view, me),
        }),
      );
    if (now.lease.view.boundary !== guard.hash) return done(unguarded(key));
    view = now.lease.view;
    if (grantedToken(view) !== token) continue;
    const raised = await aboveMark(deps, guarded, now, advanced.mark);
    if ("outcome" in raised) return done(raised);
    view = raised;
  }
  return done(refuse("outcome_unknown", `the boundary of ${key} keeps moving: retry with the same attempt`));
};

/** The Lease, or the sequence, went back in time and the boundary noticed: this attempt gets a token above the mark. */
const aboveMark = async (
  deps: Deps,
  { resource, me, note }: Guarded,
  now: Known,
  mark: Token,
): Promise<LeaseView | Refusal> => {
  const key = keyOf(resource);
  const { view } = now.lease;
  if (mark > ceilingOf(view) + believable)
    return refuse(
      "not_ready",
      `the boundary of ${key} shows mark ${mark}, far above what was granted: raise spec.tokens.floor with the verb force, or mend the mark`,
      {
        condition: "TokensConsistent/ImplausibleMark",
      },
    );
  deps.log.warn(
    { resource: key, token: mark },
    "the boundary knows a higher token than the Lease; raising the sequence",
  );
  const block = await reserve(deps, resource, higher(mark, resource.floor));
  if ("outcome" in block) return block;
  const change = grant(view, me, block, resource.durationSeconds, deps.clock.wall(), note);
  const written = await deps.leases.write(resource, now.lease, change);
  if (written.outcome === "ok") return deps.book.put(resource, written.object).lease.view;
  const after = await readFresh(deps, resource);
  // Whatever became of the write: the loop goes on with what is there, as long as it is still ours.
  return after !== undefined && claim(after.lease.view, me).kind === "mine"
    ? after.lease.view
    : refuse("lost", "another attempt was granted meanwhile: acquire with a new one", {
        reason: after === undefined ? "deleted" : lossReason(after.lease.view, me),
      });
};

const answer = ({ resource, me }: Guarded, view: LeaseView, advanced: boolean): Granted => {
  const term = view.durationSeconds ?? resource.durationSeconds;
  return {
    outcome: "granted",
    holder: me,
    token: grantedToken(view),
    leaseDurationMs: term * 1000,
    renewAfterMs: renewAfterMs(term, resource.renewIntervalSeconds),
    guarantee: resource.guarantee,
    advanced,
  };
};
