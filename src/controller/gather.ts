/** Lease, boundary and sequence of one resource: found, and mended where that is ours to do. */
import { sequenceName } from "../api/names.ts";
import type { Guard } from "../boundary/guard.ts";
import { elapsed } from "../core/time.ts";
import { timingProblem } from "../core/timing.ts";
import { noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf } from "../kube/leases.ts";
import type { SequenceState, SequenceStore } from "../store/port.ts";
import { sequenceState } from "../store/status.ts";
import { bindLease } from "./binding.ts";
import type { Guarantee } from "../api/names.ts";
import type { Findings } from "./conditions.ts";
import { cachedLease, type Look } from "./deps.ts";
import { type Checked, check, type Guarded, keepGuarded, switchBoundary } from "./guarding.ts";
import { levelSequence, type Levelled } from "./level.ts";
import { noteLease } from "./memory.ts";
import { numberOf, toldExpired } from "./mirror.ts";
import { countRefusals, prove } from "./proof.ts";
import type { Told } from "./story.ts";

export interface Gathered {
  /** The Lease, if it is the resource's own. */
  lease: FencedLease | undefined;
  findings: Findings;
  ceiling: Token | undefined;
  mark: Token | undefined;
  guarantee: Guarantee;
  story: readonly Told[];
}

/** A boundary, and whether it is still the same one, is looked at this often. */
export const checkMs = 30_000;

/** Takes note of the Lease: since when it has stood like this. */
export const observeLease = (
  { deps, object, memory }: Pick<Look, "deps" | "object" | "memory">,
  lease: FencedLease,
): void =>
  noteLease(
    memory,
    lease.view,
    deps.caches.leases.epoch(),
    toldExpired(object.status, lease),
    deps.clock.mono(),
  );

const guardOf = async (
  { deps, object, resource, memory, signal }: Look,
  leaseUid: string,
): Promise<Guard> => {
  const of = `${object.metadata.generation}/${leaseUid}`;
  const at = deps.clock.mono();
  if (memory.guard?.of === of && elapsed(memory.guard.at, at) < checkMs) return memory.guard.guard;
  const guard = await deps.boundaries.guard(resource, leaseUid, { fresh: true, signal });
  memory.guard = { of, guard, at };
  return guard;
};

/** Looked at when it is time, and whenever something is not as it should be. */
const isDue = (
  { deps, memory, resource }: Look,
  guard: Extract<Guard, { kind: "ready" }>,
  lease: FencedLease | undefined,
): boolean => {
  const { checked } = memory;
  const sequence = deps.caches.sequences.get({ name: sequenceName(keyOf(resource)) });
  return (
    checked === undefined ||
    memory.stirred ||
    checked.findings !== "guarded" ||
    elapsed(checked.at, deps.clock.mono()) >= checkMs ||
    lease?.view.boundary !== guard.hash ||
    (resource.store === "Status" && sequence?.status === undefined)
  );
};

/** A sequence that no watch shows: good for a while, since before anything is done about it, it is read again. */
const lastRead = async (
  { deps, resource, memory, signal }: Look,
  store: SequenceStore,
): Promise<SequenceState> => {
  const { sequence } = memory;
  if (sequence?.state.state === "open" && elapsed(sequence.at, deps.clock.mono()) < checkMs)
    return sequence.state;
  const state = await store.read(keyOf(resource), signal);
  memory.sequence = { state, at: deps.clock.mono() };
  return state;
};

const level = async (
  look: Look,
  lease: FencedLease | undefined,
  mark: Token | undefined,
): Promise<Levelled> => {
  const { deps, object, resource, memory, restores, signal } = look;
  const store = deps.storeOf(resource);
  if (store === undefined)
    return {
      ceiling: undefined,
      trouble: {
        reason: "StoreNotSupported",
        message: `this installation has no database for its tokens: name one in its configuration, or use store Status`,
      },
      lease,
      mended: false,
      story: [],
    };
  const key = keyOf(resource);
  const shown =
    resource.store === "Status"
      ? sequenceState(deps.caches.sequences.get({ name: sequenceName(key) }), key)
      : await lastRead(look, store);
  const { tokens } = object.status ?? {};
  const levelled = await levelSequence(
    deps,
    store,
    resource,
    {
      issuer: deps.issuer,
      floor: resource.floor,
      lease,
      mirrored: { granted: numberOf(tokens?.granted), ceiling: numberOf(tokens?.ceiling) },
      mark,
      restored: memory.mended < restores ? memory.highest : undefined,
    },
    shown,
    signal,
  );
  if (levelled.mended) memory.mended = restores;
  return levelled;
};

