import { TransportError } from "../../../src/kube/errors.ts";
import { LineQueue } from "../../../src/kube/lines.ts";
import type { HttpAnswer, HttpRequest, Transport } from "../../../src/kube/types.ts";
import type { Clock } from "../../../src/runtime/clock.ts";

interface Stored {
  metadata: { name: string; namespace: string; uid: string; resourceVersion: string };
  [field: string]: unknown;
}

interface Event {
  revision: number;
  line: string;
}

interface OpenWatch {
  queue: LineQueue;
  /** Lines are no longer delivered, nor is the end. */
  deaf: boolean;
  from: number;
}

/** What a test does to one request instead of serving it. Undefined: serve it. */
type Intercept = (
  request: HttpRequest,
  query: URLSearchParams,
) => HttpAnswer | Error | Promise<never> | undefined;

const json = (status: number, body: unknown): HttpAnswer => ({
  status,
  headers: {},
  body: JSON.stringify(body),
});

export const failure = (code: number, reason: string, message = reason): HttpAnswer =>
  json(code, { kind: "Status", code, reason, message });

export const reset = () => new TransportError(true, "unreachable", "connection reset");

/** Never answers; ends with the caller's signal only, as a black hole does. */
export const hang = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const stop = () => reject(new TransportError(true, "unreachable", "aborted"));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
  });

/**
 * List and watch of one namespace of one kind, as the API server does them, in memory: revisions, pages, bookmarks 2 s
 * before the end of a watch, 410 for what is compacted, and silence for a watch from the future.
 */
export const makeListWatchServer = (clock: Clock) => {
  const objects = new Map<string, Stored>();
  let revision = 100;
  let compacted = 0;
  let history: Event[] = [];
  let uids = 0;
  const watches = new Set<OpenWatch>();
  const requests: HttpRequest[] = [];
  let intercept: Intercept | undefined;
  let bookmarks = true;

  const emit = (type: string, object: unknown) => {
    const line = JSON.stringify({ type, object });
    history.push({ revision, line });
    for (const watch of watches)
      if (!watch.deaf && revision > watch.from) watch.queue.push(Buffer.from(`${line}\n`));
  };

  const list = (query: URLSearchParams): HttpAnswer => {
    const [at = revision, offset = 0] = (query.get("continue") ?? "").split("/").filter(Boolean).map(Number);
    const limit = Number(query.get("limit") ?? Number.MAX_SAFE_INTEGER);
    const all = [...objects.values()].toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name));
    const more = offset + limit < all.length;
    return json(200, {
      metadata: { resourceVersion: String(at), ...(more && { continue: `${at}/${offset + limit}` }) },
      items: all.slice(offset, offset + limit),
    });
  };

  const transport: Transport = {
    async request(request, signal) {
      requests.push(request);
      const query = new URLSearchParams(request.path.split("?")[1]);
      const given = await intercept?.(request, query);
      if (given instanceof Error) throw given;
      if (signal?.aborted) throw new TransportError(true, "unreachable", "aborted");
      return given ?? list(query);
    },
    async open(request, signal) {
      requests.push(request);
      const query = new URLSearchParams(request.path.split("?")[1]);
      const given = await intercept?.(request, query);
      if (given instanceof Error) throw given;
      const queue = new LineQueue();
      if (given !== undefined) {
        queue.end();
        return { ...given, lines: queue.lines() };
      }
      const from = Number(query.get("resourceVersion"));
      if (from < compacted) return { ...failure(410, "Expired"), lines: queue.lines() };
      const watch: OpenWatch = { queue, deaf: false, from };
      watches.add(watch);
      const timers: (() => void)[] = [];
      const over = () => {
        watches.delete(watch);
        for (const cancel of timers) cancel();
      };
      queue.onEnd = over;
      signal.addEventListener("abort", () => queue.end(new TransportError(true, "unreachable", "aborted")));
      for (const event of history) if (event.revision > from) queue.push(Buffer.from(`${event.line}\n`));
      const seconds = Number(query.get("timeoutSeconds"));
      timers.push(
        clock.timer((seconds - 2) * 1000, () => {
          if (watch.deaf || !bookmarks || !query.has("allowWatchBookmarks") || from > revision) return;
          queue.push(
            Buffer.from(
              `${JSON.stringify({ type: "BOOKMARK", object: { metadata: { resourceVersion: String(revision) } } })}\n`,
            ),
          );
        }),
        clock.timer(seconds * 1000, () => {
          if (!watch.deaf) queue.end();
        }),
      );
      return { status: 200, headers: {}, lines: queue.lines() };
    },
  };

  return {
    transport,
    requests,
    verbs: () => requests.map((request) => request.verb),
    watching: () => watches.size,
    revision: () => revision,
    /** Each request is shown to it first. */
    intercept(next: Intercept) {
      intercept = next;
    },
    put(name: string, fields: object = {}, uid?: string) {
      const previous = objects.get(name);
      revision++;
      const object: Stored = {
        metadata: {
          name,
          namespace: "shop",
          uid: uid ?? previous?.metadata.uid ?? `uid-${++uids}`,
          resourceVersion: String(revision),
        },
        ...fields,
      };
      objects.set(name, object);
      emit(previous === undefined ? "ADDED" : "MODIFIED", object);
    },
    remove(name: string) {
      const previous = objects.get(name);
      if (previous === undefined) return;
      revision++;
      objects.delete(name);
      emit("DELETED", { ...previous, metadata: { ...previous.metadata, resourceVersion: String(revision) } });
    },
    /** A line that no honest server sends, to every open watch. */
    say(line: string) {
      for (const watch of watches) watch.queue.push(Buffer.from(`${line}\n`));
    },
    cut() {
      for (const watch of watches) watch.queue.end(reset());
    },
    end() {
      for (const watch of watches) watch.queue.end();
    },
    silence() {
      for (const watch of watches) watch.deaf = true;
    },
    withoutBookmarks() {
      bookmarks = false;
    },
    /** Nothing older than now can be watched from. */
    compact() {
      compacted = revision;
      history = [];
    },
    snapshot() {
      const saved = { revision, history: [...history], objects: new Map(objects) };
      return () => {
        revision = saved.revision;
        history = [...saved.history];
        objects.clear();
        for (const [name, object] of saved.objects) objects.set(name, object);
      };
    },
    names: () => [...objects.keys()].toSorted(),
    objects: () => new Map(objects),
  };
};
export type ListWatchServer = ReturnType<typeof makeListWatchServer>;
