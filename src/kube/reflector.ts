/**
 * A copy of what the API server has of one kind, kept level by list and watch.
 *
 * | state | does | then |
 * | --- | --- | --- |
 * | listing | reads all pages | watching · back-off when it fails, also by 410 on a later page |
 * | verifying | asks for the server's resourceVersion | watching · listing when it is below ours (restore) |
 * | watching | reads lines for 20 … 30 s, until the server ends the watch in order | watching · verifying if no bookmark came |
 * | back-off | waits 0.25 … 10 s, jittered, or what the server asks for | verifying after a watch broke · else listing |
 *
 * Watches are short, because the server sends a bookmark 2 s before the end of each: a bookmark proves that the
 * connection is alive and the position current. A watch that does not end in order within 5 s of its time is dead
 * (half-open), so silence lasts 35 s at most. A watch from a resourceVersion above the server's own, as after a restore
 * of etcd, is silent without an error: it gets no bookmark, or one below our position, and either leads to a list.
 *
 * What may be concluded:
 * - The cache never skips an object: each one is shown in a state that the server had at or after the last list, and the
 *   newest state arrives as long as the server can be reached. States in between may be left out by a list.
 * - While {@link Reflector.epoch} stays the same, an object whose uid and resourceVersion stay the same did not change,
 *   up to what the server had written at {@link Reflector.lastSeen}, and the server could be reached all the while.
 * - The epoch grows when the watch ends in any way but in order, and again when the next one is accepted. Whoever
 *   judges "nothing happened for so long" begins anew with each epoch. Objects that changed in the gap arrive as changes.
 * - If etcd alone is restored and its API servers run on, these go on showing what is gone, to everybody: they have to
 *   be restarted. Until then the cache equals what they show.
 */
import { anyObjectSchema, bookmarkSchema, listSchema, statusSchema, watchEventSchema } from "../api/k8s.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import { type Change, makeObjectCache } from "./cache.ts";
import { KubeError } from "./errors.ts";
import { errorOf, pathOf, queryOf } from "./http.ts";
import { parseJson } from "./json.ts";
import type { Kind, KubeObject, Ref, Transport } from "./types.ts";

export interface ReflectorOptions<T extends KubeObject> {
  transport: Transport;
  kind: Kind<T>;
  /** Left out: all namespaces. */
  namespace?: string | undefined;
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
  clock: Clock;
  random: Random;
  log: Logger;
  /** Called in order, one by one, never twice for the same state. What it throws is counted and logged. */
  onChange?: (change: Change<T>) => void | Promise<void>;
  /**
   * The server's history went back (a restore of etcd). Called before the changes that the new list brings; every object
   * that stays is among them, changed or not.
   */
  onRegressed?: () => void;
  /** The watch ended other than in order; the epoch has grown. */
  onInterrupted?: (reason: string) => void;
  /** A watch is accepted again, and what changed meanwhile is on its way; the epoch has grown once more. */
  onResumed?: () => void;
}

export interface ReflectorStats {
  objects: number;
  /** Position in the server's history; undefined before the first list. */
  resourceVersion: string | undefined;
  lists: number;
  watches: number;
  interruptions: number;
  handlerErrors: number;
  /** Objects whose last state could not be read, with the reason. The cache has an earlier state of them, or none. */
  unreadable: ReadonlyMap<string, string>;
}

export interface Reflector<T extends KubeObject> {
  /** Runs until `signal` is aborted; then resolves, and nothing is called any more. Never rejects. Once. */
  start(signal: AbortSignal): Promise<void>;
  /** Resolves with the first whole list; rejects with the signal's reason if it is stopped before. */
  synced(): Promise<void>;
  get(ref: Ref): T | undefined;
  list(): T[];
  epoch(): number;
  /** When the server was last heard; undefined before. */
  lastSeen(): MonoTime | undefined;
  /** Whether the cache is level, as far as can be known. A connection that died in silence is noticed within 35 s. */
  healthy(): boolean;
  stats(): ReflectorStats;
}

const pageSize = 500;
const watchSeconds = { least: 20, spread: 11 };
/** A watch is asked for whole seconds, and the end of it has to travel. */
const lateMs = 5_000;
/** A watch that lived this long was a good one: the next failure starts with a short delay again. */
const steadyMs = 10_000;
const backoff = { firstMs: 250, ceilingMs: 10_000 };

/** Our position is of no use any more: only a whole list helps. */
class Relist extends Error {}

/** resourceVersions are decimal numbers that can be compared (Kubernetes ≥ 1.35 says so; etcd's always were). */
const isBelow = (a: string, b: string): boolean =>
  /^\d+$/.test(a) && /^\d+$/.test(b) && BigInt(a) < BigInt(b);

const isOlder = (a: KubeObject, b: KubeObject | undefined): boolean =>
  a.metadata.uid === b?.metadata.uid && isBelow(a.metadata.resourceVersion, b.metadata.resourceVersion);

