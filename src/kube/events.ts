/**
 * Events for people (`events.k8s.io/v1`): told on the side, never waited for, never a reason to fail.
 *
 * What happened again (same object, reason and note) becomes one event with a growing count, written every 10 s at
 * most. An object gets one write per second; what is news about the same reason replaces what was not yet told. The
 * note of an event can never change, so one that repeats must not carry a number that moves.
 */
import { z } from "zod";
import { objectMetaSchema } from "../api/k8s.ts";
import { type EventReason, eventTypes } from "../api/names.ts";
import { after, elapsed, type MonoTime, type WallTime } from "../core/time.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import { formatMicroTime } from "../runtime/microtime.ts";
import { makeQueue } from "./queue.ts";
import type { Draft, Kind, KubeClient, KubeObject, WriteResult } from "./types.ts";

/** What an event is about. */
export interface Subject {
  apiVersion: string;
  kind: string;
  namespace?: string | undefined;
  name: string;
  uid?: string | undefined;
}

export interface Happening {
  regarding: Subject;
  /** The pod that it is about as well: told on both, each naming the other. */
  pod?: Subject | undefined;
  reason: EventReason;
  /** What happened, to whom, with which token. Cut at 1024 bytes. */
  note: string;
}

export interface EventRecorder {
  /** Takes note and returns at once. */
  record(happening: Happening): void;
  /** Writes what is left, without pause, until `signal` is aborted. Nothing is taken afterwards. */
  flush(signal: AbortSignal): Promise<void>;
  /** How many were never told: too many at once, refused, or too old by the time the API server answered again. */
  dropped(): number;
}

interface EventObject extends KubeObject {
  eventTime?: string;
  reportingController?: string;
  reportingInstance?: string;
  action?: string;
  reason?: string;
  type?: string;
  note?: string;
  regarding?: Subject;
  related?: Subject;
  series?: { count: number; lastObservedTime: string };
}

const eventSchema = z.object({ metadata: objectMetaSchema });

const eventKind: Kind<EventObject> = {
  group: "events.k8s.io",
  version: "v1",
  kind: "Event",
  plural: "events",
  namespaced: true,
  parse: (value) => eventSchema.parse(value),
};

/** One write per object in this time. */
const objectPauseMs = 1000;
/** One write per series in this time. */
const seriesPauseMs = 10_000;
/** A repetition after this long is news again. */
const seriesEndMs = 360_000;
/** What could not be told in this time is told no more. */
const staleMs = 120_000;
/** Drops are said this often at most. */
const warnPauseMs = 60_000;
const maxItems = 2000;
const maxNoteBytes = 1024;

/** One distinct event: what is told of it, and what is not yet. */
interface Item {
  key: string;
  name: string;
  namespace: string;
  regarding: Subject;
  related: Subject | undefined;
  reason: EventReason;
  note: string;
  first: WallTime;
  last: WallTime;
  count: number;
  /** How many of them the API server knows of. */
  told: number;
  seenAt: MonoTime;
  notBefore: MonoTime;
  staleAt: MonoTime;
}

interface Untold {
  nextAt: MonoTime;
  items: Set<Item>;
}

const keyOf = (subject: Subject | undefined): string =>
  subject ? `${subject.kind}/${subject.namespace ?? ""}/${subject.name}/${subject.uid ?? ""}` : "";

/** Whole characters, and nothing that a terminal would obey. */
const cleanNote = (note: string): string => {
  const plain = note.replaceAll(/\p{Cc}+/gu, " ");
  if (Buffer.byteLength(plain) <= maxNoteBytes) return plain;
  let kept = "";
  let bytes = Buffer.byteLength("…");
  for (const character of plain) {
    bytes += Buffer.byteLength(character);
    if (bytes > maxNoteBytes) break;
    kept += character;
  }
  return `${kept}…`;
};

