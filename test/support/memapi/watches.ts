/** Lists and watches: pages of one moment, events in order, bookmarks, and what became too old. */
import type { Clock, Random } from "../../../src/runtime/clock.ts";
import type { WatchAnswer } from "../../../src/kube/types.ts";
import { TransportError } from "../../../src/kube/errors.ts";
import { type Address, selector, tableOf } from "./address.ts";
import type { Commit, History } from "./history.ts";
import { makeLines, type Lines } from "./lines.ts";
import type { Stored } from "./objects.ts";
import { ApiFailure, statusBody } from "./status.ts";

interface Open {
  client: string;
  table: string;
  shows: (object: Stored) => boolean;
  /** Only what is newer is told: after a restore this may be ahead of all that there is. */
  from: number;
  lines: Lines;
  /** The connection is dead and nobody knows. */
  deaf: boolean;
}

/** Bookmarks come about once a minute, and before the end of a watch. */
const bookmarkMs = 60_000;
const lastBookmarkMs = 2_000;

const tooOld = (asked: number, oldest: number) => `too old resource version: ${asked} (${oldest})`;

const eventOf = (
  { before, now, last }: Commit,
  shows: Open["shows"],
): { type: string; object: Stored } | undefined => {
  const was = before !== undefined && shows(before);
  const is = now !== undefined && shows(now);
  if (is) return { type: was ? "MODIFIED" : "ADDED", object: now };
  if (!was) return undefined;
  const { resourceVersion } = last.metadata;
  return { type: "DELETED", object: { ...before, metadata: { ...before.metadata, resourceVersion } } };
};

export const makeWatches = ({
  history,
  clock,
  random,
}: {
  history: History;
  clock: Clock;
  random: Random;
}) => {
  const open = new Set<Open>();

  /** One text per event, however many hear it. */
  let told: { object: unknown; type: string; line: string } | undefined;
  const tell = (watch: Open, { type, object }: { type: string; object: unknown }) => {
    if (watch.deaf) return;
    if (told === undefined || told.object !== object || told.type !== type)
      told = { object, type, line: JSON.stringify({ type, object }) };
    watch.lines.push(told.line);
  };

  const bookmark = (watch: Open, { apiVersion, kind }: { apiVersion: string; kind: string }) => {
    // Nothing is known up to a position that the server has not reached.
    if (watch.from > history.revision()) return;
    const metadata = { resourceVersion: String(history.revision()), creationTimestamp: null };
    tell(watch, { type: "BOOKMARK", object: { kind, apiVersion, metadata } });
  };

  const list = async (at: Address): Promise<unknown> => {
    const { query, resource } = at;
    const shows = selector(at);
    const token = query.get("continue") ?? "";
    const [from, start] = token === "" ? [undefined, ""] : readContinue(token);
    const asked = Number(query.get("resourceVersion") ?? 0);
    if (asked > history.revision()) {
      await clock.sleep(3_000);
      throw new ApiFailure(
        "Timeout",
        `Too large resource version: ${asked}, current: ${history.revision()}`,
        {
          retryAfterSeconds: 1,
          causes: [{ reason: "ResourceVersionTooLarge" }],
        },
      );
    }
    const exact = query.get("resourceVersionMatch") === "Exact" ? asked : undefined;
    const revision = from ?? exact ?? history.revision();
    if (revision < history.compacted())
      throw new ApiFailure(
        "Expired",
        from === undefined
          ? tooOld(revision, history.compacted())
          : "The provided continue parameter is too old to display a consistent list result.",
      );
    const rest = history
      .list(tableOf(resource), revision)
      .filter((object) => shows(object) && (start === "" || after(object, start)));
    const limit = Number(query.get("limit") ?? 0);
    const items = limit > 0 ? rest.slice(0, limit) : rest;
    const last = items.at(-1);
    const more = last !== undefined && items.length < rest.length;
    return {
      kind: `${resource.kind}List`,
      apiVersion: resource.apiVersion,
      metadata: {
        resourceVersion: String(revision),
        ...(more && { continue: writeContinue(revision, last) }),
      },
      items,
    };
  };

  const watch = (at: Address, client: string, signal: AbortSignal): WatchAnswer => {
    const { query, resource } = at;
    const table = tableOf(resource);
    const lines = makeLines();
    const asked = query.get("resourceVersion") ?? "";
    const entry: Open = {
      client,
      table,
      shows: selector(at),
      from: Number(asked),
      lines,
      deaf: false,
    };
    if (asked === "" || asked === "0") {
      entry.from = history.revision();
      for (const object of history.list(table))
        if (entry.shows(object)) tell(entry, { type: "ADDED", object });
    } else if (entry.from < history.compacted()) {
      tell(entry, { type: "ERROR", object: statusBody("Expired", tooOld(entry.from, history.compacted())) });
      lines.end();
      return { status: 200, headers: {}, lines };
    }
    open.add(entry);
    for (const past of history.since(table, entry.from)) {
      const event = eventOf(past, entry.shows);
      if (event !== undefined) tell(entry, event);
    }
    const timers = new Map<string, () => void>();
    const bookmarks = query.get("allowWatchBookmarks") === "true";
    const repeat = () => {
      bookmark(entry, resource);
      timers.set("bookmark", clock.timer(bookmarkMs, repeat));
    };
    if (bookmarks) timers.set("bookmark", clock.timer(bookmarkMs, repeat));
    const seconds = Number(query.get("timeoutSeconds") ?? 1800 + Math.floor(random.float() * 1800));
    if (bookmarks)
      timers.set(
        "last",
        clock.timer(seconds * 1000 - lastBookmarkMs, () => bookmark(entry, resource)),
      );
    timers.set(
      "end",
      clock.timer(seconds * 1000, () => {
        if (!entry.deaf) lines.end();
      }),
    );
    const abort = () => lines.end(new TransportError(true, "unreachable", "the watch was given up"));
    lines.onEnd = () => {
      open.delete(entry);
      for (const cancel of timers.values()) cancel();
      signal.removeEventListener("abort", abort);
    };
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    return { status: 200, headers: {}, lines };
  };

  const of = (client: string | undefined) =>
    [...open].filter((watch) => client === undefined || watch.client === client);

  return {
    list,
    watch,
    committed(commit: Commit) {
      for (const entry of open) {
        if (entry.table !== commit.resource || commit.revision <= entry.from) continue;
        const event = eventOf(commit, entry.shows);
        if (event !== undefined) tell(entry, event);
      }
    },
    /** Open watches, of one client or of all. */
    count: (client?: string) => of(client).length,
    /** Ends them as a broken connection does. */
    cut(client?: string) {
      for (const entry of of(client))
        entry.lines.end(new TransportError(true, "unreachable", "connection reset"));
    },
    /** They go on without a word, as a half-open connection does. */
    silence(client?: string) {
      for (const entry of of(client)) entry.deaf = true;
    },
    /** What no honest server says, or an ERROR event. */
    say(event: { type: string; object: unknown }, client?: string) {
      for (const entry of of(client)) tell(entry, event);
    },
  };
};

const positionOf = ({ metadata }: Stored): string => `${metadata.namespace ?? ""}/${metadata.name}`;
const after = (object: Stored, start: string): boolean => positionOf(object) > start;

const writeContinue = (revision: number, last: Stored): string =>
  Buffer.from(JSON.stringify([revision, positionOf(last)])).toString("base64url");

const readContinue = (token: string): [number, string] => {
  try {
    return JSON.parse(Buffer.from(token, "base64url").toString()) as [number, string];
  } catch {
    throw new ApiFailure("BadRequest", "continue key is not valid");
  }
};
