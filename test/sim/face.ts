/**
 * The coordinator's face without HTTP: what src/coordinator/http.ts does with a call and its answer, at the end of a
 * simulated network. Each call is written into the history as it came and went at the coordinator's own edge.
 */
import { problem } from "../../src/api/problem.ts";
import type { Coordinator } from "../../src/coordinator/coordinator.ts";
import { type HolderId, holderId } from "../../src/core/lease.ts";
import type { Token } from "../../src/core/token.ts";
import type { ResourceName } from "../../src/kube/leases.ts";
import {
  type HttpClient,
  type JsonAnswer,
  type JsonRequest,
  NoAnswer,
} from "../../src/runtime/httpclient.ts";
import type { AcquireEvent, ForceEvent, HeldEvent } from "../support/histories/history.ts";
import type { Network, Way } from "./network.ts";
import type { Recorder } from "./recorder.ts";
import type { Actor } from "./time.ts";
import { limited } from "./ways.ts";

/** One replica as callers reach it. */
export interface Replica {
  actor: Actor;
  /** From anybody to it. */
  way: Way;
  coordinator: Coordinator;
  /** Nothing listens before it is ready, nor after its end. */
  listens(): boolean;
}

interface Body {
  attempt: string;
  token: string;
  waitMs: number;
  reason: string;
}

type Answer = Awaited<ReturnType<Coordinator["acquire" | "renew" | "release" | "force"]>>;

/** Answers that promise nothing: it may have been done, or may still be. */
const open: readonly string[] = ["outcome_unknown", "store_unavailable", "boundary_closed", "not_ready"];

const jsonOf = (answer: Answer): JsonAnswer => {
  if (answer.outcome === "refused") {
    const body = problem(answer.code, answer.detail, answer.extras);
    return { status: body.status, headers: {}, body };
  }
  switch (answer.outcome) {
    case "granted":
      return { status: 200, headers: {}, body: { ...answer, token: answer.token.toString() } };
    case "renewed":
      return { status: 200, headers: {}, body: answer };
    case "released":
      return { status: 200, headers: {}, body: { released: true } };
    case "unchanged":
      return { status: 200, headers: {}, body: { released: false, reason: answer.reason } };
    default: {
      const never: never = answer;
      return never;
    }
  }
};

const outcomeOf = (answer: Answer): "done" | "refused" | "unknown" => {
  if (answer.outcome === "unchanged") return "refused";
  if (answer.outcome !== "refused") return "done";
  return open.includes(answer.code) ? "unknown" : "refused";
};

/** Serves one call at a replica. */
export const serve = async (
  { coordinator }: Replica,
  recorder: Recorder,
  identity: string,
  { path, body: sent }: JsonRequest,
  gone: AbortSignal,
): Promise<JsonAnswer> => {
  const [, , , namespace = "", , name = "", verb] = path.split("/");
  const resource: ResourceName = { namespace, name };
  const key = `${namespace}/${name}`;
  const body = sent as Body;
  const me: HolderId = holderId(identity, body.attempt);
  const caller = { identity, attempt: body.attempt };
  const call = { resource: key, start: recorder.stamp(), end: undefined, outcome: "unknown" } as const;
  switch (verb) {
    case "acquire": {
      const event: AcquireEvent = recorder.note({ ...call, kind: "acquire", attempt: me });
      const asked = { resource, caller, note: undefined, waitMs: body.waitMs };
      const answer = await coordinator.acquire(asked, gone);
      event.end = recorder.stamp();
      if (answer.outcome === "granted") {
        event.outcome = "granted";
        event.token = answer.token;
        event.advanced = answer.advanced;
      } else if (outcomeOf(answer) === "refused") event.outcome = "refused";
      return jsonOf(answer);
    }
    case "renew":
    case "release": {
      const token = BigInt(body.token) as Token;
      const event: HeldEvent = recorder.note({ ...call, kind: verb, attempt: me, token });
      const answer = await coordinator[verb](resource, caller, token);
      event.end = recorder.stamp();
      event.outcome = outcomeOf(answer);
      return jsonOf(answer);
    }
    case "force-release": {
      const event: ForceEvent = recorder.note({ ...call, kind: "force" });
      const answer = await coordinator.force(resource, identity, body.reason);
      event.end = recorder.stamp();
      event.outcome = outcomeOf(answer);
      if (answer.outcome === "released") {
        const { holder, token } = answer;
        Object.assign(event, { attempt: holder, token });
      }
      return jsonOf(answer);
    }
    default:
      throw new Error(`no such call: ${path}`);
  }
};

/** HTTP of one caller: each request goes to one of the replicas that listen, as behind a Service. */
export const makeSimHttp = (
  { network, recorder, replicas }: { network: Network; recorder: Recorder; replicas: () => Replica[] },
  { actor, way, identity, pick }: { actor: Actor; way: Way; identity: string; pick: () => number },
): HttpClient => ({
  async send(request, signal) {
    if (signal?.aborted === true) throw new NoAnswer("aborted before it was sent");
    const listening = replicas().filter((replica) => replica.listens());
    const replica = listening[Math.floor(pick() * listening.length)];
    if (replica === undefined || network.refused([way, replica.way]))
      throw new NoAnswer("connection refused");
    const ways = [way, replica.way];
    const gone = new AbortController();
    const work = network.carry(ways, replica.actor, () =>
      serve(replica, recorder, identity, request, gone.signal),
    );
    try {
      return await limited(
        actor,
        request.timeoutMs,
        signal,
        work,
        (why) => new NoAnswer(why === "late" ? "no answer in time" : "aborted"),
      );
    } catch (error) {
      // The other side hears of it only where messages get through.
      if (!way.trouble().cutThere && !replica.way.trouble().cutThere && !replica.actor.paused()) gone.abort();
      throw error;
    }
  },
  close() {},
});
