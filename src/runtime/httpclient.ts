/** JSON over HTTPS with kept connections, on node:https alone: small enough for an agent. */
import { readFile, stat } from "node:fs/promises";
import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import type { Clock } from "./clock.ts";

/** No whole answer: the request may or may not have been done. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
}

export interface JsonAnswer {
  status: number;
  headers: Record<string, string>;
  /** What the JSON says; undefined where the body is empty. */
  body: unknown;
}

export interface JsonRequest {
  method: "GET" | "POST";
  /** Absolute path with query, already encoded. */
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  /** From the call to the whole answer. */
  timeoutMs: number;
}

export interface HttpClient {
  /** Throws {@link NoAnswer}; every answer, also one that refuses, is a value. Redirects are not followed. */
  send(request: JsonRequest, signal?: AbortSignal): Promise<JsonAnswer>;
  close(): void;
}

export interface HttpClientOptions {
  /** `https://host:port`. */
  server: string;
  /** Certificates to trust, PEM; read again when it changed. Left out: those of the platform. */
  caFile?: string | undefined;
  /** The bearer token; read again when it changed. */
  bearerFile?: string | undefined;
  /** Instead of a file: asked for the bearer token before each request; may throw {@link NoAnswer}. */
  bearer?: (() => Promise<string>) | undefined;
  clock: Clock;
}

/** Answers of the coordinator are a few hundred bytes; what is larger comes from somebody else. */
const largestAnswer = 1024 * 1024;

/** The content of a file that others replace now and then. */
const follow = (file: string | undefined, what: string): (() => Promise<string | undefined>) => {
  let known: { version: string; text: string } | undefined;
  return async () => {
    if (file === undefined) return undefined;
    try {
      const { mtimeMs, ino, size } = await stat(file);
      const version = `${mtimeMs}/${ino}/${size}`;
      if (known?.version !== version) known = { version, text: (await readFile(file, "utf8")).trim() };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new NoAnswer(`cannot read the ${what} ${file}: ${why}`, { cause: error });
    }
    return known.text;
  };
};

export const makeHttpClient = (options: HttpClientOptions): HttpClient => {
  const { server, caFile, bearerFile, clock } = options;
  const base = new URL(server);
  if (base.protocol !== "https:") throw new Error(`${server} is no https:// address`);
  const readCa = follow(caFile, "CA file");
  const readBearer = options.bearer ?? follow(bearerFile, "token file");
  let agent: { ca: string | undefined; pool: Agent } | undefined;

  /** One pool per CA: connections made under an old one are given up with it. */
  const poolFor = (ca: string | undefined): Agent => {
    if (agent && agent.ca === ca) return agent.pool;
    const old = agent?.pool;
    agent = {
      ca,
      // Without a limit on what is under way: a renewal must not queue behind those that wait for other resources.
      pool: new Agent({ keepAlive: true, maxFreeSockets: 8, minVersion: "TLSv1.2", ...(ca ? { ca } : {}) }),
    };
    old?.destroy();
    return agent.pool;
  };

  const send = async (given: JsonRequest, signal?: AbortSignal): Promise<JsonAnswer> => {
    const ca = await readCa();
    const bearer = await readBearer();
    const body = given.body === undefined ? undefined : JSON.stringify(given.body);
    const pool = poolFor(ca);
    const options: RequestOptions = {
      agent: pool,
      method: given.method,
      host: base.hostname.replace(/^\[|\]$/g, ""),
      port: base.port || 443,
      path: `${base.pathname.replace(/\/$/, "")}${given.path}`,
      headers: {
        accept: "application/json",
        ...(body === undefined
          ? {}
          : { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
        ...(bearer ? { authorization: `Bearer ${bearer}` } : {}),
        ...given.headers,
      },
    };
    try {
      return await exchange(options, body, given.timeoutMs, clock, signal);
    } catch (error) {
      if (!signal?.aborted) dropIdle(pool);
      throw error;
    }
  };

  return { send, close: () => agent?.pool.destroy() };
};

/** Where one connection was dead, those that lie idle beside it are not tried one after the other. */
const dropIdle = (pool: Agent): void => {
  for (const sockets of Object.values(pool.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
};

const exchange = (
  options: RequestOptions,
  body: string | undefined,
  timeoutMs: number,
  clock: Clock,
  signal: AbortSignal | undefined,
): Promise<JsonAnswer> => {
  const { promise, resolve, reject } = Promise.withResolvers<JsonAnswer>();
  if (signal?.aborted)
    return Promise.reject(new NoAnswer("aborted before it was sent", { cause: signal.reason }));
  const where = `${options.host}:${options.port}`;
  const request = httpsRequest(options);
  const fail = (message: string, cause?: unknown): void => {
    reject(new NoAnswer(`${where}: ${message}`, { cause }));
    request.destroy();
  };
  const cancelTimer = clock.timer(timeoutMs, () => fail(`no answer within ${timeoutMs} ms`));
  const abort = (): void => fail("aborted", signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const finish = (): void => {
    cancelTimer();
    signal?.removeEventListener("abort", abort);
  };

  request.on("error", (error) => fail(error.message, error));
  request.on("response", (response) => {
    const chunks: Buffer[] = [];
    let size = 0;
    response.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > largestAnswer) fail(`the answer is larger than ${largestAnswer} bytes`);
      else chunks.push(chunk);
    });
    response.on("aborted", () => fail("the answer broke off"));
    response.on("error", (error) => fail(error.message, error));
    response.on("end", () => {
      if (!response.complete) return fail("the answer broke off");
      const text = Buffer.concat(chunks).toString("utf8");
      try {
        const headers: Record<string, string> = {};
        for (const [name, value] of Object.entries(response.headers))
          headers[name] = Array.isArray(value) ? value.join(", ") : (value ?? "");
        resolve({ status: response.statusCode ?? 0, headers, body: text ? JSON.parse(text) : undefined });
      } catch (error) {
        fail(`status ${response.statusCode} with a body that is no JSON: is this the coordinator?`, error);
      }
    });
  });
  request.end(body);
  return promise.finally(finish);
};
