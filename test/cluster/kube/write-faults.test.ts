import { describe, expect, it, vi } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { settle } from "../../support/clock.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { created, direct, startProxy } from "./world.ts";

const cluster = sharedCluster();
const write = { verb: "update", resource: "leases" } as const;
const once = { times: 1 };

/** What breaks a write, what the client says of it, and what became of it. */
const faults: [name: string, fault: (proxy: HttpProxy) => unknown, outcome: string, applied: boolean][] = [
  ["nothing", () => {}, "ok", true],
  ["reset before it arrives", (proxy) => proxy.drop(write, once), "unknown", false],
  ["applied, the answer lost", (proxy) => proxy.loseAnswer(write, once), "unknown", true],
  ["applied, half an answer", (proxy) => proxy.truncate(write, {}, once), "unknown", true],
  [
    "applied, half an answer in order",
    (proxy) => proxy.truncate(write, { end: "clean" }, once),
    "unknown",
    true,
  ],
  ["applied, the answer late", (proxy) => proxy.delay(write, { afterMs: 4_000 }, once), "unknown", true],
  // The second finds what the first made: true, and read again by whoever wrote.
  ["sent twice", (proxy) => proxy.duplicate(write, once), "conflict", true],
  ["429", (proxy) => proxy.answer(write, { status: 429 }, once), "unavailable", false],
  ["500", (proxy) => proxy.answer(write, { status: 500 }, once), "unknown", false],
  ["410", (proxy) => proxy.answer(write, { status: 410 }, once), "gone", false],
  ["a black hole", (proxy) => proxy.wire.halfOpen(), "unknown", false],
  ["a black hole on the way there", (proxy) => proxy.wire.halfOpen("up"), "unknown", false],
  ["a black hole on the way back", (proxy) => proxy.wire.halfOpen("down"), "unknown", true],
  ["delay within the time limit", (proxy) => proxy.wire.delay(200, { jitterMs: 100 }), "ok", true],
  ["throttling within the time limit", (proxy) => proxy.wire.throttle(20_000), "ok", true],
  [
    "no connection",
    (proxy) => {
      proxy.wire.refuse();
      proxy.wire.cut();
    },
    "unavailable",
    false,
  ],
];

describe.concurrent("a write on a real API server says what is known of it", () => {
  it.each(faults)("%s", async (_name, fault, outcome, applied) => {
    await using server = direct(cluster);
    await using through = await startProxy(cluster, { timeoutMs: 2_000 });
    const namespace = await cluster.namespace("write");
    const metadata = { name: "orders", namespace };
    const object = created(await through.client.create(leaseKind, { metadata, spec: {} }));
    // The connection that was just used is idle from the next turn on: then the write goes out on it.
    await settle();
    fault(through.proxy);
    const spec = { holderIdentity: "user:a/1" };
    const result = await through.client.update(leaseKind, { ...object, spec });
    expect(result).toMatchObject({ outcome });
    // A write is never sent again by itself: what the proxy doubled is all there is.
    expect(through.counts.filter(({ verb }) => verb === "update")).toHaveLength(1);
    await vi.waitFor(
      async () => {
        const read = await server.client.get(leaseKind, metadata);
        expect(read).toHaveProperty("object.spec", applied ? spec : {});
      },
      { timeout: 20_000 },
    );
    // And the connection is good again afterwards.
    through.proxy.heal();
    await vi.waitFor(
      async () => expect(await through.client.get(leaseKind, metadata)).toMatchObject({ outcome: "found" }),
      { timeout: 20_000 },
    );
  });
});
