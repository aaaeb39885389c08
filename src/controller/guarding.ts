/** Speaks to the boundary of a resource: reads its mark, opens it again, tells it of the Lease, and binds the Lease to it. */
import type { Guard } from "../boundary/guard.ts";
import { type Advance, type Boundary, type Refusals, unissued } from "../boundary/port.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { type HolderId, validCredit } from "../core/lease.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf, type Leases } from "../kube/leases.ts";
import type { Clock } from "../runtime/clock.ts";
import type { SequenceStore } from "../store/port.ts";
import { freshStanding, isBehind, nobody, rebound, type Standing, standing } from "./boundary.ts";
import type { Findings } from "./conditions.ts";
import type { Told } from "./story.ts";

type Ready = Extract<Guard, { kind: "ready" }>;

const mismatch = (issuer: string) => ({
  reason: "IssuerMismatch",
  message: `the boundary belongs to the cluster ${issuer}: take it over, or name another one`,
});

/** What a look at the boundary showed. */
export type Checked =
  | { kind: "marks"; granted: Token; refused: Refusals; closing: string | undefined }
  | { kind: "trouble"; reason: string; message: string };

const notInstalled = (message: string): Checked => ({
  kind: "trouble",
  reason: "BoundaryNotInstalled",
  message,
});

/** Installs the guard where it is missing and that is ours to do. */
export const check = async ({ boundary }: Ready, signal: AbortSignal): Promise<Checked> => {
  let marks = await boundary.marks(signal);
  if (marks.outcome === "missing" && boundary.install !== undefined) {
    const installed = await boundary.install(signal);
    if (installed.outcome === "failed")
      return notInstalled(`the guard cannot be installed: ${installed.message}`);
    marks = await boundary.marks(signal);
  }
  switch (marks.outcome) {
    case "ok":
      return { kind: "marks", granted: marks.granted, refused: marks.refused, closing: marks.closing };
    case "missing":
      return notInstalled(
        "the boundary does not know this resource: run fenceline guard install, or set manage: true",
      );
    case "issuer_mismatch":
      return { kind: "trouble", ...mismatch(marks.issuer) };
    case "unknown":
      return {
        kind: "trouble",
        reason: "BoundaryUnreachable",
        message: `the boundary does not answer: ${marks.message}`,
      };
    default: {
      const never: never = marks;
      return never;
    }
  }
};

export interface Guarded {
  findings: Findings["boundary"];
  lease: FencedLease | undefined;
  mark: Token | undefined;
  /** The boundary had fallen behind the Lease and was told again. */
  wasBehind: boolean;
  story: readonly Told[];
}

export interface GuardingDeps {
  leases: Leases;
  clock: Clock;
}

/** How often it is begun anew because the Lease moved meanwhile. */
const rounds = 4;

interface Block {
  base: Token;
  ceiling: Token;
}

const reserveAbove = async (
  store: SequenceStore,
  resource: ResourceSpec,
  mark: Token,
  signal: AbortSignal,
): Promise<Block> => {
  const reserved = await store.reserve(keyOf(resource), resource.reserve, mark, signal);
  if (reserved.outcome !== "reserved") throw new Error(`tokens for ${keyOf(resource)}: ${reserved.outcome}`);
  return reserved;
};

const troubleOf = (advance: Exclude<Advance, { outcome: "ok" }>): { reason: string; message: string } => {
  switch (advance.outcome) {
    case "closed":
      return { reason: "BoundaryClosed", message: "the boundary lost its past and is about to be re-opened" };
    case "issuer_mismatch":
      return mismatch(advance.issuer);
    case "unknown":
      return {
        reason: "BoundaryUnreachable",
        message: `the boundary does not answer: ${advance.message}`,
      };
    case "refused":
      return {
        reason: "BoundaryUnreachable",
        message: `the mark of the boundary keeps moving, it stands at ${advance.mark}`,
      };
    default: {
      const never: never = advance;
      return never;
    }
  }
};

/**
 * Raises the mark to a standing; nothing granted yet needs no word. Where nobody holds the token, a mark at it that was
 * told of whoever had it says the same: everything older is refused.
 */
const tell = async (
  boundary: Boundary,
  { token, holder }: Standing,
  signal: AbortSignal,
): Promise<Advance> => {
  if (token === noToken) return { outcome: "ok" };
  const told = await boundary.advance(token, holder, signal);
  return told.outcome === "refused" && told.mark === token && holder === nobody ? { outcome: "ok" } : told;
};

/**
 * Binds the Lease to a boundary, or to none, for which it was not guarded yet. Throws where only another try can tell.
 */
