/** What an app may ask its agent, on 127.0.0.1. The state is judged anew for each answer. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { ProblemCode } from "../api/problem.ts";
import type { HoldView } from "../holder/right.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Moments } from "../runtime/moment.ts";
import { type PlainServer, servePlain } from "../runtime/plainserver.ts";
import type { Rights } from "./rights.ts";
import { holdingOf, type Slot } from "./slot.ts";

interface LocalDeps {
  rights: Rights;
  clock: Clock;
  moments: Moments;
}

/** A silent stream of events is given a sign of life this often, in milliseconds. */
const signOfLifeMs = 15_000;
/** A gate that waits longer asks again, in milliseconds. */
const gateMs = 25_000;

const sendJson = (
  response: ServerResponse,
  status: number,
  body: unknown,
  type = "application/json",
): void => {
  const text = JSON.stringify(body);
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
};

const sendProblem = (
  response: ServerResponse,
  status: number,
  code: ProblemCode,
  title: string,
  more: Record<string, unknown> & { detail: string },
): void => {
  const body = { type: `urn:fenceline:problem:${code}`, title, status, ...more, code };
  sendJson(response, status, body, "application/problem+json");
};

/** Not held, and whether it may be again. */
const sendNotHeld = (response: ServerResponse, { resource }: Slot, seen: HoldView): void => {
  const { state, reason = "released" } = seen;
  if (state === "lost" || state === "released")
    return sendProblem(response, 409, "lost", "This attempt does not hold the resource any more.", {
      detail: `${resource} is ${state}: start nothing, and stop what depends on it`,
      state,
      reason,
    });
  const detail =
    seen.trouble ?? (seen.waitingFor === undefined ? "not granted yet" : `held by ${seen.waitingFor}`);
  sendProblem(response, 409, "not_held", "The right is not held at this moment.", {
    detail: `${resource} is ${state}: ${detail}: start nothing new`,
    state,
  });
};

/** Server-sent events: the state at once, then each change of it. */
const stream = (slot: Slot, response: ServerResponse, deps: LocalDeps): void => {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  let told = "";
  const tell = (seen: HoldView): void => {
    const now = [seen.state, seen.token, seen.reason].join();
    if (now === told) return;
    told = now;
    response.write(`event: state\ndata: ${JSON.stringify(holdingOf(slot.resource, seen, deps.moments))}\n\n`);
  };
  let cancel: (() => void) | undefined;
  const live = (): void => {
    // A process that stood still tells what that cost before anything else.
    tell(slot.view());
    response.write(":\n\n");
    cancel = deps.clock.timer(signOfLifeMs, live);
  };
  const off = slot.subscribe(tell);
  tell(slot.view());
  cancel = deps.clock.timer(signOfLifeMs, live);
  response.on("close", () => {
    off();
    cancel?.();
  });
};

const release = async (slot: Slot, response: ServerResponse): Promise<void> => {
  const end = await slot.finish();
  switch (end.kind) {
    case "released":
      return sendJson(response, 200, { released: true });
    case "gone":
      return sendJson(response, 200, { released: false, reason: end.reason });
    case "never_held":
      return sendJson(response, 200, { released: false, reason: "released" });
    case "unknown":
      return sendProblem(
        response,
        503,
        "outcome_unknown",
        "Nobody knows whether it was done; ask again with the same attempt.",
        { detail: `${end.detail}: ask again; it ends with its lease at the latest` },
      );
    default:
      end satisfies never;
  }
};

const gate = async ({ rights, clock }: LocalDeps, response: ServerResponse) => {
  const over = new AbortController();
  const cancel = clock.timer(gateMs, () => over.abort());
  response.on("close", () => over.abort());
  const answer = await rights.gate(over.signal);
  cancel();
  if (answer === undefined) sendJson(response, 202, { open: false });
  else if (answer === "open") sendJson(response, 200, { open: true });
  else sendJson(response, 409, { open: false, ...answer });
};

/** Serves until closed. Throws where the address cannot be had. */
export const serveLocalApi = (port: number, deps: LocalDeps): Promise<PlainServer> => {
  const { rights, moments } = deps;
  const slots = new Map(rights.slots.map((slot) => [slot.name, slot]));

  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const [path = ""] = (request.url ?? "").split("?");
    const asked = `${request.method} ${path}`;
    if (asked === "GET /v1/holdings") {
      const holdings = rights.slots.map((slot) => holdingOf(slot.resource, slot.view(), moments));
      return sendJson(response, 200, { holdings });
    }
    if (asked === "POST /v1/gate") return void gate(deps, response);
    const [, name = "", verb = ""] = /^\/v1\/holdings\/([^/]+)(?:\/([a-z]+))?$/.exec(path) ?? [];
    const slot = slots.get(name);
    if (name !== "" && slot === undefined)
      return sendProblem(response, 404, "unknown_resource", "There is no such resource.", {
        detail: `this pod asks for no resource called ${name.slice(0, 253)}`,
      });
    if (slot !== undefined)
      switch (`${request.method} ${verb}`) {
        case "GET ":
          return sendJson(response, 200, holdingOf(slot.resource, slot.view(), moments));
        case "GET check": {
          const seen = slot.view();
          if (seen.state !== "held") return sendNotHeld(response, slot, seen);
          response.writeHead(204);
          return void response.end();
        }
        case "GET events":
          return stream(slot, response, deps);
        case "POST release":
          return void release(slot, response);
        default:
      }
    sendProblem(response, 400, "invalid_request", "The request is malformed.", {
      detail: `there is no ${asked.slice(0, 300)}`,
    });
  };

  return servePlain({ host: "127.0.0.1", port, connections: 128 }, handle);
};
