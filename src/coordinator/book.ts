/**
 * What this replica knows of the Leases: the watch, its own writes and its own fresh reads, whichever is newest, and
 * since when each record has stood unchanged.
 *
 * It decides nothing: every grant is a compare-and-set on the version that was read here, so a stale entry costs a
 * conflict and never a wrong owner.
 */
import { grantedToken } from "../core/lease.ts";
import { observe, type Observation } from "../core/observation.ts";
import { higher, noToken, type Token } from "../core/token.ts";
import { type FencedLease, keyOf, type ResourceName } from "../kube/leases.ts";
import type { Clock } from "../runtime/clock.ts";
import { makeBells } from "./bells.ts";

export interface Known {
  lease: FencedLease;
  observation: Observation;
}

export interface Book {
  get(resource: ResourceName): Known | undefined;
  /** Whether the watch shows what there is. If not, only a fresh read does, and nobody's time runs out. */
  level(): boolean;
  /** Notes a version that was read fresh, written by us, or seen by the watch. Older ones change nothing. */
  put(resource: ResourceName, lease: FencedLease): Known;
  /** Notes that there is no Lease; `uid` is the one that is gone, where that is known. */
  drop(resource: ResourceName, uid?: string): void;
  /** The watch was interrupted: nothing seen so far counts as observed, and nothing will until it is {@link resumed}. */
  interrupted(): void;
  resumed(): void;
  /** The API server went back in time: forget every version, remember every token. */
  regressed(): void;
  /** Calls `wake` whenever what is known of the resource changed. Returns what ends it. */
  onChange(resource: ResourceName, wake: () => void): () => void;
  /** Set while the Lease or the sequence of a resource may have gone back in time. */
  suspect(resource: ResourceName): Suspicion | undefined;
  /** A caller showed a token above what the Lease grants. */
  testify(resource: ResourceName, token: Token): void;
  /** What was suspected is answered for; what came up since then is not. */
  mended(resource: ResourceName, suspicion: Suspicion): void;
}

/** Somebody may have been granted more than the API server remembers. */
export interface Suspicion {
  /** Highest token seen: nothing up to it, and a safety jump more, may be granted again. */
  seen: Token;
  /** How many reasons to suspect there were. */
  reasons: number;
}

interface Entry {
  known: Known | undefined;
  /** Highest token seen of this resource, over all versions and restores. */
  highest: Token;
  /** How often a caller testified. */
  testimonies: number;
  /** How many reasons to suspect, restores and testimonies, are answered for. */
  mended: number;
}

/** Resource versions are decimal and grow within one history of etcd (KEP-5504). */
export const newer = (a: string, b: string): boolean => BigInt(a) > BigInt(b);

export const makeBook = (clock: Clock): Book => {
  const entries = new Map<string, Entry>();
  const bells = makeBells();
  let epoch = 0;
  let restores = 0;
  let blind = false;

  const entryOf = (key: string): Entry => {
    let entry = entries.get(key);
    if (entry === undefined) {
      entry = { known: undefined, highest: noToken, testimonies: 0, mended: 0 };
      entries.set(key, entry);
    }
    return entry;
  };

  const observed = (key: string, lease: FencedLease, previous: Known | undefined): Known => {
    const known = { lease, observation: observe(previous?.observation, lease.view, epoch, clock.mono()) };
    const entry = entryOf(key);
    entry.known = known;
    entry.highest = higher(entry.highest, grantedToken(lease.view));
    return known;
  };

  const anew = () => {
    epoch += 1;
    for (const [key, entry] of entries) {
      if (entry.known !== undefined) observed(key, entry.known.lease, entry.known);
      bells.ring(key);
    }
  };

  /** Who cannot see does not observe: no record grows old meanwhile. */
  const shown = (known: Known): Known =>
    blind ? { ...known, observation: { ...known.observation, since: clock.mono() } } : known;

  return {
    get(resource) {
      const known = entries.get(keyOf(resource))?.known;
      return known === undefined ? undefined : shown(known);
    },

    level: () => !blind,

    put(resource, lease) {
      const key = keyOf(resource);
      const previous = entries.get(key)?.known;
      if (previous !== undefined && !newer(lease.view.resourceVersion, previous.lease.view.resourceVersion))
        return shown(previous);
      const known = observed(key, lease, previous);
      bells.ring(key);
      return shown(known);
    },

    drop(resource, uid) {
      const key = keyOf(resource);
      const entry = entries.get(key);
      if (entry?.known === undefined || (uid !== undefined && entry.known.lease.view.uid !== uid)) return;
      entry.known = undefined;
      bells.ring(key);
    },

    interrupted() {
      blind = true;
      anew();
    },

    resumed() {
      blind = false;
      anew();
    },

    regressed() {
      restores += 1;
      epoch += 1;
      for (const [key, entry] of entries) {
        entry.known = undefined;
        bells.ring(key);
      }
    },

    onChange: (resource, wake) => bells.listen(keyOf(resource), wake),

    suspect(resource) {
      const { highest, testimonies, mended } = entryOf(keyOf(resource));
      const reasons = restores + testimonies;
      return mended < reasons ? { seen: highest, reasons } : undefined;
    },

    testify(resource, token) {
      const entry = entryOf(keyOf(resource));
      entry.highest = higher(entry.highest, token);
      entry.testimonies += 1;
    },

    mended(resource, { reasons }) {
      const entry = entryOf(keyOf(resource));
      entry.mended = Math.max(entry.mended, reasons);
    },
  };
};
