/**
 * An HTTP proxy that can be broken request by request: for the Kubernetes API and the coordinator.
 *
 *     await using proxy = await startHttpProxy({ target: server, tls: { ca, cert, key } });
 *     proxy.url, proxy.ca                                   // what clients connect to, and trust
 *     proxy.kubeconfig({ token })                           // the same as a kubeconfig
 *
 *     const lease = { verb: "update", resource: "leases" } as const;
 *     using lost = proxy.loseAnswer(lease, { times: 1 });    // applied upstream, then reset
 *     proxy.drop(lease, { times: 1 });                       // reset, never forwarded
 *     proxy.answer({ verb: "list" }, { status: 410 });       // a Kubernetes Status; 429, 500 …
 *     proxy.errorEvent({ verb: "watch" }, { status: 410 });  // 200, then an ERROR event in the stream
 *     proxy.truncate({ verb: "watch" }, { afterLines: 2 });  // two events, half of the third, reset
 *     proxy.delay(lease, { beforeMs: 50, afterMs: 50 });
 *     proxy.duplicate(lease);
 *     const gate = proxy.hold(lease); await gate.arrived(2); gate.release();
 *     proxy.fault(match, step);                              // any other
 *     proxy.wire.halfOpen();                                 // its clients' TCP connections: see tcp.ts
 *     proxy.heal();                                          // all of them
 *
 *     proxy.counts()   // { "update leases": 3, "update fencedresources/status": 1, … } since the start or reset()
 *     proxy.writes()   // the same, what changes something stored
 *     proxy.total({ resource: "leases" })
 *
 * Several faults may match one request: the first made is outermost, as the one nearest to the client. A request is
 * counted when it arrives, whatever becomes of it. A write that was taken in is forwarded even when its client left
 * meanwhile (a late write is real); reads and watches end with their client. Bearer tokens pass through; requests
 * without one are sent with the client certificate given in `tls`. When the server cannot be reached, the client's
 * connection is reset: the proxy never answers by itself unless told to. Connection upgrades are not forwarded.
 *
 * Clients speak HTTP/1.1 or HTTP/2; over HTTP/2 a reset concerns one stream, and `wire.cut()` the connection.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from "node:http";
import http from "node:http";
import {
  constants,
  createSecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { type Call, type Match, targetOf } from "./call.ts";
import { type Certificate, makeCertificate } from "./certificate.ts";
import { seeded } from "./fault.ts";
import { type Limits, type Hold, type RequestFault, Rules } from "./rules.ts";
import {
  answerStep,
  delayStep,
  dropStep,
  duplicateStep,
  errorEventStep,
  loseAnswerStep,
  type Reply,
  type StatusAnswer,
  type Step,
  type Truncation,
  truncateStep,
} from "./steps.ts";
import { startTcpProxy, type TcpProxy } from "./tcp.ts";

export interface HttpProxyOptions {
  /** http or https. */
  target: URL | string;
  /** How to reach an https target: PEM texts. */
  tls?: { ca?: string; cert?: string; key?: string; servername?: string };
  /** How clients reach the proxy. Default `https` with a certificate for localhost and 127.0.0.1 that it makes. */
  serve?: "http" | Pick<Certificate, "cert" | "key">;
  /** Of `chance` and of the wire's jitter. Default 1. */
  seed?: number;
}

export interface HttpProxy extends AsyncDisposable {
  readonly url: URL;
  /** PEM of what signed the proxy's certificate; "" when it serves plain HTTP. */
  readonly ca: string;
  /** The TCP connections between clients and proxy. */
  readonly wire: TcpProxy;
  /** A kubeconfig (JSON) with one context, `proxy`; without a token the proxy's own client certificate speaks. */
  kubeconfig(user?: { token?: string; namespace?: string }): string;

