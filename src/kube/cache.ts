/** What a reflector knows, and what changes in it. Pure: no time, no I/O. */
import { isDeepStrictEqual } from "node:util";
import type { KubeObject, Ref } from "./types.ts";

/** One step from what was known to what is known. A re-created object is a `deleted` followed by an `added`. */
export type Change<T> =
  | { type: "added"; object: T }
  | { type: "modified"; object: T; previous: T }
  /** `object` is the last state known; the server may have seen a later one. */
  | { type: "deleted"; object: T };

export const keyOf = ({ namespace, name }: Ref): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

export interface ObjectCache<T extends KubeObject> {
  get(key: string): T | undefined;
  values(): IterableIterator<T>;
  size(): number;
  /** A state that the server reported. Nothing changes if it is the one known. */
  put(object: T): Change<T>[];
  remove(key: string, last: T | undefined): Change<T>[];
  /**
   * Everything there is, as a whole list says. States are compared, not resourceVersions: after a restore of etcd an
   * equal one need not be the same state. With `again` every object that stays is reported, changed or not.
   */
  replace(objects: ReadonlyMap<string, T>, again: boolean): Change<T>[];
}

export const makeObjectCache = <T extends KubeObject>(): ObjectCache<T> => {
  let known = new Map<string, T>();

  const step = (previous: T | undefined, object: T, same: boolean): Change<T>[] => {
    if (previous === undefined) return [{ type: "added", object }];
    if (previous.metadata.uid !== object.metadata.uid)
      return [
        { type: "deleted", object: previous },
        { type: "added", object },
      ];
    return same ? [] : [{ type: "modified", object, previous }];
  };

  return {
    get: (key) => known.get(key),
    values: () => known.values(),
    size: () => known.size,
    put(object) {
      const key = keyOf(object.metadata);
      const previous = known.get(key);
      const same = previous?.metadata.resourceVersion === object.metadata.resourceVersion;
      const changes = step(previous, object, same);
      known.set(key, object);
      return changes;
    },
    remove(key, last) {
      const previous = known.get(key);
      if (!known.delete(key) || previous === undefined) return [];
      // Deleted and re-created in a gap, then deleted again: what is reported is the one that was known.
      const same = last !== undefined && last.metadata.uid === previous.metadata.uid;
      return [{ type: "deleted", object: same ? last : previous }];
    },
    replace(objects, again) {
      const changes: Change<T>[] = [];
      for (const [key, object] of known) if (!objects.has(key)) changes.push({ type: "deleted", object });
      for (const [key, object] of objects) {
        const previous = known.get(key);
        changes.push(...step(previous, object, !again && isDeepStrictEqual(previous, object)));
      }
      known = new Map(objects);
      return changes;
    },
  };
};
