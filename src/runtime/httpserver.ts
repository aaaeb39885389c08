/** The HTTP servers of the process: the API over TLS, and metrics and health in the clear. */
import { STATUS_CODES, type IncomingMessage } from "node:http";
import type { Server as HttpServer } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Socket } from "node:net";
import fastify, { type FastifyInstance, type FastifyReply } from "fastify";
import { bodyMaxBytes } from "../api/http.ts";
import { type Problem, problem, problemType } from "../api/problem.ts";
import { type CertificateSource, followKeyPair, readKeyPair } from "./certificate.ts";
import type { Clock, Random } from "./clock.ts";
import { type Check, runChecks } from "./health.ts";
import type { Logger } from "./logger.ts";

/** What one client may take. Sizes in bytes, times in milliseconds. */
export interface Limits {
  body: number;
  headers: number;
  headerCount: number;
  /** For a request to arrive as a whole. */
  requestMs: number;
  /** For a connection on which nothing moves; longer than the longest wait of an answer. */
  idleMs: number;
  connections: number;
}

const apiLimits: Limits = {
  body: bodyMaxBytes,
  headers: 16_384,
  headerCount: 64,
  requestMs: 10_000,
  idleMs: 90_000,
  connections: 8192,
};

/** Metrics and health: short requests without bodies, from a few clients. */
const opsLimits: Limits = { ...apiLimits, body: 1024, headers: 8192, connections: 64 };

/** Thrown by a handler to give this answer. */
export class ProblemError extends Error {
  readonly problem: Problem;
  constructor(body: Problem) {
    super(body.detail ?? body.title);
    this.name = "ProblemError";
    this.problem = body;
  }
}

/** The one place where errors become answers. */
const problemOf = (error: unknown, limits: Limits): Problem | undefined => {
  if (error instanceof ProblemError) return error.problem;
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  switch (error.code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return problem("payload_too_large", `the body is larger than ${limits.body} bytes: send less`);
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return problem("invalid_request", "send content-type: application/json", { field: "body" });
    case "FST_ERR_CTP_EMPTY_JSON_BODY":
      return problem("invalid_request", "the body is empty: send a JSON object", { field: "body" });
    case "FST_ERR_CTP_INVALID_JSON_BODY":
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return problem("invalid_request", "the body is not JSON as its headers say", { field: "body" });
    case "FST_ERR_BAD_URL":
    case "FST_ERR_MAX_PARAM_LENGTH":
      return problem("invalid_request", "the path is malformed");
    default:
      return undefined;
  }
};

const sendProblem = async (reply: FastifyReply, body: Problem): Promise<void> => {
  if (body.retryAfterMs !== undefined)
    void reply.header("retry-after", String(Math.ceil(body.retryAfterMs / 1000)));
  if (body.status === 401) void reply.header("www-authenticate", "Bearer");
  await reply.code(body.status).type(problemType).send(JSON.stringify(body));
};

/** 128 bits in hexadecimal: the caller's trace (W3C Trace Context), or a new one. Becomes `request.id`. */
const traceId = (request: IncomingMessage, random: Random): string => {
  const given = request.headers["traceparent"];
  const found =
    typeof given === "string"
      ? /^[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}/.exec(given)?.[1]
      : undefined;
  return found && !/^0+$/.test(found) ? found : random.uuid().replaceAll("-", "");
};

/** What cannot even be read as HTTP gets its answer past the framework. */
const refuseConnection =
  (limits: Limits) =>
  (error: Error & { code?: string }, socket: Socket): void => {
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const body =
      error.code === "HPE_HEADER_OVERFLOW"
        ? problem("payload_too_large", `the headers are larger than ${limits.headers} bytes: send less`)
        : problem("invalid_request", "this is no whole HTTP/1.1 request");
    const text = JSON.stringify(body);
    socket.end(
      `HTTP/1.1 ${body.status} ${STATUS_CODES[body.status]}\r\nContent-Type: ${problemType}\r\n` +
        `Content-Length: ${Buffer.byteLength(text)}\r\nConnection: close\r\n\r\n${text}`,
    );
  };

const fastifyOptions = (limits: Limits, random: Random) => ({
  logger: false as const,
  bodyLimit: limits.body,
  requestTimeout: limits.requestMs,
  connectionTimeout: limits.idleMs,
  keepAliveTimeout: limits.idleMs,
  // A kept connection that waits for its next request must not hold up the end of the process.
  forceCloseConnections: "idle" as const,
  return503OnClosing: false,
  // Names may have 253 characters; what is longer is refused by name and not by the router.
  routerOptions: { maxParamLength: 1024 },
  frameworkErrors: (error: Error, _request: unknown, reply: FastifyReply) =>
    void sendProblem(reply, problemOf(error, limits) ?? problem("invalid_request", "the path is malformed")),
  clientErrorHandler: refuseConnection(limits),
  genReqId: (request: IncomingMessage) => traceId(request, random),
});

