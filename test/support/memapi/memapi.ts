/**
 * An API server in memory: the rules of the real one that the protocol leans on, without its processes and its clock.
 *
 * It stands behind {@link Transport}, so everything above it is the shipped code. Uids, names and times come from the
 * injected Random and Clock: one seed, one run. Admission policies and CEL are not modelled. One contract suite
 * (test/contract/kubeapi.ts) holds it and the real API server to the same answers.
 */
import { TransportError } from "../../../src/kube/errors.ts";
import type { HttpAnswer, HttpRequest, Transport } from "../../../src/kube/types.ts";
import type { Clock, Random } from "../../../src/runtime/clock.ts";
import { type Address, readAddress } from "./address.ts";
import type { Fault } from "./faults.ts";
import { type Commit, makeHistory, type Snapshot } from "./history.ts";
import { parseBody } from "./objects.ts";
import { makeRegistry, type Named } from "./registry.ts";
import { makeReviews } from "./reviews.ts";
import { ApiFailure, failed, json } from "./status.ts";
import { makeWatches } from "./watches.ts";

/** One request as it was seen, and what it was answered: a status, or "none". */
export interface Seen {
  client: string;
  verb: string;
  /** Plural, with the subresource: `fencedsequences/status`. */
  resource: string;
  request: HttpRequest;
  code: string;
}

/** Which requests a fault is for; what is left out matches all. */
export interface Match {
  client?: string;
  verb?: string;
  resource?: string;
  when?: (seen: Seen) => boolean;
}

export interface MemTransport extends Transport {
  /** Nothing gets through any more, and nothing says so: requests end by their time-out, watches fall silent. */
  partition(): void;
  heal(): void;
}

/** After this a request without an answer is given up by its sender. */
const timeoutMs = 10_000;

const matches = (match: Match, seen: Seen): boolean =>
  (match.client ?? seen.client) === seen.client &&
  (match.verb ?? seen.verb) === seen.verb &&
  (match.resource ?? seen.resource) === seen.resource &&
  (match.when?.(seen) ?? true);

const isNamed = (at: Address): at is Named => at.name !== undefined;

const gone = () => new TransportError(true, "unreachable", "no answer in time");

