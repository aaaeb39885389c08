import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import { afterAll, expect, vi } from "vitest";
import { parse, stringify } from "yaml";
import type { LeaseObject } from "../../../src/api/lease.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { makeReflector, type Reflector } from "../../../src/kube/reflector.ts";
import { makeTransport, type RequestCount } from "../../../src/kube/transport.ts";
import type { KubeClient, Transport, WriteResult } from "../../../src/kube/types.ts";
import { type Clock, systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { type HttpProxy, startHttpProxy } from "../../support/faultproxy/http.ts";

export interface Connection extends AsyncDisposable {
  transport: Transport;
  client: KubeClient;
  counts: RequestCount[];
}

export const connect = (path: string, options: { context?: string; timeoutMs?: number } = {}): Connection => {
  const { context, ...rest } = options;
  const counts: RequestCount[] = [];
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path, context }, systemClock),
    clock: systemClock,
    onRequest: (count) => counts.push(count),
    ...rest,
  });
  return {
    transport,
    client: makeKubeClient(transport),
    counts,
    [Symbol.asyncDispose]: () => transport.close(),
  };
};

/** The API server itself, with nothing in between. */
export const direct = (cluster: Cluster): Connection =>
  connect(cluster.kubeconfig, { context: cluster.context });

/** A proxy of one's own before the API server, and a connection through it. */
export const startProxy = async (
  cluster: Cluster,
  options: { timeoutMs?: number } = {},
): Promise<Connection & { proxy: HttpProxy }> => {
  const access = loadKubeConfig(
    { from: "file", path: cluster.kubeconfig, context: cluster.context },
    systemClock,
  );
  const { tls } = await access.credentials.current();
  const proxy = await startHttpProxy({
    target: access.server,
    tls: { ca: String(tls.ca), cert: String(tls.cert), key: String(tls.key) },
  });
  const path = temporary();
  writeFileSync(path, proxy.kubeconfig());
  const connection = connect(path, options);
  return {
    ...connection,
    proxy,
    async [Symbol.asyncDispose]() {
      await connection[Symbol.asyncDispose]();
      await proxy.close();
    },
  };
};

export interface KubeconfigChange {
  cluster?: Record<string, unknown>;
  user?: Record<string, unknown>;
}

interface Kubeconfig {
  clusters: { cluster: Record<string, unknown> }[];
  users: { user: Record<string, unknown> }[];
}

const folder = mkdtempSync(join(tmpdir(), "fenceline-kube-"));
afterAll(() => rmSync(folder, { recursive: true }));
const temporary = (): string => join(folder, randomUUID());

/** The cluster's own kubeconfig with something changed in it. */
export const changedKubeconfig = (cluster: Cluster, change: KubeconfigChange): string => {
  const config = parse(readFileSync(cluster.kubeconfig, "utf8")) as Kubeconfig;
  Object.assign(config.clusters[0]?.cluster ?? {}, change.cluster);
  if (change.user !== undefined) for (const entry of config.users) entry.user = change.user;
  const path = temporary();
  writeFileSync(path, stringify(config));
  return path;
};

export interface Follower extends AsyncDisposable {
  reflector: Reflector<LeaseObject>;
  /** What the changes add up to. */
  told: Map<string, string>;
  interruptions: string[];
  regressions: () => number;
}

const stateOf = ({ metadata, spec }: LeaseObject) =>
  [metadata.uid, metadata.resourceVersion, spec.holderIdentity].join(" ");

/** Follows the Leases of one namespace, and checks that each change leads on from what was told before. */
export const follow = (
  transport: Transport,
  namespace: string,
  options: { clock?: Clock; onResumed?: () => void } = {},
): Follower => {
  const told = new Map<string, string>();
  const interruptions: string[] = [];
  let regressions = 0;
  const stop = new AbortController();
  const reflector = makeReflector({
    transport,
    kind: leaseKind,
    namespace,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
    onChange: (change) => {
      const { name } = change.object.metadata;
      if ((change.type === "added") === told.has(name)) throw new Error(`${change.type} does not follow`);
      if (change.type === "deleted") told.delete(name);
      else told.set(name, stateOf(change.object));
    },
    onInterrupted: (reason) => interruptions.push(reason),
    onRegressed: () => regressions++,
    ...options,
  });
  const done = reflector.start(stop.signal);
  return {
    reflector,
    told,
    interruptions,
    regressions: () => regressions,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await done;
    },
  };
};

const stored = async (client: KubeClient, namespace: string): Promise<Map<string, string>> => {
  const { items } = await client.list(leaseKind, { namespace });
  return new Map(items.map((lease) => [lease.metadata.name, stateOf(lease)]));
};

/** Waits until the cache, and all that was told, equals a fresh list: nothing was missed. Returns the seconds it took. */
export const untilLevel = async (
  { reflector, told }: Follower,
  client: KubeClient,
  namespace: string,
  withinMs: number,
): Promise<number> => {
  const start = performance.now();
  await vi.waitFor(
    async () => {
      const fresh = await stored(client, namespace);
      const cached = new Map(reflector.list().map((lease) => [lease.metadata.name, stateOf(lease)]));
      expect(cached).toEqual(fresh);
      expect(told).toEqual(fresh);
      expect(reflector.healthy()).toBe(true);
    },
    { timeout: withinMs, interval: 250 },
  );
  expect(reflector.stats().handlerErrors).toBe(0);
  return (performance.now() - start) / 1000;
};

/** What a write that must succeed stored. */
export const created = <T>(result: WriteResult<T>): T => {
  if (result.outcome !== "ok") throw new Error(`${result.outcome}: ${result.message}`);
  return result.object;
};

/** A bit of everything: made, changed, removed, removed and made again. */
export const scribble = async (client: KubeClient, namespace: string): Promise<void> => {
  const id = randomUUID().slice(0, 8);
  const make = async (name: string) =>
    created(
      await client.create(leaseKind, {
        metadata: { name, namespace },
        spec: { holderIdentity: `user:${id}/1` },
      }),
    );
  const kept = await make(`kept-${id}`);
  await make(`gone-${id}`);
  await make(`again-${id}`);
  for (const name of [`gone-${id}`, `again-${id}`])
    created(await client.remove(leaseKind, { namespace, name }, {}));
  await make(`again-${id}`);
  created(await client.update(leaseKind, { ...kept, spec: { holderIdentity: `user:${id}/2` } }));
};
