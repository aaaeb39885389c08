/** What a reflector knows, and what changes in it. Pure: no time, no I/O. */
import { isDeepStrictEqual } from "node:util";
import type { KubeObject, Ref } from "./types.ts";

/** One step from what was known to what is known. A re-created object is a `deleted` followed by an `added`. */
export type Change<T> =
  | { type: "added"; object: T }
  | { type: "modified"; object: T; previous: T }
  /** `object` is the last state known; the server may have seen a later one. */
  | { type: "deleted"; object: T };

export interface ObjectCache<T extends KubeObject> {
  get(ref: Ref): T | undefined;
  values(): IterableIterator<T>;
  size(): number;
  /** A state that the server reported. Nothing changes if it is the one known. */
  put(object: T): Change<T>[];
  remove(ref: Ref, last: T | undefined): Change<T>[];
  /**
   * Everything there is, as a whole list says. States are compared, not resourceVersions: after a restore of etcd an
   * equal one need not be the same state. With `again` every object that stays is reported, changed or not.
   */
  replace(objects: readonly T[], again: boolean): Change<T>[];
}

/** By namespace, then name: a key made of both would cost as much as another tenth of a small object. */
type Known<T> = Map<string, Map<string, T>>;

const insert = <T extends KubeObject>(known: Known<T>, object: T): void => {
  const { namespace = "", name } = object.metadata;
  const inside = known.get(namespace) ?? new Map<string, T>();
  known.set(namespace, inside);
  inside.set(name, object);
};

function* all<T>(known: Known<T>): IterableIterator<T> {
  for (const inside of known.values()) yield* inside.values();
}

const step = <T extends KubeObject>(previous: T | undefined, object: T, same: boolean): Change<T>[] => {
  if (previous === undefined) return [{ type: "added", object }];
  if (previous.metadata.uid !== object.metadata.uid)
    return [
      { type: "deleted", object: previous },
      { type: "added", object },
    ];
  return same ? [] : [{ type: "modified", object, previous }];
};

export const makeObjectCache = <T extends KubeObject>(): ObjectCache<T> => {
  let known: Known<T> = new Map();
  const find = (from: Known<T>, { namespace = "", name }: Ref) => from.get(namespace)?.get(name);

  return {
    get: (ref) => find(known, ref),
    values: () => all(known),
    size: () => [...known.values()].reduce((sum, inside) => sum + inside.size, 0),
    put(object) {
      const previous = find(known, object.metadata);
      insert(known, object);
      return step(previous, object, previous?.metadata.resourceVersion === object.metadata.resourceVersion);
    },
    remove(ref, last) {
      const previous = find(known, ref);
      if (previous === undefined) return [];
      const { namespace = "", name } = ref;
      const inside = known.get(namespace);
      inside?.delete(name);
      if (inside?.size === 0) known.delete(namespace);
      // Deleted and re-created in a gap, then deleted again: what is reported is the one that was known.
      const same = last !== undefined && last.metadata.uid === previous.metadata.uid;
      return [{ type: "deleted", object: same ? last : previous }];
    },
    replace(objects, again) {
      const fresh: Known<T> = new Map();
      for (const object of objects) insert(fresh, object);
      const changes: Change<T>[] = [];
      for (const object of all(known))
        if (find(fresh, object.metadata) === undefined) changes.push({ type: "deleted", object });
      for (const object of all(fresh)) {
        const previous = find(known, object.metadata);
        changes.push(...step(previous, object, !again && isDeepStrictEqual(previous, object)));
      }
      known = fresh;
      return changes;
    },
  };
};
