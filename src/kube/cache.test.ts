import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Change, makeObjectCache } from "./cache.ts";
import type { KubeObject } from "./types.ts";

const at = (name: string, uid: string, resourceVersion: string): KubeObject => ({
  metadata: { name, namespace: "shop", uid, resourceVersion },
});
const brief = (changes: Change<KubeObject>[]) =>
  changes.map(
    ({ type, object: { metadata } }) =>
      `${type} ${metadata.name} ${metadata.uid} ${metadata.resourceVersion}`,
  );
const a = { namespace: "shop", name: "a" };

describe("what a cache reports", () => {
  it("reports a state once", () => {
    const cache = makeObjectCache();
    expect(brief(cache.put(at("a", "u", "1")))).toEqual(["added a u 1"]);
    expect(brief(cache.put(at("a", "u", "1")))).toEqual([]);
    expect(brief(cache.put(at("a", "u", "2")))).toEqual(["modified a u 2"]);
    expect(brief(cache.remove(a, at("a", "u", "3")))).toEqual(["deleted a u 3"]);
    expect(brief(cache.remove(a, undefined))).toEqual([]);
  });

  it("reports a re-created object as deleted and added, in a watch and in a list", () => {
    const cache = makeObjectCache();
    cache.put(at("a", "u", "1"));
    expect(brief(cache.put(at("a", "v", "5")))).toEqual(["deleted a u 1", "added a v 5"]);
    expect(brief(cache.replace([at("a", "w", "9")], false))).toEqual(["deleted a v 5", "added a w 9"]);
  });

  it("reports the deletion of the object that it knew", () => {
    const cache = makeObjectCache();
    cache.put(at("a", "u", "1"));
    expect(brief(cache.remove(a, at("a", "v", "7")))).toEqual(["deleted a u 1"]);
  });

  it("compares states in a list: an equal resourceVersion may be another one after a restore", () => {
    const cache = makeObjectCache();
    cache.put(at("a", "u", "4"));
    expect(brief(cache.replace([at("a", "u", "4")], false))).toEqual([]);
    expect(brief(cache.replace([at("a", "u", "4")], true))).toEqual(["modified a u 4"]);
    const other = { metadata: { ...at("a", "u", "4").metadata, labels: { b: "c" } } };
    expect(brief(cache.replace([other], false))).toEqual(["modified a u 4"]);
  });

  it("reports changes that lead from what was known to what is known, whatever happens", () => {
    const object = fc
      .tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("u", "v"), fc.integer({ min: 1, max: 5 }))
      .map(([name, uid, version]) => at(name, uid, String(version)));
    const step = fc.oneof(
      fc.record({ do: fc.constant("put" as const), object }),
      fc.record({ do: fc.constant("remove" as const), object }),
      fc.record({ do: fc.constant("list" as const), objects: fc.array(object), again: fc.boolean() }),
    );
    fc.assert(
      fc.property(fc.array(step), (steps) => {
        const cache = makeObjectCache();
        const shadow = new Map<string, KubeObject>();
        for (const step of steps) {
          const changes =
            step.do === "put"
              ? cache.put(step.object)
              : step.do === "remove"
                ? cache.remove(step.object.metadata, step.object)
                : cache.replace(step.objects, step.again);
          for (const change of changes) {
            const key = `shop/${change.object.metadata.name}`;
            expect(shadow.has(key)).toBe(change.type !== "added");
            expect(change.type === "modified" ? change.previous : shadow.get(key)).toEqual(shadow.get(key));
            if (change.type === "deleted") shadow.delete(key);
            else shadow.set(key, change.object);
          }
          expect([...shadow.values()]).toEqual(expect.arrayContaining([...cache.values()]));
          expect(shadow.size).toBe(cache.size());
        }
      }),
    );
  });
});
