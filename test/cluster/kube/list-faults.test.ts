import { beforeAll, describe, expect, it } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { direct, follow, startProxy, untilLevel } from "./world.ts";

const cluster = sharedCluster();
const list = { verb: "list" } as const;
const page = { verb: "list", path: /continue=/ } as const;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** What is broken before the reflector starts, and what happens a second later. */
const faults: [name: string, fault: (proxy: HttpProxy) => (() => unknown) | void][] = [
  [
    "cut in the middle",
    (proxy) => {
      const slow = proxy.wire.throttle(100_000, "down");
      return () => {
        proxy.wire.cut();
        slow.heal();
      };
    },
  ],
  [
    "half-open",
    (proxy) => {
      const broken = proxy.wire.halfOpen();
      return () => broken.heal();
    },
  ],
  [
    "half-open from the server only, in the middle",
    (proxy) => {
      const slow = proxy.wire.throttle(100_000, "down");
      return async () => {
        const broken = proxy.wire.halfOpen("down");
        slow.heal();
        await pause(1_000);
        broken.heal();
      };
    },
  ],
  [
    "refused",
    (proxy) => {
      const broken = proxy.wire.refuse();
      return () => broken.heal();
    },
  ],
  ["delayed", (proxy) => void proxy.wire.delay(100, { jitterMs: 100 })],
  ["throttled below a page in the time limit", (proxy) => void proxy.wire.throttle(40_000)],
  ["truncated", (proxy) => void proxy.truncate(list, {}, { times: 2 })],
  ["truncated on a later page", (proxy) => void proxy.truncate(page, {}, { times: 2 })],
  ["truncated, with an end in order", (proxy) => void proxy.truncate(list, { end: "clean" }, { times: 2 })],
  ["410 on a later page", (proxy) => void proxy.answer(page, { status: 410 }, { times: 2 })],
  ["410", (proxy) => void proxy.answer(list, { status: 410 }, { times: 2 })],
  ["429", (proxy) => void proxy.answer(list, { status: 429 }, { times: 2 })],
  ["500", (proxy) => void proxy.answer(list, { status: 500 }, { times: 4 })],
  ["500 on a later page", (proxy) => void proxy.answer(page, { status: 500 }, { times: 2 })],
  ["403", (proxy) => void proxy.answer(list, { status: 403 }, { times: 2 })],
];

describe.concurrent("a list on a real API server is whole in the end", () => {
  let namespace: string;
  beforeAll(async () => {
    namespace = await cluster.namespace("list");
    await using server = direct(cluster);
    for (let i = 0; i < 620; i += 20)
      await Promise.all(
        Array.from({ length: 20 }, (_, n) =>
          server.client.create(leaseKind, { metadata: { name: `lease-${i + n}`, namespace }, spec: {} }),
        ),
      );
  });

  it.each(faults)("%s", { timeout: 90_000 }, async (_name, fault) => {
    await using server = direct(cluster);
    await using through = await startProxy(cluster, { timeoutMs: 2_000 });
    const start = performance.now();
    const later = fault(through.proxy);
    await using follower = follow(through.transport, namespace);
    await pause(1_000);
    await later?.();
    await untilLevel(follower, server.client, namespace, 60_000);
    expect(follower.reflector.list()).toHaveLength(620);
    const minutes = Math.ceil((performance.now() - start) / 60_000);
    const asked = through.proxy.total({ verb: "list" }) + through.proxy.total({ verb: "watch" });
    expect(asked).toBeLessThanOrEqual(30 * minutes);
  });
});
