/** What the controller keeps of each resource between two looks, in this process alone. Nothing of it is needed for safety. */
import type { FencedResource, FencedResourceStatus } from "../api/fencedresource.ts";
import type { Guard } from "../boundary/guard.ts";
import type { Refusals } from "../boundary/port.ts";
import type { LeaseView } from "../core/lease.ts";
import { type Observation, observe, takeableAt } from "../core/observation.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import type { SequenceState } from "../store/port.ts";
import type { Findings } from "./conditions.ts";
import type { Beat, HolderMirror } from "./mirror.ts";
import type { Told } from "./story.ts";

export interface Memory {
  /** The resource as we last wrote it: the watch may be behind it. */
  written: FencedResource | undefined;
  writtenAt: MonoTime | undefined;
  /** What was done and is told with the next status write. */
  untold: readonly Told[];
  /** A status write that nobody answered, and what it stood for. */
  unanswered: { status: FencedResourceStatus; story: readonly Told[] } | undefined;
  /** The last holder shown, for its name. */
  holder: HolderMirror | undefined;
  observation: Observation | undefined;
  /** The record that was said to have run out. It has not come back to life while it stays the same. */
  expired: string | undefined;
  /** Since when the Lease has named this token, of this uid. */
  stood: { grant: string; since: MonoTime } | undefined;
  /** Highest token or ceiling that any Lease of this resource showed. */
  highest: Token;
  /** How often the API server went back in time, as far as it is mended for this resource. */
  mended: number;
  beats: ReadonlyMap<string, Beat>;
  /** The boundary as last asked for, and for what. */
  guard: { of: string; guard: Guard; at: MonoTime } | undefined;
  /** What the last look at the boundary showed. */
  checked: { findings: Findings["boundary"]; mark: Token | undefined; at: MonoTime } | undefined;
  /** The sequence as last read, where nothing tells when it changes. */
  sequence: { state: SequenceState; at: MonoTime } | undefined;
  /** The boundary changed: it is looked at again whatever the time. */
  stirred: boolean;
  /** Seen since the status was last written. */
  sightings: { verified: boolean; refusedStale: boolean };
  /** What the boundary had refused when it was last looked at. */
  refused: Refusals | undefined;
  proof: {
    /** The last answered trial of the guard: of which boundary, and which way around it was open. */
    last: { hash: string; open: string | undefined; at: MonoTime } | undefined;
    /** When the guard was last mended, and why. */
    mended: { message: string; at: MonoTime } | undefined;
    /** When the status last said that it was tried. */
    toldAt: MonoTime | undefined;
  };
}

export const makeMemory = (): Memory => ({
  written: undefined,
  writtenAt: undefined,
  untold: [],
  unanswered: undefined,
  holder: undefined,
  observation: undefined,
  expired: undefined,
  stood: undefined,
  highest: noToken,
  mended: 0,
  beats: new Map(),
  guard: undefined,
  checked: undefined,
  sequence: undefined,
  stirred: false,
  sightings: { verified: false, refusedStale: false },
  refused: undefined,
  proof: { last: undefined, mended: undefined, toldAt: undefined },
});

/** Takes note of a Lease as it is seen at `now`; `saidExpired`: the status says that this very grant ran out. */
export const noteLease = (
  memory: Memory,
  view: LeaseView,
  epoch: number,
  saidExpired: boolean,
  now: MonoTime,
): void => {
  const first = memory.observation === undefined;
  memory.observation = observe(memory.observation, view, epoch, now);
  // Another leader saw it run out. What it looked at was this, or it has been renewed since: then it will be again.
  if (first && saidExpired) memory.expired = memory.observation.record;
  if (view.ours) memory.highest = higher(memory.highest, view.credit?.ceiling ?? noToken);
  const grant = `${view.uid}/${view.holder ?? ""}/${view.credit?.token ?? ""}`;
  if (memory.stood?.grant !== grant) memory.stood = { grant, since: now };
};

export interface Expiry {
  expired: boolean;
  /** When it will be, if nothing happens. */
  dueAt: MonoTime | undefined;
}

/** Has the lease of the holder run out, by our own observation? Nobody frees it; it is only told. */
export const expiryOf = (
  memory: Memory,
  view: LeaseView | undefined,
  durationSeconds: number,
  now: MonoTime,
): Expiry => {
  const { observation } = memory;
  if (view?.holder === undefined || observation === undefined) return { expired: false, dueAt: undefined };
  if (memory.expired === observation.record) return { expired: true, dueAt: undefined };
  const patience = { durationSeconds, lockDelaySeconds: 0, fenced: true };
  const dueAt = takeableAt(observation, view, true, patience);
  if (elapsed(dueAt, now) < 0) return { expired: false, dueAt };
  memory.expired = observation.record;
  return { expired: true, dueAt: undefined };
};
