/** What etcd keeps: objects by key, one revision per write, and a window of the past. */
import type { Stored } from "./objects.ts";

/** One committed write. `before` is undefined for a new object, `now` for a removed one (which `last` shows). */
export interface Commit {
  revision: number;
  /** Plural and group of the resource: watches are per resource. */
  resource: string;
  key: string;
  before: Stored | undefined;
  now: Stored | undefined;
  last: Stored;
}

export interface Snapshot {
  revision: number;
  compacted: number;
  tables: ReadonlyMap<string, ReadonlyMap<string, Stored>>;
  commits: readonly Commit[];
}

type Table = Map<string, Stored>;

export interface History {
  revision(): number;
  /** Nothing at or below it can be watched from or listed at. */
  compacted(): number;
  get(resource: string, key: string): Stored | undefined;
  /** All objects of a resource in the order of their keys, now or as they were at `revision`. */
  list(resource: string, revision?: number): Stored[];
  /** Stores what `make` says for the next revision; undefined removes the object. */
  commit(resource: string, key: string, make: (revision: string) => Stored, remove?: boolean): Commit;
  since(resource: string, revision: number): Commit[];
  /** Forgets the past. */
  compact(): void;
  snapshot(): Snapshot;
  restore(snapshot: Snapshot): void;
}

/** How many commits are kept, as the watch cache and etcd's compaction do. */
const window = 10_000;

const byKey = ([a]: [string, Stored], [b]: [string, Stored]) => (a < b ? -1 : 1);

export const makeHistory = (): History => {
  let tables = new Map<string, Table>();
  let commits: Commit[] = [];
  let revision = 1_000;
  let compacted = revision;

  const table = (resource: string): Table => {
    const found = tables.get(resource) ?? new Map<string, Stored>();
    tables.set(resource, found);
    return found;
  };

  return {
    revision: () => revision,
    compacted: () => compacted,
    get: (resource, key) => tables.get(resource)?.get(key),
    list(resource, at = revision) {
      const state = new Map(table(resource));
      for (const past of at < revision ? commits.toReversed() : []) {
        if (past.revision <= at) break;
        if (past.resource !== resource) continue;
        if (past.before === undefined) state.delete(past.key);
        else state.set(past.key, past.before);
      }
      return [...state].toSorted(byKey).map(([, object]) => object);
    },
    commit(resource, key, make, remove = false) {
      revision += 1;
      const before = table(resource).get(key);
      const last = make(String(revision));
      if (remove) table(resource).delete(key);
      else table(resource).set(key, last);
      const committed = { revision, resource, key, before, now: remove ? undefined : last, last };
      commits.push(committed);
      if (commits.length > 2 * window) {
        commits = commits.slice(-window);
        compacted = (commits[0]?.revision ?? revision) - 1;
      }
      return committed;
    },
    since: (resource, from) => commits.filter((past) => past.revision > from && past.resource === resource),
    compact() {
      commits = [];
      compacted = revision;
    },
    snapshot: () => ({
      revision,
      compacted,
      tables: new Map([...tables].map(([resource, objects]) => [resource, new Map(objects)])),
      commits: [...commits],
    }),
    restore(snapshot) {
      ({ revision, compacted } = snapshot);
      tables = new Map([...snapshot.tables].map(([resource, objects]) => [resource, new Map(objects)]));
      commits = [...snapshot.commits];
    },
  };
};