/** The caller stops waiting when `signal` says so; what is under way goes on without it. */
const patiently = async (work: Promise<HttpAnswer>, signal: AbortSignal | undefined): Promise<HttpAnswer> => {
  if (signal === undefined) return work;
  const given = Promise.withResolvers<never>();
  const abort = () => given.reject(gone());
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([work, given.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
};

export const makeMemApi = ({
  clock,
  random,
  onCommit,
}: {
  clock: Clock;
  random: Random;
  /** Hears every write that changed something, before anybody else does. */
  onCommit?: (commit: Commit) => void;
}) => {
  const history = makeHistory();
  const watches = makeWatches({ history, clock, random });
  const committed = (commit: Commit) => {
    onCommit?.(commit);
    watches.committed(commit);
  };
  const registry = makeRegistry({ history, clock, random, committed });
  const reviews = makeReviews();
  const seen: Seen[] = [];
  const faults = new Set<{ match: Match; fault: Fault; left: number }>();
  let down = false;

  const serveNamed = (at: Named, request: HttpRequest): HttpAnswer => {
    const { body, contentType } = request;
    switch (request.method) {
      case "GET":
        return toAnswer(registry.get(at));
      case "PUT":
        return toAnswer(registry.update(at, body));
      case "PATCH":
        return toAnswer(registry.patch(at, body, contentType));
      case "DELETE":
        return toAnswer(registry.remove(at, body));
      default:
        return failed("MethodNotAllowed");
    }
  };

  const serve = async (request: HttpRequest): Promise<HttpAnswer> => {
    try {
      const plural = request.path.split("/").at(-1) ?? "";
      if (/^\/apis\/auth(entication|orization)\.k8s\.io\/v1\//.test(request.path))
        return json(201, reviews.answer(plural, parseBody(request.body)));
      const at = readAddress(request.path);
      if (isNamed(at)) return serveNamed(at, request);
      if (request.method === "GET") return json(200, await watches.list(at));
      if (request.method === "POST") return toAnswer(registry.create(at, request.body));
      return failed("MethodNotAllowed");
    } catch (error) {
      if (error instanceof ApiFailure) return failed(error.reason, error.message, error.extras);
      throw error;
    }
  };

  const faultOf = (entry: Seen): Fault | undefined => {
    for (const planned of faults) {
      if (!matches(planned.match, entry)) continue;
      planned.left -= 1;
      if (planned.left === 0) faults.delete(planned);
      return planned.fault;
    }
    return undefined;
  };

  const transport = ({ name }: { name: string }): MemTransport => {
    let cut = false;

    const note = (request: HttpRequest): Seen => {
      const entry = { client: name, verb: request.verb, resource: request.resource, request, code: "none" };
      seen.push(entry);
      return entry;
    };

    /** Runs `served` through whatever the test planned for this request. */
    const through = async (entry: Seen, served: () => Promise<HttpAnswer>, signal?: AbortSignal) => {
      if (signal?.aborted === true)
        throw new TransportError(false, "unreachable", "given up before it was sent");
      if (down) throw new TransportError(false, "unreachable", "nothing listens there");
      if (cut) {
        await clock.sleep(timeoutMs, signal).catch(() => {});
        throw gone();
      }
      const fault = faultOf(entry);
      const work = fault === undefined ? served() : fault(served);
      work.catch(() => {});
      const answer = await patiently(work, signal);
      entry.code = String(answer.status);
      return answer;
    };

    return {
      source: `client ${name}`,
      async request(request, signal) {
        return through(note(request), () => serve(request), signal);
      },
      async open(request, signal) {
        const entry = note(request);
        const accepted = async () => {
          readAddress(request.path);
          return json(200, "");
        };
        const answer = await through(entry, accepted, signal);
        if (answer.status !== 200) return { ...answer, lines: (async function* () {})() };
        return watches.watch(readAddress(request.path), name, signal);
      },
      partition() {
        cut = true;
        watches.silence(name);
      },
      heal() {
        cut = false;
      },
    };
  };

  return {
    transport,
    reviews,
    watches,
    /** Every request so far, in order. */
    seen,
    /** How many requests there were, by `verb resource`; watching (list, watch) is left out unless `all`. */
    counts({ client, since = 0, all = false }: { client?: string; since?: number; all?: boolean } = {}) {
      const counts: Record<string, number> = {};
      for (const entry of seen.slice(since)) {
        if (client !== undefined && entry.client !== client) continue;
        if (!all && (entry.verb === "list" || entry.verb === "watch")) continue;
        const key = `${entry.verb} ${entry.resource}`;
        counts[key] = (counts[key] ?? 0) + 1;
      }
      return counts;
    },
    /** The next `times` requests that match meet `fault`. Returns what ends it early. */
    fault(match: Match, fault: Fault, times = 1): () => void {
      const planned = { match, fault, left: times };
      faults.add(planned);
      return () => void faults.delete(planned);
    },
    /** Nothing listens any more, and open watches break. */
    stop() {
      down = true;
      watches.cut();
    },
    start() {
      down = false;
    },
    revision: () => history.revision(),
    /** Nothing older than now can be watched from, or listed at. */
    compact: () => history.compact(),
    snapshot: (): Snapshot => history.snapshot(),
    /** As a restore of etcd with its API servers restarted: revisions go back, watches break. */
    restore(snapshot: Snapshot) {
      history.restore(snapshot);
      watches.cut();
    },
  };
};

export type MemApi = ReturnType<typeof makeMemApi>;

const toAnswer = ({ status, object }: { status: number; object: unknown }): HttpAnswer =>
  json(status, object);
