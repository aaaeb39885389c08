/**
 * What people are told, as events on the resource: what happened to whom, with which token and why. Each note is whole by
 * itself, for whoever reads the events alone.
 */
import type { FencedResourceStatus } from "../api/fencedresource.ts";
import type { EventReason } from "../api/names.ts";
import type { LeaseView } from "../core/lease.ts";
import { guaranteeText } from "./conditions.ts";
import { type HolderMirror, nameOf, saidExpired } from "./mirror.ts";
import type { Move } from "./transfers.ts";

/** One event, before it is known whether it may be told. */
export interface Told {
  reason: EventReason;
  note: string;
}

export interface Chapter {
  before: FencedResourceStatus | undefined;
  /** The last holder that was shown, also after it ended. */
  last: HolderMirror | undefined;
  after: FencedResourceStatus;
  moves: readonly Move[];
  lease: LeaseView | undefined;
  /** Seconds for which a renewal holds, by the Lease. */
  durationSeconds: number;
}

/** People's name of an attempt that is named by its identity: known for those that the status showed. */
const naming =
  ({ before, last, after }: Chapter) =>
  (identity: string): string => {
    const known = [after.holder, before?.holder, last].find((holder) => holder?.identity === identity);
    return nameOf(known ?? { identity });
  };

const withToken = (name: string, token: bigint | string | undefined): string =>
  token === undefined ? name : `${name} (token ${token})`;

type Ended = Extract<Move, { kind: "ended" }>;

const ending = (
  { reason, token }: Ended,
  name: string,
  { before, lease, durationSeconds }: Chapter,
): Told[] => {
  const who = withToken(name, token);
  switch (reason) {
    case "Released":
      return [{ reason: "LeaseReleased", note: `${who} gave the resource back` }];
    case "Expired":
      // Told once: by whoever saw it first, the clock or the next holder.
      return saidExpired(before?.holder) ? [] : [expired(who, durationSeconds)];
    case "Forced": {
      const by = lease?.forced === undefined ? "" : ` by ${lease.forced}`;
      return [{ reason: "LeaseForced", note: `taken away from ${who}${by}; its work may still run` }];
    }
    case "Deleted":
      return [
        {
          reason: "LeaseForced",
          note: `the Lease was deleted while ${who} held it: the resource is lost to it, its work may still run`,
        },
      ];
    default: {
      const never: never = reason;
      return never;
    }
  }
};

const expired = (who: string, durationSeconds: number): Told => ({
  reason: "LeaseExpired",
  note: `the lease of ${who} ran out: not renewed for ${durationSeconds} s; whoever asks next is granted a higher token`,
});

const because: Record<Ended["reason"], string> = {
  Released: "gave it back",
  Expired: "did not renew in time",
  Forced: "had it taken away",
  Deleted: "lost its Lease",
};

const owners = (chapter: Chapter): Told[] => {
  const name = naming(chapter);
  const { before, moves, after } = chapter;
  const open = before?.transfers?.at(-1);
  let last: { who: string; why: string } | undefined =
    open?.to === undefined && open?.from !== undefined
      ? { who: withToken(name(open.from), open.token), why: reasonText(open.reason) }
      : undefined;
  const told: Told[] = [];
  for (const move of moves) {
    const who = withToken(name(move.holder), move.token);
    if (move.kind === "ended") {
      told.push(...ending(move, name(move.holder), chapter));
      last = { who, why: because[move.reason] };
      continue;
    }
    const means = after.guarantee ?? "Advisory";
    told.push({
      reason: "TokenGranted",
      note: `token ${move.token} granted to ${name(move.holder)} (${means}: ${guaranteeText[means]})`,
    });
    if (last !== undefined)
      told.push({ reason: "OwnershipTransferred", note: `from ${last.who}, which ${last.why}, to ${who}` });
    last = undefined;
  }
  return told;
};

const isEnd = (reason: string): reason is Ended["reason"] => reason in because;
const reasonText = (reason: string): string => (isEnd(reason) ? because[reason] : "held it before");

/** The events that a change of the status stands for, in the order in which they happened. */
export const storyOf = (chapter: Chapter): Told[] => {
  const { before, after, durationSeconds } = chapter;
  const told: Told[] = [];
  if (before?.guarantee !== after.guarantee && after.guarantee !== undefined)
    told.push({
      reason: "GuaranteeChanged",
      note: `the guarantee is ${after.guarantee}: ${guaranteeText[after.guarantee]}${unguarded(after)}`,
    });
  told.push(...owners(chapter));
  const holder = after.holder;
  const sameHolder = holder?.identity === before?.holder?.identity;
  if (holder !== undefined && saidExpired(holder) && !(sameHolder && saidExpired(before?.holder)))
    told.push(expired(withToken(nameOf(holder), holder.token), durationSeconds));
  if ((after.waiters ?? 0) > 0 && (before?.waiters ?? 0) === 0) told.push(waiting(after));
  return told;
};

/** Why the boundary of a resource makes less true than it could. */
const unguarded = ({ conditions }: FencedResourceStatus): string => {
  const guarded = conditions?.find(({ type }) => type === "BoundaryGuarded");
  return guarded?.status === "False" ? `; ${guarded.message}` : "";
};

const waiting = (after: FencedResourceStatus): Told => {
  const ready = after.conditions?.find(({ type }) => type === "Ready");
  const why =
    ready?.status !== "True"
      ? `nothing is granted: ${ready?.message ?? "not ready"}`
      : after.holder === undefined
        ? "the resource is about to be granted"
        : `${withToken(nameOf(after.holder), after.holder.token)} has the resource`;
  return { reason: "Waiting", note: `somebody waits; ${why}` };
};
