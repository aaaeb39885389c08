/** What can go wrong with one HTTP exchange. Each step wraps the ones after it, down to the real server. */
import type { OutgoingHttpHeaders } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Call } from "./call.ts";

/** An answer on its way to the client, or a connection that ends without one. */
export type Reply =
  | { status: number; headers: OutgoingHttpHeaders; body: AsyncIterable<Uint8Array> }
  | "reset";
export type Step = (call: Call, forward: () => Promise<Reply>) => Promise<Reply>;

export interface StatusAnswer {
  status: number;
  /** Kubernetes' reason; each known status has its usual one. */
  reason?: string;
  message?: string;
  headers?: OutgoingHttpHeaders;
  /** Instead of a Kubernetes Status. */
  body?: string;
}

export interface Truncation {
  /** Whole lines that still pass; then half of what comes next. Default 0. */
  afterLines?: number;
  /** `reset`: the connection breaks. `clean`: it looks like an ordinary end. Default `reset`. */
  end?: "reset" | "clean";
}

const reasons: Record<number, string> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  410: "Expired",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

/** A Status object of the Kubernetes API, as text. */
const statusBody = ({ status, reason, message }: StatusAnswer): string =>
  JSON.stringify({
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: message ?? `answered by the fault proxy: ${reason ?? reasons[status] ?? status}`,
    reason: reason ?? reasons[status] ?? "Unknown",
    code: status,
  });

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

const json = { "content-type": "application/json" };

const without = (headers: OutgoingHttpHeaders, name: string): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([key]) => key !== name));

/** Lines can only be counted in what is not compressed. */
const plain = (call: Call): void => {
  delete call.headers["accept-encoding"];
};

/** Takes the answer to its end, so that the server surely did what it was asked. */
const consume = async (reply: Reply): Promise<void> => {
  if (reply === "reset") return;
  for await (const _ of reply.body);
};

/** The first `count` lines of `body`; returns what was read beyond them, undefined at the body's own end. */
async function* lines(
  body: AsyncIterator<Uint8Array>,
  count: number,
): AsyncGenerator<Uint8Array, Buffer | undefined> {
  let missing = count;
  let rest = Buffer.alloc(0);
  for (;;) {
    while (missing > 0) {
      const end = rest.indexOf("\n") + 1;
      if (end === 0) break;
      missing -= 1;
      yield rest.subarray(0, end);
      rest = rest.subarray(end);
    }
    if (missing === 0) return rest;
    const next = await body.next();
    if (next.done === true) {
      if (rest.length > 0) yield rest;
      return undefined;
    }
    rest = Buffer.concat([rest, next.value]);
  }
}

async function* midLine(source: AsyncIterable<Uint8Array>, { afterLines = 0, end = "reset" }: Truncation) {
  const body = source[Symbol.asyncIterator]();
  try {
    let rest = yield* lines(body, afterLines);
    if (rest?.length === 0) {
      const next = await body.next();
      rest = next.done === true ? undefined : Buffer.from(next.value);
    }
    if (rest === undefined) return;
    const lineEnd = rest.indexOf("\n");
    yield rest.subarray(0, Math.max(1, Math.floor((lineEnd < 0 ? rest.length : lineEnd) / 2)));
    if (end === "reset") throw new Error("truncated by the fault proxy");
  } finally {
    await body.return?.();
  }
}

async function* thenEvent(source: AsyncIterable<Uint8Array>, afterLines: number, event: string) {
  const body = source[Symbol.asyncIterator]();
  try {
    yield* lines(body, afterLines);
    yield Buffer.from(event);
  } finally {
    await body.return?.();
  }
}

export const answerStep =
  (answer: StatusAnswer): Step =>
  async () => ({
    status: answer.status,
    headers: { ...json, ...(answer.status === 429 && { "retry-after": "1" }), ...answer.headers },
    body: once(answer.body ?? statusBody(answer)),
  });

export const errorEventStep =
  (answer: StatusAnswer, afterLines: number): Step =>
  async (call, forward) => {
    const event = `{"type":"ERROR","object":${answer.body ?? statusBody(answer)}}\n`;
    if (afterLines === 0) return { status: 200, headers: json, body: once(event) };
    plain(call);
    const reply = await forward();
    return reply === "reset" ? reply : { ...reply, body: thenEvent(reply.body, afterLines, event) };
  };

export const delayStep =
  (beforeMs: number, afterMs: number): Step =>
  async (_call, forward) => {
    if (beforeMs > 0) await sleep(beforeMs);
    const reply = await forward();
    if (afterMs > 0) await sleep(afterMs);
    return reply;
  };

export const truncateStep =
  (truncation: Truncation): Step =>
  async (call, forward) => {
    plain(call);
    const reply = await forward();
    if (reply === "reset") return reply;
    const headers = truncation.end === "clean" ? without(reply.headers, "content-length") : reply.headers;
    return { ...reply, headers, body: midLine(reply.body, truncation) };
  };

export const dropStep: Step = async () => "reset";

export const loseAnswerStep: Step = async (_call, forward) => {
  await consume(await forward());
  return "reset";
};

/** Sends twice, one after the other. The client sees the answer to the second, as behind a proxy that tries again. */
export const duplicateStep: Step = async (_call, forward) => {
  await consume(await forward());
  return forward();
};
