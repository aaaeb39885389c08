/**
 * One look at one resource: what is there is gathered and mended, what was found becomes the status, and the status, if
 * it changed, is written once. Events are told when that write succeeded.
 */
import { isDeepStrictEqual } from "node:util";
import type { FencedResource, FencedResourceStatus } from "../api/fencedresource.ts";
import { apiVersion } from "../api/names.ts";
import { after, elapsed, type MonoTime } from "../core/time.ts";
import { fencedResourceKind } from "../kube/kinds.ts";
import { keyOf } from "../kube/leases.ts";
import type { Reconciled } from "../kube/queue.ts";
import type { Clock } from "../runtime/clock.ts";
import { formatMicroTime } from "../runtime/microtime.ts";
import type { Look } from "./deps.ts";
import { checkMs, type Gathered, gather } from "./gather.ts";
import { expiryOf } from "./memory.ts";
import { waitersOf } from "./mirror.ts";
import { statusOf } from "./status.ts";
import { storyOf, type Told } from "./story.ts";

/** A foreign Lease is not watched, a store does not say when it is back: looked at again after this time. */
const troubledMs = 30_000;
/** At most one status write per resource in this time. */
const pauseMs = 1_000;
/** After a conflict the watch needs a moment. */
const conflictMs = 200;

/** The newer of what the watch shows and what we wrote. Another uid is another object, and the watch knows better. */
export const latest = (seen: FencedResource, written: FencedResource | undefined): FencedResource =>
  written !== undefined &&
  written.metadata.uid === seen.metadata.uid &&
  BigInt(written.metadata.resourceVersion) > BigInt(seen.metadata.resourceVersion)
    ? written
    : seen;

/** RFC 3339 in whole seconds, as Kubernetes writes its own. */
const timeText = (clock: Clock): string => `${formatMicroTime(clock.wall()).slice(0, 19)}Z`;

const isTroubled = ({ findings }: Gathered): boolean =>
  findings.lease !== undefined ||
  findings.tokens !== undefined ||
  typeof findings.boundary !== "string" ||
  findings.open !== undefined;

/** Throws where only another try can tell; nothing was written to the status then. */
export const reconcileResource = async (look: Look): Promise<Reconciled> => {
  const { deps, object, resource, memory } = look;
  const gathered = await gather(look);
  const { lease } = gathered;
  const now = deps.clock.mono();
  const expiry = expiryOf(memory, lease?.view, resource.durationSeconds, now);
  const waiters = waitersOf(object.status?.waitersByReplica, memory.beats, now);
  memory.beats = waiters.beats;
  const { status, moves } = statusOf({
    ...gathered,
    ...memory.sightings,
    before: object.status,
    generation: object.metadata.generation,
    issuer: deps.issuer,
    expired: expiry.expired,
    waiters,
    now: timeText(deps.clock),
  });
  const durationSeconds = lease?.view.durationSeconds ?? resource.durationSeconds;
  const story = storyOf({
    before: object.status,
    last: memory.holder,
    after: status,
    moves,
    lease: lease?.view,
    durationSeconds,
  });
  measure(look, status);
  memory.untold = [...memory.untold, ...gathered.story];
  const again = await writeStatus(look, status, story);
  return {
    requeueAfterMs: soonest(now, [
      again,
      expiry.dueAt,
      waiters.dueAt,
      isTroubled(gathered) ? after(now, troubledMs) : undefined,
      memory.guard?.guard.kind === "ready" ? after(now, checkMs) : undefined,
    ]),
  };
};

/** Milliseconds until the first of these moments. */
const soonest = (now: MonoTime, moments: readonly (MonoTime | undefined)[]): number | undefined => {
  const waits = moments.flatMap((at) => (at === undefined ? [] : [Math.max(1, elapsed(now, at))]));
  return waits.length === 0 ? undefined : Math.min(...waits);
};

const measure = ({ deps, resource }: Look, { tokens, boundary }: FencedResourceStatus): void => {
  const numbers = { granted: tokens?.granted, ceiling: tokens?.ceiling, mark: boundary?.grantedMark };
  for (const [kind, text] of Object.entries(numbers))
    if (text !== undefined)
      deps.metrics.resourceToken?.set({ resource: keyOf(resource), kind }, Number(text));
};

/** Writes the status if it changed and tells the story if that succeeded. Answers when to come back for it. */
const writeStatus = async (
  look: Look,
  status: FencedResourceStatus,
  story: readonly Told[],
): Promise<MonoTime | undefined> => {
  const { deps, object, memory, signal } = look;
  const { clock, client } = deps;
  const now = clock.mono();
  const { unanswered } = memory;
  memory.unanswered = undefined;
  if (isDeepStrictEqual(object.status, status)) {
    // Nothing to write. Where an earlier write was not answered, it may be what made this so, and its story is due.
    tell(look, isDeepStrictEqual(unanswered?.status, status) ? (unanswered?.story ?? []) : []);
    return undefined;
  }
  const notBefore = memory.writtenAt === undefined ? now : after(memory.writtenAt, pauseMs);
  if (now < notBefore) return notBefore;
  signal.throwIfAborted();
  const written = await client.updateStatus(fencedResourceKind, { ...object, status }, signal);
  switch (written.outcome) {
    case "ok":
      memory.written = written.object;
      memory.writtenAt = clock.mono();
      memory.sightings = { verified: false, refusedStale: false };
      memory.holder = status.holder ?? memory.holder;
      tell(look, story);
      return undefined;
    case "unknown":
      memory.unanswered = { status, story };
      return after(clock.mono(), conflictMs);
    case "conflict":
      return after(clock.mono(), conflictMs);
    case "gone":
      return undefined;
    case "exists":
    case "refused":
    case "unavailable":
      throw new Error(`the status of ${keyOf(object.metadata)} was not written: ${written.message}`);
    default: {
      const never: never = written;
      return never;
    }
  }
};

/** What was done, then what became of it. */
const tell = ({ deps, object, memory }: Look, story: readonly Told[]): void => {
  const { namespace, name, uid } = object.metadata;
  const regarding = { apiVersion, kind: "FencedResource", namespace, name, uid };
  for (const { reason, note } of [...memory.untold, ...story]) {
    deps.events.record({ regarding, reason, note });
    deps.log.info({ resource: `${namespace}/${name}`, reason, note }, "told");
  }
  memory.untold = [];
};