const nodeOptions = (limits: Limits) => ({
  maxHeaderSize: limits.headers,
  headersTimeout: limits.requestMs,
  // Node looks every 30 s only: a slow client would have had three times its time.
  connectionsCheckingInterval: Math.min(1000, limits.requestMs),
});

export type HttpsApp = FastifyInstance<HttpsServer>;
export type HttpApp = FastifyInstance;

const equip = <Server extends HttpServer | HttpsServer>(
  app: FastifyInstance<Server>,
  limits: Limits,
  log: Logger,
): void => {
  app.server.maxConnections = limits.connections;
  app.server.maxHeadersCount = limits.headerCount;
  app.server.on("drop", () => log.warn({ connections: limits.connections }, "connection refused: too many"));
  app.setErrorHandler(async (error, request, reply) => {
    const known = problemOf(error, limits);
    if (!known)
      log.error(
        { error: error instanceof Error ? error : String(error), traceId: request.id },
        "request failed unexpectedly",
      );
    await sendProblem(
      reply,
      known ??
        problem("outcome_unknown", `unexpected failure, trace ${request.id}: ask again, or see the log`),
    );
  });
  app.setNotFoundHandler(async (request, reply) => {
    await sendProblem(
      reply,
      problem("invalid_request", `there is no ${request.method} ${request.url.split("?")[0]}`),
    );
  });
  app.addHook("onResponse", async (request, reply) => {
    log.debug(
      {
        method: request.method,
        route: request.routeOptions.url ?? "",
        status: reply.statusCode,
        traceId: request.id,
      },
      "request",
    );
  });
};

export interface ServerDeps {
  clock: Clock;
  random: Random;
  log: Logger;
}

/**
 * The API over TLS 1.2 or newer. Add routes to the result, then {@link listen}. A certificate that changes at its source is
 * taken up for new connections. Throws where the first one cannot be used.
 */
export const makeApiServer = async (
  deps: ServerDeps & { certificate: CertificateSource; limits?: Partial<Limits> },
): Promise<HttpsApp> => {
  const limits = { ...apiLimits, ...deps.limits };
  const pair = await readKeyPair(deps.certificate);
  const app = fastify({
    ...fastifyOptions(limits, deps.random),
    https: {
      ...nodeOptions(limits),
      ...pair,
      minVersion: "TLSv1.2",
      handshakeTimeout: limits.requestMs,
    },
  });
  equip(app, limits, deps.log);
  const closing = new AbortController();
  app.addHook("onClose", () => closing.abort());
  void followKeyPair(
    deps.certificate,
    pair,
    (next) => app.server.setSecureContext(next),
    deps,
    closing.signal,
  );
  return app;
};

/** Where metrics are read, and what is asked before the process is called alive or ready. */
export interface Ops {
  metrics: readonly { contentType: string; metrics(): Promise<string> }[];
  live: readonly Check[];
  ready: readonly Check[];
}

/** `/metrics`, `/livez` and `/readyz` without TLS. Checks added to the lists later count at once. */
export const makeOpsServer = (deps: ServerDeps & { ops: Ops }): HttpApp => {
  const app = fastify({ ...fastifyOptions(opsLimits, deps.random), http: nodeOptions(opsLimits) });
  equip(app, opsLimits, deps.log);
  app.get("/metrics", async (_request, reply) => {
    const texts = await Promise.all(deps.ops.metrics.map((registry) => registry.metrics()));
    return reply.type(deps.ops.metrics[0]?.contentType ?? "text/plain").send(texts.join("\n"));
  });
  for (const name of ["live", "ready"] as const)
    app.get(`/${name}z`, async (_request, reply) => {
      const { ok, text } = runChecks(deps.ops[name]);
      return reply
        .code(ok ? 200 : 503)
        .type("text/plain; charset=utf-8")
        .send(text);
    });
  return app;
};

/** Binds; resolves with the port (0 picks a free one). Throws one line that says which address cannot be had. */
export const listen = async (app: HttpsApp | HttpApp, host: string, port: number): Promise<number> => {
  try {
    await app.listen({ host, port });
  } catch (error) {
    throw new Error(
      `cannot listen on ${host}:${port}: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  const address = app.server.address();
  return typeof address === "object" && address ? address.port : port;
};
