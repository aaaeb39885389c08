/**
 * What the boundary makes true. `Fenced` is said only while a trial of the guard, at most a minute old, saw it refuse an
 * old token and knows of no way around it.
 *
 * | last trial | its age | guarantee |
 * | --- | --- | --- |
 * | proven, and the boundary learns of each grant | up to 60 s | Fenced |
 * | a way around it is open | any | Advisory, and which |
 * | none, or not answered since | more than 60 s | Advisory, and why |
 */
import type { Guarantee } from "../api/names.ts";
import type { Guard } from "../boundary/guard.ts";
import type { Refusals } from "../boundary/port.ts";
import { elapsed } from "../core/time.ts";
import type { Findings } from "./conditions.ts";
import type { Look } from "./deps.ts";
import type { Told } from "./story.ts";

export interface Proof {
  guarantee: Guarantee;
  /** Why it is not more, where the guard is in place all the same. */
  open: string | undefined;
  /** A trial saw it refuse, and people have not read so for a while. */
  verified: boolean;
  story: readonly Told[];
}

/** A guard is tried this often. */
const tryMs = 30_000;
const believedMs = 60_000;
/** The owner's login is not used more often than this for one and the same thing. */
const mendMs = 300_000;
/** The status is not written for a new time alone more often than this. */
const toldMs = 600_000;

type Ready = Extract<Guard, { kind: "ready" }>;

const unproven: Proof = { guarantee: "Advisory", open: undefined, verified: false, story: [] };

/** Tries the guard, and mends it where that is ours to do. */
const attempt = async (
  { deps, memory, signal }: Look,
  { boundary }: Ready,
): Promise<{
  found: Awaited<ReturnType<typeof boundary.verify>>;
  story: readonly Told[];
}> => {
  const found = await boundary.verify(signal);
  if (found.outcome !== "open" || boundary.install === undefined) return { found, story: [] };
  const now = deps.clock.mono();
  const { mended: last } = memory.proof;
  if (last?.message === found.message && elapsed(last.at, now) < mendMs) return { found, story: [] };
  memory.proof.mended = { message: found.message, at: now };
  const installed = await boundary.install(signal);
  if (installed.outcome === "failed")
    return {
      found: { outcome: "open", message: `${found.message} (it cannot be mended: ${installed.message})` },
      story: [],
    };
  return {
    found: await boundary.verify(signal),
    story: [{ reason: "GuaranteeChanged", note: `the guard stood open and was mended: ${found.message}` }],
  };
};

export const prove = async (look: Look, guard: Guard, findings: Findings["boundary"]): Promise<Proof> => {
  const { deps, memory } = look;
  const { proof } = memory;
  if (guard.kind !== "ready" || findings !== "guarded") return unproven;
  let story: readonly Told[] = [];
  const before = proof.last?.hash === guard.hash ? proof.last : undefined;
  let last = before;
  if (before === undefined || elapsed(before.at, deps.clock.mono()) >= tryMs) {
    const tried = await attempt(look, guard);
    const at = deps.clock.mono();
    story = tried.story;
    if (tried.found.outcome === "proven") last = { hash: guard.hash, at, open: undefined };
    else if (tried.found.outcome === "open") last = { hash: guard.hash, at, open: tried.found.message };
    else if (before === undefined || elapsed(before.at, at) >= believedMs)
      // Not counted as a trial: the next look tries again.
      return { ...unproven, open: `the guard could not be tried: ${tried.found.message}`, story };
    proof.last = last;
  }
  if (last?.open !== undefined) return { ...unproven, open: last.open, story };
  const verified =
    last !== before && (proof.toldAt === undefined || elapsed(proof.toldAt, deps.clock.mono()) >= toldMs);
  if (verified) proof.toldAt = deps.clock.mono();
  return { guarantee: guard.onGrant ? "Fenced" : "Advisory", open: undefined, verified, story };
};

/** What was refused since the last look. A counter that fell back belongs to another past. */
export const countRefusals = ({ deps, memory }: Look, now: Refusals): bigint => {
  const before = memory.refused;
  memory.refused = now;
  if (before === undefined || now.stale < before.stale || now.missing < before.missing) return 0n;
  const of = { boundary: "PostgreSQL" } as const;
  deps.metrics.staleRejectionsTotal.inc(of, Number(now.stale - before.stale));
  deps.metrics.missingTokenRejectionsTotal.inc(of, Number(now.missing - before.missing));
  return now.stale - before.stale;
};
