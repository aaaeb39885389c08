import { writeFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { changedKubeconfig, connect, direct, follow, scribble, startProxy, untilLevel } from "./world.ts";

const cluster = sharedCluster();
const watch = { verb: "watch" } as const;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

type Break = (proxy: HttpProxy, change: () => Promise<void>) => Promise<void>;

const wire =
  (fault: (proxy: HttpProxy) => { heal(): unknown }, ms = 2_000): Break =>
  async (proxy, change) => {
    const broken = fault(proxy);
    await change();
    await pause(ms);
    await broken.heal();
  };
/** A fault that waits for the next watch. */
const next =
  (fault: (proxy: HttpProxy) => unknown): Break =>
  async (proxy, change) => {
    fault(proxy);
    proxy.wire.cut();
    await change();
  };

const faults: [name: string, fault: Break, boundMs: number][] = [
  [
    "cut",
    async (proxy, change) => {
      proxy.wire.cut();
      await change();
    },
    10_000,
  ],
  ["half-open", wire((proxy) => proxy.wire.halfOpen()), 10_000],
  ["half-open from the server only", wire((proxy) => proxy.wire.halfOpen("down")), 10_000],
  ["half-open to the server only", wire((proxy) => proxy.wire.halfOpen("up")), 10_000],
  [
    "refused for a while",
    async (proxy, change) => {
      const refused = proxy.wire.refuse();
      proxy.wire.cut();
      await change();
      await pause(3_000);
      refused.heal();
    },
    15_000,
  ],
  ["delayed", wire((proxy) => proxy.wire.delay(300, { jitterMs: 200 })), 10_000],
  ["throttled", wire((proxy) => proxy.wire.throttle(2_000)), 15_000],
  [
    "half a line, then reset",
    next((proxy) => proxy.truncate(watch, { afterLines: 1 }, { times: 1 })),
    10_000,
  ],
  [
    "half a line, then an end in order",
    next((proxy) => proxy.truncate(watch, { afterLines: 1, end: "clean" }, { times: 1 })),
    10_000,
  ],
  ["410 as status", next((proxy) => proxy.answer(watch, { status: 410 }, { times: 2 })), 10_000],
  [
    "410 as event",
    next((proxy) => proxy.errorEvent(watch, { status: 410, afterLines: 1 }, { times: 2 })),
    10_000,
  ],
  ["429", next((proxy) => proxy.answer(watch, { status: 429 }, { times: 3 })), 15_000],
  ["500", next((proxy) => proxy.answer(watch, { status: 500 }, { times: 3 })), 15_000],
  ["500 as event", next((proxy) => proxy.errorEvent(watch, { status: 500 }, { times: 3 })), 15_000],
  [
    "410, then 500s on the list",
    async (proxy, change) => {
      proxy.answer(watch, { status: 410 }, { times: 1 });
      proxy.answer(
        { verb: "list", when: ({ path }) => !path.includes("limit=1&") },
        { status: 500 },
        { times: 4 },
      );
      proxy.wire.cut();
      await change();
    },
    20_000,
  ],
  [
    "every third request reset",
    async (proxy, change) => {
      const broken = proxy.drop({}, { chance: 0.34 });
      for (let i = 0; i < 4; i++) {
        proxy.wire.cut();
        await change();
        await pause(500);
      }
      broken.heal();
    },
    30_000,
  ],
];

describe.concurrent("FM-25 a watch on a real API server misses nothing", () => {
  it.each(faults)("%s", { timeout: 90_000 }, async (_name, fault, boundMs) => {
    await using server = direct(cluster);
    await using through = await startProxy(cluster, { timeoutMs: 5_000 });
    const namespace = await cluster.namespace("watch");
    const { client } = server;
    await scribble(client, namespace);
    await using follower = follow(through.transport, namespace);
    await follower.reflector.synced();
    await untilLevel(follower, client, namespace, 10_000);
    const start = performance.now();
    through.proxy.reset();
    await fault(through.proxy, () => scribble(client, namespace));
    await untilLevel(follower, client, namespace, boundMs);
    await scribble(client, namespace);
    await untilLevel(follower, client, namespace, 5_000);
    const minutes = Math.ceil((performance.now() - start) / 60_000);
    const asked = through.proxy.total({ verb: "list" }) + through.proxy.total({ verb: "watch" });
    expect(asked).toBeLessThanOrEqual(30 * minutes);
  });
});

describe.concurrent("FM-25 a watch that fell silent", () => {
  it("is known by the end that does not come, within 35 s, and made good", { timeout: 90_000 }, async () => {
    await using server = direct(cluster);
    await using through = await startProxy(cluster);
    const namespace = await cluster.namespace("silence");
    await using follower = follow(through.transport, namespace);
    await follower.reflector.synced();
    await untilLevel(follower, server.client, namespace, 10_000);
    const accepted = () => through.counts.some(({ verb, code }) => verb === "watch" && code === "200");
    await vi.waitFor(() => expect(accepted()).toBe(true));
    const broken = through.proxy.wire.halfOpen("down");
    await scribble(server.client, namespace);
    await vi.waitFor(() => expect(follower.interruptions[0]).toMatch(/silent/), {
      timeout: 37_000,
      interval: 250,
    });
    expect(follower.reflector.healthy()).toBe(false);
    broken.heal();
    await untilLevel(follower, server.client, namespace, 25_000);
  });
});

const grant = async (namespace: string, account: string) => {
  await cluster.apply({
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: { name: account, namespace },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" },
    subjects: [{ kind: "ServiceAccount", name: account, namespace }],
  });
  return cluster.token({ namespace, sa: account });
};

describe.concurrent("a token that is rotated", () => {
  it("counts from the next request on; the cache stays level when the old one dies", {
    timeout: 60_000,
  }, async () => {
    await using server = direct(cluster);
    const namespace = await cluster.namespace("rotation");
    const [first, second] = [await grant(namespace, "one"), await grant(namespace, "two")];
    const tokenFile = changedKubeconfig(cluster, {});
    writeFileSync(tokenFile, first);
    await using rotating = connect(changedKubeconfig(cluster, { user: { tokenFile } }), {
      context: cluster.context,
    });
    await using follower = follow(rotating.transport, namespace);
    await follower.reflector.synced();

    writeFileSync(tokenFile, second);
    await cluster.kubectl(["delete", "serviceaccount", "one", "-n", namespace]);
    for (let i = 0; i < 3; i++)
      expect(await rotating.client.list(leaseKind, { namespace })).toMatchObject({ items: [] });
    await scribble(server.client, namespace);
    await untilLevel(follower, server.client, namespace, 5_000);
    // Past the life of the watch that was opened with the old token.
    const watches = () => rotating.counts.filter(({ verb }) => verb === "watch").length;
    const before = watches();
    await vi.waitFor(() => expect(watches()).toBeGreaterThan(before), { timeout: 40_000, interval: 500 });
    await scribble(server.client, namespace);
    await untilLevel(follower, server.client, namespace, 5_000);
    expect(rotating.counts.filter(({ code }) => code === "401")).toEqual([]);
    expect(follower.interruptions).toEqual([]);
    // Ours three, and the reflector's first: each watch ended with a bookmark, so that none had to be verified.
    expect(rotating.counts.filter(({ verb }) => verb === "list")).toHaveLength(4);
  });
});
