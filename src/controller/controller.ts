/**
 * The controller: FencedResources kept in order by one leader.
 *
 * | | leading | standby |
 * | --- | --- | --- |
 * | something changed | noted, looked at | noted |
 * | history went back | noted, all looked at | noted |
 * | told to end, or leadership lost | what runs is aborted, nothing more is written | nothing |
 */
import { resourceSpec } from "../api/resourcespec.ts";
import { makeQueue, type Queue, type Reconciled } from "../kube/queue.ts";
import { cachedLease, type ControllerDeps } from "./deps.ts";
import { observeLease } from "./gather.ts";
import { makeMemory, type Memory } from "./memory.ts";
import { latest, reconcileResource } from "./reconcile.ts";

export interface Controller {
  /** Leads until `signal` is aborted; resolves when what ran has ended. Writes nothing afterwards. */
  run(signal: AbortSignal): Promise<void>;
  /** A watch shows a resource, its Lease or its sequence in another state, or no more. Leading or not. */
  changed(resource: `${string}/${string}`): void;
  /** Its boundary is not as it was: it is looked at now. Leading or not. */
  stirred(resource: `${string}/${string}`): void;
  /** The API server's history went back. Leading or not. */
  regressed(): void;
}

/** Looks at the same time: each waits for the API server most of the time. */
const concurrency = 4;

export const makeController = (deps: ControllerDeps): Controller => {
  const { caches, clock, random, log, metrics } = deps;
  const memories = new Map<string, Memory>();
  let restores = 0;
  let queue: Queue | undefined;

  const memoryOf = (key: string): Memory => {
    const known = memories.get(key) ?? makeMemory();
    memories.set(key, known);
    return known;
  };

  /** Nothing is kept of a resource that is gone; but what was seen before a restore is, until it was mended. */
  const forget = (key: string): void => {
    const memory = memories.get(key);
    if (memory === undefined) return;
    memories.delete(key);
    if (memory.mended < restores)
      memories.set(key, { ...makeMemory(), highest: memory.highest, mended: memory.mended });
    for (const kind of ["granted", "ceiling", "mark"]) metrics.resourceToken?.remove({ resource: key, kind });
  };

  const find = (key: string) => {
    const [namespace, name = ""] = key.split("/");
    const object = caches.resources.get({ namespace, name });
    return object === undefined || object.metadata.deletionTimestamp !== undefined ? undefined : object;
  };

  const reconcile = async (key: string, signal: AbortSignal): Promise<Reconciled> => {
    const seen = find(key);
    if (seen === undefined) {
      forget(key);
      return {};
    }
    const memory = memoryOf(key);
    const object = latest(seen, memory.written);
    return reconcileResource({ deps, object, resource: resourceSpec(object), memory, restores, signal });
  };

  return {
    changed(key) {
      const object = find(key);
      if (object === undefined) forget(key);
      else {
        const resource = resourceSpec(object);
        const lease = cachedLease(caches, resource);
        if (lease !== undefined) observeLease({ deps, object, memory: memoryOf(key) }, lease);
      }
      queue?.add(key);
    },

    stirred(key) {
      if (find(key) === undefined) return;
      memoryOf(key).stirred = true;
      queue?.add(key);
    },

    regressed() {
      restores += 1;
      for (const memory of memories.values()) memory.written = undefined;
      for (const key of memories.keys()) queue?.add(key);
    },

    async run(signal) {
      const ended = new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      await Promise.race([Promise.all(Object.values(caches).map((cache) => cache.synced())), ended]);
      if (signal.aborted) return;
      const working = makeQueue({
        name: "fencedresources",
        reconcile: (key) => reconcile(key, signal),
        concurrency,
        clock,
        random,
        log,
        duration: metrics.reconcileDuration,
      });
      queue = working;
      for (const { metadata } of caches.resources.list())
        working.add(`${metadata.namespace}/${metadata.name}`);
      await ended;
      queue = undefined;
      await working.drain(signal);
    },
  };
};