export const switchBoundary = async (
  { leases, clock }: GuardingDeps,
  guard: Exclude<Guard, { kind: "unready" }>,
  store: SequenceStore,
  resource: ResourceSpec,
  seen: FencedLease,
  mark: Token,
  signal: AbortSignal,
): Promise<{ lease: FencedLease; trouble: { reason: string; message: string } | undefined; mark: Token }> => {
  let above = mark;
  /** The boundary knows the Lease's token under another attempt: the holder needs one of its own. */
  let taken = false;
  let last: { reason: string; message: string } | undefined;
  for (let round = 0; round < rounds; round += 1) {
    // The target is guarded: only now is it read which version of the Lease it will be told of. [R]
    const read = guard.kind === "none" && round === 0 ? seen : await leases.get(resource, signal);
    if (read === undefined) throw new Error(`the Lease of ${keyOf(resource)} is gone`);
    let fresh: { token: Token; ceiling: Token } | undefined;
    if (guard.kind === "ready") {
      let stands = taken ? undefined : standing(read.view, above);
      if (stands === undefined) {
        const block = await reserveAbove(store, resource, above, signal);
        stands = freshStanding(read.view, block);
        fresh = { token: stands.token, ceiling: block.ceiling };
      }
      const told = await tell(guard.boundary, stands, signal);
      if (told.outcome === "refused") {
        above = higher(above, told.mark);
        taken = true;
      }
      if (told.outcome !== "ok") {
        last = troubleOf(told);
        if (told.outcome === "refused") continue;
        return { lease: read, trouble: last, mark: above };
      }
      above = higher(above, stands.token);
    }
    const change = rebound(read.view, guard.hash, fresh, clock.wall());
    const written = await leases.write(resource, read, change, signal);
    if (written.outcome === "ok") return { lease: written.object, trouble: undefined, mark: above };
    if (written.outcome === "refused" || written.outcome === "unavailable")
      throw new Error(`bind the Lease of ${keyOf(resource)} to its boundary: ${written.message}`);
  }
  if (last === undefined) throw new Error(`the Lease of ${keyOf(resource)} keeps moving`);
  return { lease: seen, trouble: last, mark: above };
};

/** Opens a closed boundary at the Lease, read after its closing id was seen. [R] Throws where only another try can tell. */
const reopenBoundary = async (
  { leases, clock }: GuardingDeps,
  { boundary }: Ready,
  store: SequenceStore,
  resource: ResourceSpec,
  closing: string,
  mark: Token,
  signal: AbortSignal,
): Promise<{ lease: FencedLease; opened: Advance; token: Token }> => {
  let lease = await leases.get(resource, signal);
  if (lease === undefined) throw new Error(`the Lease of ${keyOf(resource)} is gone`);
  if (validCredit(lease.view) === undefined) {
    const block = await reserveAbove(store, resource, mark, signal);
    const { token } = freshStanding(lease.view, block);
    const change = rebound(lease.view, lease.view.boundary, { token, ceiling: block.ceiling }, clock.wall());
    const written = await leases.write(resource, lease, change, signal);
    if (written.outcome !== "ok")
      throw new Error(`fresh credit for the Lease of ${keyOf(resource)}: ${written.outcome}`);
    lease = written.object;
  }
  const token = validCredit(lease.view)?.token ?? noToken;
  const holder: HolderId | undefined = lease.view.holder;
  return { lease, opened: await boundary.reopen(token, holder, closing, signal), token };
};

/**
 * A boundary that was looked at just now: opened if it is closed, told of the Lease if it is not the one that the Lease
 * was bound to, or if it fell behind.
 */
export const keepGuarded = async (
  deps: GuardingDeps,
  guard: Ready,
  store: SequenceStore,
  resource: ResourceSpec,
  bound: FencedLease,
  marks: Extract<Checked, { kind: "marks" }>,
  stoodMs: number,
  signal: AbortSignal,
): Promise<Guarded> => {
  const key = keyOf(resource);
  const story: Told[] = [];
  let lease = bound;
  let mark = marks.granted;
  const ended = (findings: Guarded["findings"], wasBehind = false): Guarded => ({
    findings,
    lease,
    mark,
    wasBehind,
    story,
  });
  if (marks.closing !== undefined) {
    const { closing } = marks;
    const wasShut = closing !== unissued;
    if (wasShut)
      story.push({
        reason: "BoundaryClosed",
        note: "the boundary was restarted, restored or failed over: it refuses everything until its mark is checked",
      });
    const reopened = await reopenBoundary(deps, guard, store, resource, closing, mark, signal);
    lease = reopened.lease;
    if (reopened.opened.outcome !== "ok") return ended(troubleOf(reopened.opened));
    mark = higher(mark, reopened.token);
    if (wasShut)
      story.push({ reason: "BoundaryReopened", note: `the boundary is open again, at token ${mark}` });
  }
  if (lease.view.boundary !== guard.hash) {
    const switched = await switchBoundary(deps, guard, store, resource, lease, mark, signal);
    lease = switched.lease;
    mark = switched.mark;
    if (switched.trouble !== undefined) return ended(switched.trouble);
    story.push({
      reason: "BoundaryAdvanced",
      note: `the boundary of ${key} is guarded and knows token ${mark}: older ones are refused`,
    });
    return ended("guarded");
  }
  if (!guard.onGrant || !isBehind(lease.view, mark, stoodMs)) return ended("guarded");
  const stands = standing(lease.view, mark);
  if (stands === undefined) return ended("guarded");
  const told = await tell(guard.boundary, stands, signal);
  if (told.outcome !== "ok") return ended(troubleOf(told), true);
  story.push({
    reason: "BoundaryAdvanced",
    note: `the boundary had fallen back to token ${mark} and was told of ${stands.token} again`,
  });
  mark = stands.token;
  return ended("guarded", true);
};
