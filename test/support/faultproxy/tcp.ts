/**
 * A TCP proxy that can be broken: for TLS passed through, PostgreSQL, or any other protocol.
 *
 *     await using proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: 5432 } });
 *     connect(proxy.port);
 *     proxy.cut();                                // every connection is reset; new ones work
 *     using hole = proxy.halfOpen();              // nothing passes, and nobody is told: no FIN, no RST
 *     using oneWay = proxy.halfOpen("down");      // requests arrive, answers do not
 *     using slow = proxy.delay(200, { jitterMs: 50, way: "up" });
 *     using thin = proxy.throttle(1000);          // bytes per second, connection and way
 *     using closed = proxy.refuse();              // new connections: ECONNREFUSED
 *     proxy.heal();                               // all of them
 *
 * A hole behaves as a partition does: what was sent into it arrives after it heals, unless the connection is cut
 * first. "Applied, but the answer is lost" is `halfOpen("down")`, then the write, then `cut()`. The one thing a proxy
 * cannot do is to leave a new connection without an answer: into a hole it opens, and stays silent.
 */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type Fault, Faults, seeded } from "./fault.ts";

/** `up`: from client to target. `down`: from target to client. */
export type Way = "up" | "down" | "both";

export interface TcpProxyOptions {
  target: { host: string; port: number } | { path: string };
  /** Of the jitter. Default 1. */
  seed?: number;
}

export interface TcpProxy extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** Connections open now. */
  connections(): number;
  /** Connections accepted since the start. */
  accepted(): number;
  /** Resets every open connection at both ends, or only the one that reaches the target from `fromPort`. */
  cut(fromPort?: number): void;
  halfOpen(way?: Way): Fault;
  /** Each byte arrives `ms` later, and up to `jitterMs` more; order is kept. */
  delay(ms: number, options?: { jitterMs?: number; way?: Way }): Fault;
  throttle(bytesPerSecond: number, way?: Way): Fault;
  /** Closes the listening socket; open connections stay. */
  refuse(): Fault;
  heal(): void;
  close(): Promise<void>;
}

/** What is wrong in one way, for all connections of a proxy. */
class Lane {
  readonly holes = new Set<object>();
  readonly delays = new Set<{ ms: number; jitterMs: number }>();
  readonly rates = new Set<{ bytesPerSecond: number }>();
  readonly #waiting = new Set<() => void>();

  delayMs(luck: number): number {
    let total = 0;
    for (const { ms, jitterMs } of this.delays) total += ms + jitterMs * luck;
    return total;
  }

  bytesPerSecond(): number {
    return Math.min(...[...this.rates].map((rate) => rate.bytesPerSecond));
  }

  /** Resolves when something changed in this lane, at the latest after `ms`. */
  change(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(() => wake(), ms);
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
    });
  }

  changed(): void {
    for (const wake of this.#waiting) wake();
  }
}

type Item = { what: Buffer | "end" | "reset"; arrived: number; luck: number };

/** So much is taken in while the other side cannot take it; then the sender feels it, as with a real window. */
const windowBytes = 256 * 1024;

const written = (socket: Socket, chunk: Buffer): Promise<void> =>
  new Promise((resolve) => {
    if (socket.destroyed || socket.write(chunk)) return resolve();
    const done = () => {
      socket.off("drain", done).off("close", done);
      resolve();
    };
    socket.once("drain", done).once("close", done);
  });

/** RST, now: resetAndDestroy() alone first waits until everything written has been taken by the peer. */
const reset = (socket: Socket | undefined): void => {
  if (socket === undefined || socket.destroyed) return;
  socket.resetAndDestroy();
  socket.destroy();
};

