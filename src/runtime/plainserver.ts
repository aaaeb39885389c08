/** A small HTTP server without TLS and without a framework: for an agent beside every pod. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** An `import` of node:http would load a fetch client and a WebSocket with it, which is 9 MB. */
const http = process.getBuiltinModule("node:http");

export interface PlainServer {
  /** The port that it listens on. */
  port: number;
  /** Ends open connections too. */
  close(): Promise<void>;
}

/** Requests are small and from near: what is slow or large is cut off. Milliseconds, bytes. */
const limits = { requestMs: 5000, idleMs: 65_000, headers: 4096, headerCount: 32, body: 1024 };

/** Reads no body: it is taken off the wire up to a limit, and forgotten. */
const discardBody = (request: IncomingMessage): void => {
  let size = 0;
  request.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size > limits.body) request.destroy();
  });
  request.on("error", () => {});
};

/**
 * Binds and serves; `host` left out: every address. Throws one line that says which address cannot be had. `handle` must
 * not throw.
 */
export const servePlain = async (
  { host, port, connections }: { host?: string; port: number; connections: number },
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<PlainServer> => {
  const server: Server = http.createServer({
    maxHeaderSize: limits.headers,
    headersTimeout: limits.requestMs,
    requestTimeout: limits.requestMs,
    connectionsCheckingInterval: limits.requestMs,
    keepAliveTimeout: limits.idleMs,
  });
  server.maxConnections = connections;
  server.maxHeadersCount = limits.headerCount;
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    discardBody(request);
    response.on("error", () => {});
    handle(request, response);
  });
  server.on("clientError", (_error, socket) => socket.destroy());
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", (error) =>
    reject(new Error(`cannot listen on ${host ?? "*"}:${port}: ${error.message}`, { cause: error })),
  );
  server.listen({ port, ...(host === undefined ? {} : { host }) }, resolve);
  await promise;
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
};