  fault(match: Match, step: Step, limits?: Limits): RequestFault;
  answer(match: Match, answer: StatusAnswer, limits?: Limits): RequestFault;
  errorEvent(match: Match, answer: StatusAnswer & { afterLines?: number }, limits?: Limits): RequestFault;
  delay(match: Match, delay: { beforeMs?: number; afterMs?: number }, limits?: Limits): RequestFault;
  truncate(match: Match, truncation?: Truncation, limits?: Limits): RequestFault;
  /** Breaks the connection before anything is forwarded. */
  drop(match: Match, limits?: Limits): RequestFault;
  /** Forwards, waits for the whole answer, then breaks the connection. */
  loseAnswer(match: Match, limits?: Limits): RequestFault;
  duplicate(match: Match, limits?: Limits): RequestFault;
  /** Keeps requests (`at: "request"`, the default) or the answers to them back until released. */
  hold(match: Match, options?: Limits & { at?: "request" | "answer" }): Hold;

  /** Requests by `verb resource`, since the start or the last reset. */
  counts(): Record<string, number>;
  /** Those that change something stored: reviews and token requests do not. */
  writes(): Record<string, number>;
  total(which?: { verb?: string; resource?: string }): number;
  /** Counts from nothing again; faults stay. */
  reset(): void;
  heal(): void;
  close(): Promise<void>;
}

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

/** Headers of one connection, not of the message. */
const hop = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
  "te",
]);

const endToEnd = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !hop.has(name) && !name.startsWith(":")));

const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** A user without a token. kubectl asks for a password where there is no credential, so it gets one nobody reads. */
const nobody = () => {
  const { cert, key } = makeCertificate({ commonName: "client of the fault proxy" });
  return { "client-certificate-data": base64(cert), "client-key-data": base64(key) };
};

const writingVerbs = new Set(["create", "update", "patch", "delete", "deletecollection"]);
const storesNothing = /reviews$|^serviceaccounts\/token$/;

/** Sends status and headers at once: a watch is answered before its first event. */
const begin = (response: Response, status: number, headers: OutgoingHttpHeaders): void => {
  if ("stream" in response) response.writeHead(status, headers);
  else response.writeHead(status, headers).flushHeaders();
};

/** Resolves when the chunk is on its way, or can no longer be. */
const send = (response: Response, chunk: Uint8Array, gone: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (gone.aborted) return resolve();
    const done = () => {
      gone.removeEventListener("abort", done);
      resolve();
    };
    gone.addEventListener("abort", done);
    if ("stream" in response) response.write(chunk, done);
    else response.write(chunk, done);
  });