const keyOf = ({ namespace, name }: Ref): string => (namespace === undefined ? name : `${namespace}/${name}`);

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export const makeReflector = <T extends KubeObject>(options: ReflectorOptions<T>): Reflector<T> => {
  const { transport, kind, clock, random, log } = options;
  const { namespace, labelSelector, fieldSelector } = options;
  const path = pathOf(kind, namespace);
  const resource = kind.plural;
  const cache = makeObjectCache<T>();
  const unreadable = new Map<string, string>();
  const counts = { lists: 0, watches: 0, interruptions: 0, handlerErrors: 0 };
  const synced = Promise.withResolvers<void>();
  synced.promise.catch(() => {});
  let isSynced = false;
  let interrupted = false;
  let stopping: AbortSignal | undefined;
  let epoch = 0;
  let lastSeen: MonoTime | undefined;
  /** Where the next watch begins; undefined: with a list. */
  let position: string | undefined;
  /** The last position there was. */
  let newest: string | undefined;
  /** The server's history is known to have gone back, and the next list will show it. */
  let regressed = false;
  let verified = true;
  let accepted = false;
  let failures = 0;

  const handlerFailed = (error: unknown) => {
    counts.handlerErrors++;
    log.error(
      { kind: resource, error: error instanceof Error ? error : String(error) },
      "handler of a change failed",
    );
  };

  const guarded = (call: () => void | Promise<void>) => {
    if (stopping?.aborted === true) return;
    try {
      const pending = call();
      if (pending instanceof Promise) pending.catch(handlerFailed);
    } catch (error) {
      handlerFailed(error);
    }
  };

  const report = (changes: readonly Change<T>[]) => {
    for (const change of changes) guarded(() => options.onChange?.(change));
  };

  const interrupt = (reason: string, error: unknown) => {
    log.warn(
      { kind: resource, reason, error: error instanceof Error ? error : undefined },
      "watch interrupted",
    );
    if (interrupted || !isSynced) return;
    interrupted = true;
    epoch++;
    counts.interruptions++;
    guarded(() => options.onInterrupted?.(reason));
  };

  const resume = () => {
    if (!interrupted) return;
    interrupted = false;
    epoch++;
    log.info({ kind: resource, epoch }, "watch resumed");
    guarded(() => options.onResumed?.());
  };

  const send = async (query: Record<string, string | number | undefined>, signal: AbortSignal) => {
    const request = {
      method: "GET" as const,
      path: path + queryOf({ labelSelector, fieldSelector, ...query }),
      verb: "list",
      resource,
    };
    const answer = await transport.request(request, signal);
    if (answer.status !== 200) throw errorOf(request, answer, transport);
    lastSeen = clock.mono();
    const { items, metadata } = listSchema.parse(parseJson(answer.body));
    return { items: items ?? [], ...metadata };
  };

  const wentBack = (from: string, to: string): Relist => {
    regressed = true;
    return new Relist(`resourceVersion went back from ${from} to ${to}`);
  };

  const advance = (to: string) => {
    if (position !== undefined && isBelow(to, position)) throw wentBack(position, to);
    position = newest = to;
  };

  /** One object as its kind reads it. One that cannot be read is noted, and never stops the others. */
  const readObject = (value: unknown) => {
    const metadata = anyObjectSchema.safeParse(value).data?.metadata ?? {};
    const ref: Ref = { namespace: metadata.namespace, name: metadata.name ?? "?" };
    const key = keyOf(ref);
    const read = { ref, resourceVersion: metadata.resourceVersion };
    try {
      const object = kind.parse(value);
      unreadable.delete(key);
      return { ...read, object };
    } catch (error) {
      if (!unreadable.has(key))
        log.error({ kind: resource, resource: key, error: textOf(error) }, "object cannot be read");
      unreadable.set(key, textOf(error));
      return { ...read, object: undefined };
    }
  };

  const list = async (signal: AbortSignal) => {
    const objects: T[] = [];
    const seen = new Set<string>();
    let next: string | undefined;
    let resourceVersion: string;
    counts.lists++;
    do {
      const page = await send({ limit: pageSize, continue: next }, signal);
      for (const item of page.items) {
        const { ref, object } = readObject(item);
        const kept = object ?? cache.get(ref);
        if (object === undefined) seen.add(keyOf(ref));
        if (kept !== undefined) objects.push(kept);
      }
      next = page.continue === "" ? undefined : page.continue;
      resourceVersion = page.resourceVersion;
    } while (next !== undefined);
    for (const key of unreadable.keys()) if (!seen.has(key)) unreadable.delete(key);
    // Past our position again after an outage, only the objects themselves show that history went back.
    if (objects.some((object) => isOlder(object, cache.get(object.metadata)))) regressed = true;
    if (newest !== undefined && isBelow(resourceVersion, newest)) regressed = true;
    position = newest = resourceVersion;
    verified = true;
    const changes = cache.replace(objects, regressed);
    if (regressed) guarded(() => options.onRegressed?.());
    regressed = false;
    report(changes);
    isSynced = true;
    synced.resolve();
  };

  const verify = async (from: string, signal: AbortSignal) => {
    const { resourceVersion } = await send({ limit: 1 }, signal);
    if (isBelow(resourceVersion, from)) throw wentBack(from, resourceVersion);
    verified = true;
  };

  const apply = (line: string): "bookmark" | "change" => {
    const { type, object: value } = watchEventSchema.parse(parseJson(line));
    if (type === "ERROR") {
      const { message = "ERROR in a watch", code = 500, reason, details } = statusSchema.parse(value);
      const tooLarge = details?.causes?.some((cause) => cause.reason === "ResourceVersionTooLarge") === true;
      if (code === 410 || reason === "Expired" || reason === "Gone" || tooLarge) throw new Relist(message);
      throw new KubeError("unreachable", message, { status: code, reason });
    }
    if (type === "BOOKMARK") {
      advance(bookmarkSchema.parse(value).metadata.resourceVersion);
      return "bookmark";
    }
    const { ref, resourceVersion, object } = readObject(value);
    if (resourceVersion !== undefined) advance(resourceVersion);
    if (type === "DELETED") {
      unreadable.delete(keyOf(ref));
      report(cache.remove(ref, object));
    } else if (object !== undefined) report(cache.put(object));
    return "change";
  };

  /** Returns when the server ends the watch in order. */
  const watch = async (from: string, signal: AbortSignal) => {
    const timeoutSeconds = watchSeconds.least + Math.floor(random.float() * watchSeconds.spread);
    const request = {
      method: "GET" as const,
      path:
        path +
        queryOf({
          labelSelector,
          fieldSelector,
          watch: true,
          allowWatchBookmarks: true,
          resourceVersion: from,
          timeoutSeconds,
        }),
      verb: "watch",
      resource,
    };
    if (signal.aborted) return;
    const attempt = new AbortController();
    const stop = () => attempt.abort(signal.reason);
    signal.addEventListener("abort", stop);
    const start = clock.mono();
    let stalled = false;
    const cancel = clock.timer(timeoutSeconds * 1000 + lateMs, () => {
      stalled = true;
      attempt.abort();
    });
    counts.watches++;
    try {
      const answer = await transport.open(request, attempt.signal);
      if (answer.status !== 200) throw errorOf(request, { ...answer, body: answer.body ?? "" }, transport);
      lastSeen = clock.mono();
      accepted = true;
      resume();
      let bookmarked = false;
      for await (const line of answer.lines) {
        if (signal.aborted) return;
        lastSeen = clock.mono();
        if (apply(line) === "bookmark") bookmarked = true;
      }
      verified = bookmarked;
    } catch (error) {
      verified = false;
      if (stalled)
        throw new KubeError("unreachable", "the watch fell silent and did not end in its time", {
          cause: error,
        });
      throw error;
    } finally {
      cancel();
      signal.removeEventListener("abort", stop);
      attempt.abort();
      if (accepted) failures = elapsed(start, clock.mono()) >= steadyMs ? 0 : failures + 1;
    }
  };

  const round = async (signal: AbortSignal) => {
    if (position === undefined) await list(signal);
    else if (!verified) await verify(position, signal);
    if (position !== undefined) await watch(position, signal);
  };

  const pause = async (error: unknown, signal: AbortSignal) => {
    const asked = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    const grown = Math.min(backoff.ceilingMs, backoff.firstMs * 2 ** Math.min(Math.max(0, failures - 1), 10));
    const ms = Math.max(asked, grown * (0.5 + random.float() / 2));
    try {
      await clock.sleep(ms, signal);
    } catch {
      // Stopped: the caller looks at the signal.
    }
  };

  const start = async (signal: AbortSignal): Promise<void> => {
    stopping = signal;
    while (!signal.aborted) {
      accepted = false;
      try {
        await round(signal);
        if (failures > 0) await pause(undefined, signal);
      } catch (error) {
        if (signal.aborted) break;
        // Only a watch that broke off is resumed. After any other failure the server may have been restored meanwhile,
        // and be past our position again: nothing but a list shows that. A restarted API server answers 410 anyway.
        if (!accepted || error instanceof Relist) position = undefined;
        if (!accepted) failures++;
        interrupt(textOf(error), error);
        await pause(error, signal);
      }
    }
    synced.reject(signal.reason);
  };

  return {
    start,
    synced: () => synced.promise,
    get: (ref) => cache.get(ref),
    list: () => [...cache.values()],
    epoch: () => epoch,
    lastSeen: () => lastSeen,
    healthy: () => isSynced && !interrupted && stopping?.aborted === false,
    stats: () => ({
      objects: cache.size(),
      resourceVersion: newest,
      ...counts,
      unreadable: new Map(unreadable),
    }),
  };
};