/** The boundary was looked at and the sequence levelled; what remains is to tell it, and the Lease. */
const guardBoundary = async (
  look: Look,
  guard: Guard,
  checked: Checked | undefined,
  levelled: Levelled,
): Promise<Guarded> => {
  const { deps, resource, memory, signal } = look;
  const { lease, trouble } = levelled;
  const store = deps.storeOf(resource);
  const plain = (findings: Findings["boundary"], mark = memory.checked?.mark): Guarded => ({
    findings,
    lease,
    mark,
    wasBehind: false,
    story: [],
  });
  if (guard.kind === "unready") return plain({ reason: guard.reason, message: guard.message }, undefined);
  const ready = lease !== undefined && store !== undefined && trouble === undefined;
  if (guard.kind === "none") {
    if (!ready || lease.view.boundary === undefined) return plain("none", undefined);
    const switched = await switchBoundary(deps, guard, store, resource, lease, noToken, signal);
    return { ...plain("none", undefined), lease: switched.lease };
  }
  if (checked === undefined) return plain(memory.checked?.findings ?? "guarded");
  if (checked.kind === "trouble") return plain(checked);
  if (!ready)
    return plain(
      lease !== undefined && lease.view.boundary === guard.hash
        ? "guarded"
        : {
            reason: "BoundaryNotInstalled",
            message: "the boundary waits for Lease and tokens to be in order",
          },
      checked.granted,
    );
  const stoodMs = memory.stood === undefined ? 0 : elapsed(memory.stood.since, deps.clock.mono());
  return keepGuarded(deps, guard, store, resource, lease, checked, stoodMs, signal);
};

const rejected = (stale: bigint, mark: Token | undefined): Told[] =>
  stale === 0n
    ? []
    : [
        {
          reason: "StaleWriteRejected",
          note: `the boundary refused ${stale} ${stale === 1n ? "write" : "writes"} with an old token; it accepts token ${mark ?? "of the holder"} alone`,
        },
      ];

/** Throws where only another try can tell. */
export const gather = async (look: Look): Promise<Gathered> => {
  const { deps, object, resource, memory, signal } = look;
  const binding = await bindLease(deps, resource, cachedLease(deps.caches, resource), signal);
  const bound = binding.kind === "bound" ? binding.lease : undefined;
  if (bound !== undefined) observeLease(look, bound);
  const guard = await guardOf(look, bound?.view.uid ?? "");
  const due = guard.kind === "ready" && isDue(look, guard, bound);
  // Set again while it is looked at: looked at once more.
  if (due) memory.stirred = false;
  const checked = due ? await check(guard, signal) : undefined;
  const refusedStale = checked?.kind === "marks" ? countRefusals(look, checked.refused) : 0n;
  const mark =
    guard.kind === "ready" && guard.onGrant && checked?.kind === "marks" ? checked.granted : undefined;
  const levelled = await level(look, bound, mark);
  const guarded = await guardBoundary(look, guard, checked, levelled);
  if (checked !== undefined)
    memory.checked = { findings: guarded.findings, mark: guarded.mark, at: deps.clock.mono() };
  if (guarded.wasBehind) deps.metrics.boundaryMarkRegressionsTotal.inc();
  if (guarded.lease !== undefined) observeLease(look, guarded.lease);
  const proof = await prove(look, guard, guarded.findings);
  memory.sightings.verified ||= proof.verified;
  memory.sightings.refusedStale ||= refusedStale > 0n;
  const { reason } = typeof guarded.findings === "string" ? { reason: undefined } : guarded.findings;
  const before = object.status?.conditions?.find(({ type }) => type === "BoundaryGuarded")?.reason;
  const unreachable: Told[] =
    reason === "BoundaryUnreachable" && before !== reason && typeof guarded.findings !== "string"
      ? [{ reason, note: `${guarded.findings.message}; nothing is granted until it answers` }]
      : [];
  return {
    lease: guarded.lease,
    findings: {
      invalid: timingProblem(resource),
      suspended: resource.suspended,
      lease: binding.kind === "bound" ? undefined : binding,
      tokens: levelled.trouble,
      boundary: guarded.findings,
      open: proof.open,
    },
    ceiling: levelled.ceiling,
    mark: guarded.mark,
    guarantee: proof.guarantee,
    story: [
      ...levelled.story,
      ...guarded.story,
      ...unreachable,
      ...proof.story,
      ...rejected(refusedStale, guarded.mark),
    ],
  };
};
