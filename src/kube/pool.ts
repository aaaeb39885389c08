import { type Dispatcher, Pool, ProxyAgent } from "undici";
import type { Access } from "./config.ts";
import type { Credential } from "./credentials.ts";

/** Below the 90 s or more after which an API server closes idle connections: we close first, so no request races it. */
const idleMs = 60_000;

const dispatcherOf = ({ server, proxy }: Access, { tls }: Credential, timeoutMs: number): Dispatcher => {
  // Time limits are the transport's. HTTP/2 would put watches and requests onto one connection.
  const keep = { keepAliveTimeout: idleMs, headersTimeout: 0, bodyTimeout: 0, pipelining: 1, allowH2: false };
  const connect = {
    ...tls,
    timeout: timeoutMs,
    keepAlive: true,
    keepAliveInitialDelay: 15_000,
    allowH2: false,
  };
  return proxy === undefined
    ? new Pool(server.origin, { ...keep, connect })
    : new ProxyAgent({ ...keep, uri: proxy, requestTls: connect, connect: { timeout: timeoutMs } });
};

export interface ConnectionPool {
  for(credential: Credential): Dispatcher;
  /** Requests that run on its connections end there; none is added. */
  retire(): void;
  destroy(): Promise<void>;
}

/** Connections that may be used again, all made with one set of TLS material. */
export const makePool = (access: Access, timeoutMs: number): ConnectionPool => {
  let current: { tlsKey: string; dispatcher: Dispatcher } | undefined;
  const retire = () => {
    current?.dispatcher.close().catch(() => {});
    current = undefined;
  };
  return {
    retire,
    for(credential) {
      if (current?.tlsKey === credential.tlsKey) return current.dispatcher;
      retire();
      const dispatcher = dispatcherOf(access, credential, timeoutMs);
      current = { tlsKey: credential.tlsKey, dispatcher };
      return dispatcher;
    },
    async destroy() {
      const last = current;
      current = undefined;
      await last?.dispatcher.destroy();
    },
  };
};
