/**
 * HTTP/1.1 to one API server, with keep-alive. Watches have connections of their own.
 *
 * A request that runs into its time limit takes its connection down with it and retires the whole pool: what is dead on
 * one connection to a server is mostly dead on the others, and later requests should not find that out one by one.
 */
import type { Dispatcher } from "undici";
import type { MonoTime } from "../core/time.ts";
import { elapsed } from "../core/time.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Access } from "./config.ts";
import type { Credential } from "./credentials.ts";
import { KubeError, type KubeErrorCode, TransportError } from "./errors.ts";
import { explain } from "./explain.ts";
import { LineQueue } from "./lines.ts";
import { makePool } from "./pool.ts";
import type { HttpAnswer, HttpRequest, Transport, WatchAnswer } from "./types.ts";

/** One request as it ended. `code` is the HTTP status, or "none" where no answer came. */
export interface RequestCount {
  verb: string;
  resource: string;
  code: string;
  seconds: number;
}

export interface TransportOptions {
  access: Access;
  clock: Clock;
  onRequest?: (count: RequestCount) => void;
  /** Without any progress: until the answer begins, and then between two pieces of it. Default 10 s. */
  timeoutMs?: number;
  userAgent?: string;
}

interface Answered {
  status: number;
  headers: Record<string, string>;
}

interface Sink {
  start(answered: Answered, controller: Dispatcher.DispatchController): void;
  data(chunk: Buffer): void;
  end(): void;
  /** The answer broke off after `start`. */
  fail(error: TransportError): void;
}

/** Breaks an exchange off, and its connection with it. */
type Fail = (code: KubeErrorCode, message: string, cause?: unknown) => void;

interface Control {
  onFail: (fail: Fail) => void;
  /** A piece of the answer came: the time limit begins anew. */
  progress: () => void;
}

const noStatus = () => new TransportError(true, "bad_answer", "an answer without a status");

const flat = (headers: Record<string, string | string[] | undefined>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join(", ") : (value ?? ""),
    ]),
  );