export const startHttpProxy = async (options: HttpProxyOptions): Promise<HttpProxy> => {
  const target = new URL(options.target);
  const secure = target.protocol === "https:";
  const serve =
    options.serve ?? makeCertificate({ commonName: "fault proxy", names: ["localhost", "127.0.0.1"] });
  const seed = options.seed ?? 1;
  const rules = new Rules(seeded(seed));
  let counted = new Map<string, number>();

  const { cert, key, ...trust } = options.tls ?? {};
  // Idle connections are given up long before a server would: one that closes just now looks like a fault.
  const pool = { keepAlive: true, timeout: 20_000, noDelay: true };
  const named = secure
    ? new https.Agent({ ...pool, ...trust, ...(cert && { cert }), ...(key && { key }) })
    : new http.Agent(pool);
  const bearing = secure ? new https.Agent({ ...pool, ...trust }) : new http.Agent(pool);

  const forward = (call: Call): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const reads = call.method === "GET" || call.method === "HEAD";
      const outgoing = (secure ? https : http).request(target, {
        method: call.method,
        path: call.path,
        headers: { ...endToEnd(call.headers), host: target.host },
        agent: call.headers.authorization === undefined ? named : bearing,
        ...(reads && { signal: call.gone }),
      });
      outgoing.on("error", reject);
      outgoing.on("response", (answer) => {
        resolve({ status: answer.statusCode ?? 502, headers: endToEnd(answer.headers), body: answer });
      });
      outgoing.end(call.body);
    });

  const breakOff = (request: Request, response: Response): void => {
    const port = request.socket.remotePort;
    if ("stream" in response) response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    else if (port !== undefined) wire.cut(port);
  };

  const handle = async (request: Request, response: Response): Promise<void> => {
    const left = new AbortController();
    if ("stream" in response) response.stream.on("aborted", () => left.abort());
    else
      response.on("close", () => {
        if (!response.writableFinished) left.abort();
      });
    const method = request.method ?? "GET";
    const path = request.url ?? "/";
    const about = targetOf(method, path);
    const label = `${about.verb} ${about.resource}`;
    counted.set(label, (counted.get(label) ?? 0) + 1);
    const body = await buffer(request);
    const call: Call = { ...about, method, path, headers: { ...request.headers }, body, gone: left.signal };
    const reply = await rules.run(call, () => forward(call));
    if (reply === "reset") return breakOff(request, response);
    begin(response, reply.status, reply.headers);
    for await (const chunk of reply.body) {
      await send(response, chunk, left.signal);
      if (left.signal.aborted) return;
    }
    response.end();
  };

  const onRequest = (request: Request, response: Response): void => {
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    handle(request, response).catch(() => {
      // The server, or the client, broke off. What was sent so far arrives; the end of the body does not.
      if (response.headersSent && !("stream" in response)) response.destroy();
      else breakOff(request, response);
    });
  };

  const server =
    serve === "http"
      ? createServer({ noDelay: true }, onRequest)
      : createSecureServer({ allowHTTP1: true, noDelay: true, cert: serve.cert, key: serve.key }, onRequest);
  const sockets = new Set<Socket>();
  const sessions = new Set<ServerHttp2Session>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => undefined);
  });
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session)).on("error", () => undefined);
  });
  server.on("tlsClientError", () => undefined);
  // How long a client keeps a connection is its own affair.
  Object.assign(server, { keepAliveTimeout: 0, requestTimeout: 0 });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const wire = await startTcpProxy({
    target: { host: "127.0.0.1", port: (server.address() as AddressInfo).port },
    seed,
  });

  const close = async (): Promise<void> => {
    rules.heal();
    await wire.close();
    server.close();
    for (const session of sessions) session.destroy();
    for (const socket of sockets) socket.destroy();
    named.destroy();
    bearing.destroy();
    if (server.listening || sockets.size > 0) await once(server, "close");
  };

  const sum = (keep: (verb: string, resource: string) => boolean): Record<string, number> =>
    Object.fromEntries(
      [...counted].filter(([label]) => {
        const [verb = "", resource = ""] = label.split(" ");
        return keep(verb, resource);
      }),
    );

  const ca = serve === "http" ? "" : serve.cert;
  const url = new URL(`${serve === "http" ? "http" : "https"}://127.0.0.1:${wire.port}`);

  return {
    url,
    ca,
    wire,
    kubeconfig: ({ token, namespace } = {}) =>
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        clusters: [
          {
            name: "proxy",
            cluster: {
              server: url.origin,
              ...(ca !== "" && { "certificate-authority-data": base64(ca) }),
            },
          },
        ],
        users: [{ name: "proxy", user: token === undefined ? nobody() : { token } }],
        contexts: [
          { name: "proxy", context: { cluster: "proxy", user: "proxy", ...(namespace && { namespace }) } },
        ],
        "current-context": "proxy",
      }),

    fault: (match, step, limits) => rules.add(match, step, limits),
    answer: (match, answer, limits) => rules.add(match, answerStep(answer), limits),
    errorEvent: (match, { afterLines = 0, ...answer }, limits) =>
      rules.add(match, errorEventStep(answer, afterLines), limits),
    delay: (match, { beforeMs = 0, afterMs = 0 }, limits) =>
      rules.add(match, delayStep(beforeMs, afterMs), limits),
    truncate: (match, truncation = {}, limits) => rules.add(match, truncateStep(truncation), limits),
    drop: (match, limits) => rules.add(match, dropStep, limits),
    loseAnswer: (match, limits) => rules.add(match, loseAnswerStep, limits),
    duplicate: (match, limits) => rules.add(match, duplicateStep, limits),
    hold: (match, { at = "request", ...limits } = {}) => rules.hold(match, at, limits),

    counts: () => Object.fromEntries(counted),
    writes: () => sum((verb, resource) => writingVerbs.has(verb) && !storesNothing.test(resource)),
    total: ({ verb, resource } = {}) =>
      Object.values(
        sum((v, r) => (verb === undefined || verb === v) && (resource === undefined || resource === r)),
      ).reduce((a, b) => a + b, 0),
    reset: () => {
      counted = new Map();
    },
    heal: () => {
      rules.heal();
      wire.heal();
    },
    close,
    [Symbol.asyncDispose]: close,
  };
};