/** Carries what `from` sends to `to`, in order, as `lane` allows. */
const carry = (from: Socket, to: Socket, lane: Lane, random: () => number): void => {
  const queue: Item[] = [];
  let held = 0;
  let running = false;

  const deliver = async (item: Item): Promise<void> => {
    for (;;) {
      const early = item.arrived + lane.delayMs(item.luck) - performance.now();
      if (to.destroyed || (lane.holes.size === 0 && early <= 0)) break;
      await lane.change(lane.holes.size > 0 ? undefined : early);
    }
    if (item.what === "reset") reset(to);
    else if (item.what === "end") to.end();
    else {
      let rest = item.what;
      while (rest.length > 0 && !to.destroyed) {
        if (lane.holes.size > 0) {
          await lane.change();
          continue;
        }
        const rate = lane.bytesPerSecond();
        const slice = rest.subarray(0, Math.max(1, Math.ceil(rate / 20)));
        rest = rest.subarray(slice.length);
        await written(to, slice);
        if (Number.isFinite(rate)) await lane.change((slice.length / rate) * 1000);
      }
    }
  };

  const run = async (): Promise<void> => {
    if (running) return;
    running = true;
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await deliver(item);
      if (typeof item.what !== "string") held -= item.what.length;
      if (held < windowBytes && from.isPaused()) from.resume();
    }
    running = false;
  };

  const take = (what: Item["what"]): void => {
    queue.push({ what, arrived: performance.now(), luck: random() });
    void run();
  };

  from.on("data", (chunk: Buffer) => {
    held += chunk.length;
    if (held >= windowBytes) from.pause();
    take(chunk);
  });
  from.on("end", () => take("end"));
  from.on("error", () => take("reset"));
};

export const startTcpProxy = async ({ target, seed = 1 }: TcpProxyOptions): Promise<TcpProxy> => {
  const random = seeded(seed);
  const faults = new Faults();
  const up = new Lane();
  const down = new Lane();
  const open = new Set<{ client: Socket; upstream: Socket | undefined }>();
  const refusals = new Set<object>();
  let accepted = 0;

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    accepted += 1;
    const connection: { client: Socket; upstream: Socket | undefined } = { client, upstream: undefined };
    open.add(connection);
    const forget = () => {
      if (!client.destroyed || connection.upstream?.destroyed === false) return;
      open.delete(connection);
      up.changed();
    };
    client.on("close", forget).on("error", () => undefined);
    const link = async () => {
      while (up.holes.size > 0 && !client.destroyed) await up.change();
      if (client.destroyed) return;
      const upstream = connect({ ...target, allowHalfOpen: true, noDelay: true });
      connection.upstream = upstream;
      upstream.on("close", forget);
      carry(client, upstream, up, random);
      carry(upstream, client, down, random);
    };
    void link();
  });
  const listen = async (port: number): Promise<void> => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await listen(0);
  const { address: host, port } = server.address() as AddressInfo;

  const cut = (fromPort?: number): void => {
    for (const { client, upstream } of open) {
      if (fromPort !== undefined && upstream?.localPort !== fromPort) continue;
      reset(client);
      reset(upstream);
    }
    up.changed();
    down.changed();
  };

  /** Puts one fault into the sets of the lanes concerned, until it heals. */
  const into = <T extends object>(way: Way, setOf: (lane: Lane) => Set<T>, value: T): Fault => {
    const lanes = way === "both" ? [up, down] : [way === "up" ? up : down];
    const apply = (change: (set: Set<T>) => void) => {
      for (const lane of lanes) {
        change(setOf(lane));
        lane.changed();
      }
    };
    apply((set) => set.add(value));
    return faults.add(() => apply((set) => set.delete(value)));
  };

  const close = async (): Promise<void> => {
    const listening = server.listening;
    refusals.add(server);
    faults.heal();
    if (listening) server.close();
    cut();
    while (open.size > 0) await up.change();
  };

  return {
    host,
    port,
    connections: () => open.size,
    accepted: () => accepted,
    cut,
    halfOpen: (way = "both") => into(way, (lane) => lane.holes, {}),
    delay: (ms, { jitterMs = 0, way = "both" } = {}) => into(way, (lane) => lane.delays, { ms, jitterMs }),
    throttle: (bytesPerSecond, way = "both") => into(way, (lane) => lane.rates, { bytesPerSecond }),
    refuse: () => {
      const refusal = {};
      refusals.add(refusal);
      if (server.listening) server.close();
      return faults.add(() => {
        refusals.delete(refusal);
        if (refusals.size === 0) void listen(port);
      });
    },
    heal: () => faults.heal(),
    close,
    [Symbol.asyncDispose]: close,
  };
};