export const makeTransport = (options: TransportOptions): Transport & { close(): Promise<void> } => {
  const { access, clock, onRequest, timeoutMs = 10_000, userAgent = "fenceline" } = options;
  const { server } = access;
  const prefix = server.pathname.replace(/\/$/, "");
  // A watch never shares a connection with a request, not even one after the other.
  const pools = { requests: makePool(access, timeoutMs), watches: makePool(access, timeoutMs) };

  /**
   * Starts one exchange. Resolves when status and headers are there; whatever ends it earlier rejects with a
   * TransportError. `fail` breaks it off at any time, and with it the connection.
   */
  const exchange = (dispatcher: Dispatcher, request: HttpRequest, credential: Credential, sink: Sink) => {
    let sent = false;
    let over = false;
    let controller: Dispatcher.DispatchController | undefined;
    let settle: { resolve(): void; reject(error: TransportError): void } | undefined;
    const started = new Promise<void>((resolve, reject) => {
      settle = { resolve, reject };
    });
    const fail: Fail = (code, message, cause) => {
      if (over) return;
      over = true;
      const error = new TransportError(sent, code, message, cause);
      settle?.reject(error);
      sink.fail(error);
      controller?.abort(error);
    };
    dispatcher.dispatch(
      {
        origin: server.origin,
        path: prefix + request.path,
        method: request.method,
        headers: {
          accept: "application/json",
          "user-agent": userAgent,
          ...(request.body === undefined
            ? {}
            : { "content-type": request.contentType ?? "application/json" }),
          ...credential.headers,
        },
        ...(request.body === undefined ? {} : { body: request.body }),
      },
      {
        // Comes before the first byte is written: a request that was broken off in the queue is never written.
        onRequestStart(given) {
          controller = given;
          if (over) given.abort(new Error("broken off before it was sent"));
          else sent = true;
        },
        onResponseStart(given, status, headers) {
          if (over || status < 200) return;
          sink.start({ status, headers: flat(headers) }, given);
          settle?.resolve();
        },
        onResponseData(_controller, chunk) {
          if (!over) sink.data(chunk);
        },
        onResponseEnd() {
          if (over) return;
          over = true;
          sink.end();
        },
        onResponseError(_controller, error) {
          const { code, message } = explain(error, access);
          fail(code, message, error);
        },
      },
    );
    return { started, fail };
  };

  const count = (request: HttpRequest, start: MonoTime, code: string) =>
    onRequest?.({
      verb: request.verb,
      resource: request.resource,
      code,
      seconds: elapsed(start, clock.mono()) / 1000,
    });

  /** Plugins may hang, and the library cannot stop them: they end by themselves, the request does not wait. */
  const credentialWithin = async (signal: AbortSignal): Promise<Credential> => {
    const broken = Promise.withResolvers<never>();
    const stop = () =>
      broken.reject(new TransportError(false, "unreachable", "no credentials in time", signal.reason));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    try {
      return await Promise.race([access.credentials.current(), broken.promise]);
    } catch (error) {
      if (error instanceof KubeError && !(error instanceof TransportError))
        throw new TransportError(false, error.code, error.message, error);
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
      broken.promise.catch(() => {});
    }
  };

  /**
   * Runs `attempt` under the time limit, counts it, and runs it once more after a 401 if there are other credentials
   * by now: a token or certificate was rotated. A 401 is given before anything is carried out, so this never applies
   * a write twice.
   */
  const guarded = async <T extends { status: number }>(
    request: HttpRequest,
    signal: AbortSignal | undefined,
    attempt: (credential: Credential, control: Control) => Promise<T>,
  ): Promise<T> => {
    const limit = new AbortController();
    let fail: Fail | undefined;
    let start = clock.mono();
    const late = () => {
      limit.abort();
      fail?.("unreachable", `API server ${server.origin} did not answer within ${timeoutMs} ms`);
      pools.requests.retire();
    };
    let cancelTimer = clock.timer(timeoutMs, late);
    const control: Control = {
      onFail: (given) => {
        fail = given;
        if (limit.signal.aborted) given("unreachable", "the caller gave up", limit.signal.reason);
      },
      progress: () => {
        cancelTimer();
        cancelTimer = clock.timer(timeoutMs, late);
      },
    };
    const stop = () => {
      limit.abort(signal?.reason);
      fail?.("unreachable", "the caller gave up", signal?.reason);
    };
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
    try {
      const first = await credentialWithin(limit.signal);
      let answer = await attempt(first, control);
      count(request, start, String(answer.status));
      if (answer.status !== 401) return answer;
      access.credentials.forget();
      const second = await credentialWithin(limit.signal);
      if (second.tlsKey === first.tlsKey && JSON.stringify(second.headers) === JSON.stringify(first.headers))
        return answer;
      start = clock.mono();
      answer = await attempt(second, control);
      count(request, start, String(answer.status));
      return answer;
    } catch (error) {
      if (error instanceof TransportError) count(request, start, "none");
      throw error;
    } finally {
      cancelTimer();
      signal?.removeEventListener("abort", stop);
    }
  };

  const plainHttp = "Client sent an HTTP request to an HTTPS server";
  const wholeAnswer = (answered: Answered, body: string): HttpAnswer => {
    if (answered.status === 400 && body.startsWith(plainHttp))
      throw new TransportError(
        true,
        "bad_config",
        `API server ${server.origin} speaks TLS: write https in ${access.names.server}`,
      );
    return { ...answered, body };
  };

  return {
    get source() {
      return `${access.source} (${access.credentials.complaint()})`;
    },

    request: (request, signal) =>
      guarded(request, signal, async (credential, { onFail, progress }) => {
        const { promise, resolve, reject } = Promise.withResolvers<string>();
        const chunks: Buffer[] = [];
        let answered: Answered | undefined;
        const { started, fail } = exchange(pools.requests.for(credential), request, credential, {
          start: (given) => {
            answered = given;
          },
          data: (chunk) => {
            chunks.push(chunk);
            progress();
          },
          end: () => resolve(Buffer.concat(chunks).toString("utf8")),
          fail: reject,
        });
        onFail(fail);
        promise.catch(() => {});
        await started;
        const body = await promise;
        if (answered === undefined) throw noStatus();
        return wholeAnswer(answered, body);
      }),

    open: (request, signal) =>
      guarded<WatchAnswer>(request, signal, async (credential, { onFail }) => {
        const queue = new LineQueue();
        let answered: Answered | undefined;
        const { started, fail } = exchange(pools.watches.for(credential), request, credential, {
          start: (given, controller) => {
            answered = given;
            queue.flow = controller;
          },
          data: (chunk) => queue.push(chunk),
          end: () => queue.end(),
          fail: (error) => queue.end(error),
        });
        onFail(fail);
        await started;
        if (answered === undefined) throw noStatus();
        if (answered.status !== 200) {
          const lines: string[] = [];
          for await (const line of queue.lines()) lines.push(line);
          return { ...wholeAnswer(answered, lines.join("\n")), lines: nothing() };
        }
        // From here on the time limit is over: how long a watch may be silent is for its reader to say.
        const stop = () => fail("unreachable", "the watch was stopped", signal.reason);
        signal.addEventListener("abort", stop);
        queue.onEnd = () => signal.removeEventListener("abort", stop);
        return { ...answered, lines: queue.lines() };
      }),

    async close() {
      await Promise.all([pools.requests.destroy(), pools.watches.destroy()]);
    },
  };
};

async function* nothing(): AsyncGenerator<string> {}