export interface EventRecorderOptions {
  client: Pick<KubeClient, "create" | "patch">;
  /** Who reports, as `kubectl describe` shows it. */
  controller: string;
  /** The pod that reports. */
  instance: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

export const makeEventRecorder = (options: EventRecorderOptions): EventRecorder => {
  const { client, controller, instance, clock, random, log } = options;
  /** The latest last. */
  const known = new Map<string, Item>();
  const objects = new Map<string, Untold>();
  let lost = 0;
  let closed = false;
  let warnAt = clock.mono();

  const lose = (count: number): void => {
    lost += count;
    const now = clock.mono();
    if (now < warnAt) return;
    warnAt = after(now, warnPauseMs);
    log.warn({ total: lost }, "events are dropped");
  };

  const drop = (item: Item, why: string): void => {
    lose(item.count - item.told);
    item.told = item.count;
    log.debug(
      { resource: `${item.namespace}/${item.regarding.name}`, reason: item.reason, why },
      "event dropped",
    );
  };

  /** Makes room for one more; false if all that is kept is still to be told. */
  const makeRoom = (): boolean => {
    if (known.size < maxItems) return true;
    for (const [key, item] of known)
      if (item.told === item.count) {
        known.delete(key);
        return true;
      }
    return false;
  };

  const tell = (
    regarding: Subject,
    related: Subject | undefined,
    reason: EventReason,
    text: string,
  ): void => {
    const now = clock.mono();
    const note = cleanNote(text);
    const objectKey = keyOf(regarding);
    const key = [objectKey, keyOf(related), reason, note].join("|");
    let item = known.get(key);
    if (item && item.told === item.count && elapsed(item.seenAt, now) > seriesEndMs) item = undefined;
    known.delete(key);
    const object = objects.get(objectKey) ?? { nextAt: now, items: new Set() };
    if (!item) {
      if (!makeRoom()) {
        lose(1);
        return;
      }
      for (const older of object.items)
        if (older.told === 0 && older.reason === reason && keyOf(older.related) === keyOf(related)) {
          object.items.delete(older);
          known.delete(older.key);
        }
      const stem = regarding.name.slice(0, 200).replace(/[^a-z0-9]+$/, "");
      item = {
        key,
        name: `${stem}.${random.uuid()}`,
        namespace: regarding.namespace ?? "default",
        regarding,
        related,
        reason,
        note,
        first: clock.wall(),
        last: clock.wall(),
        count: 0,
        told: 0,
        seenAt: now,
        notBefore: now,
        staleAt: now,
      };
    }
    if (item.told === item.count) item.staleAt = after(now, staleMs);
    item.count++;
    item.last = clock.wall();
    item.seenAt = now;
    known.set(key, item);
    object.items.add(item);
    objects.set(objectKey, object);
    queue.addAfter(objectKey, Math.max(0, elapsed(now, item.notBefore), elapsed(now, object.nextAt)));
  };

  const send = (item: Item, signal: AbortSignal): Promise<WriteResult<EventObject>> => {
    const series = { count: item.count, lastObservedTime: formatMicroTime(item.last) };
    if (item.told > 0)
      return client.patch(eventKind, { namespace: item.namespace, name: item.name }, { series }, signal);
    const draft: Draft<EventObject> = {
      metadata: { name: item.name, namespace: item.namespace },
      eventTime: formatMicroTime(item.first),
      reportingController: controller,
      reportingInstance: instance,
      action: item.reason,
      reason: item.reason,
      type: eventTypes[item.reason],
      note: item.note,
      regarding: item.regarding,
      ...(item.related ? { related: item.related } : {}),
      ...(item.count > 1 ? { series } : {}),
    };
    return client.create(eventKind, draft, signal);
  };

  /** Writes one event; throws where trying again makes sense. */
  const write = async (item: Item, signal: AbortSignal): Promise<void> => {
    const told = item.told;
    const sending = send(item, signal);
    // What is on its way is not overtaken any more.
    item.told = item.count;
    const result = await sending.catch((error: unknown) => {
      item.told = told;
      throw error;
    });
    switch (result.outcome) {
      case "ok":
      case "exists": // An earlier try was applied without an answer.
        item.notBefore = after(clock.mono(), seriesPauseMs);
        return;
      case "unknown":
      case "unavailable":
      case "conflict":
        item.told = told;
        throw new Error(result.message);
      case "gone":
      case "refused":
        item.told = told;
        drop(item, result.message);
        // The next one is not a repetition of what is not there.
        known.delete(item.key);
        return;
      default: {
        const never: never = result;
        return never;
      }
    }
  };

  /** Writes the next event of one object, and says when to come back. */
  const writeNext = async (objectKey: string, signal: AbortSignal): Promise<{ requeueAfterMs?: number }> => {
    const object = objects.get(objectKey);
    if (!object) return {};
    const start = clock.mono();
    if (start < object.nextAt) return { requeueAfterMs: elapsed(start, object.nextAt) };
    for (const item of object.items) {
      if (start >= item.staleAt) drop(item, "stale");
      if (item.told === item.count) object.items.delete(item);
    }
    const item = [...object.items].find(({ notBefore }) => notBefore <= start);
    if (item) {
      object.nextAt = after(start, objectPauseMs);
      await write(item, signal);
      if (item.told === item.count) object.items.delete(item);
    }
    const now = clock.mono();
    const due = [...object.items].map(({ notBefore }) => elapsed(now, notBefore));
    if (!item && due.length === 0) {
      objects.delete(objectKey);
      return {};
    }
    return { requeueAfterMs: Math.max(1, elapsed(now, object.nextAt), Math.min(...due, seriesPauseMs)) };
  };

  const queue = makeQueue({
    name: "events",
    reconcile: writeNext,
    concurrency: 2,
    clock,
    random,
    log,
    backoff: { baseMs: 1000, ceilingMs: 30_000 },
  });

  const flush = async (signal: AbortSignal): Promise<void> => {
    closed = true;
    await queue.drain(signal);
    for (const { items } of objects.values())
      for (const item of items) {
        if (item.told === item.count) continue;
        try {
          signal.throwIfAborted();
          await write(item, signal);
        } catch {
          drop(item, "not told before the end");
        }
      }
    objects.clear();
    known.clear();
  };

  return {
    record: ({ regarding, pod, reason, note }) => {
      if (closed) return;
      tell(regarding, pod, reason, note);
      if (pod) tell(pod, regarding, reason, note);
    },
    flush,
    dropped: () => lost,
  };
};
