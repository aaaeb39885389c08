import { describe, expect, it } from "vitest";
import { makeEventRecorder, type Subject } from "../../../src/kube/events.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { type Connection, connect } from "./connect.ts";

const cluster = sharedCluster();

const recorderOf = ({ client }: Connection) =>
  makeEventRecorder({
    client,
    controller: "fenceline.dev/controller",
    instance: "controller-0",
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
  });

const subjects = (namespace: string): { orders: Subject; pod: Subject } => ({
  orders: {
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    namespace,
    name: "orders",
    uid: "7d1c3c0e-0000-4000-8000-000000000001",
  },
  pod: {
    apiVersion: "v1",
    kind: "Pod",
    namespace,
    name: "worker-1",
    uid: "7d1c3c0e-0000-4000-8000-000000000002",
  },
});

const inTime = () => AbortSignal.timeout(30_000);

describe("events on a real API server", () => {
  it("tell a hand-over to whoever reads kubectl get events", async () => {
    await using connection = await connect(cluster);
    const namespace = await cluster.namespace("events");
    const { orders, pod } = subjects(namespace);
    const recorder = recorderOf(connection);
    recorder.record({
      regarding: orders,
      reason: "LeaseExpired",
      note: "pod worker-0 did not renew token 42",
    });
    recorder.record({ regarding: orders, pod, reason: "TokenGranted", note: "pod worker-1 holds token 43" });
    await recorder.flush(inTime());
    expect(recorder.dropped()).toBe(0);

    const table = await cluster.kubectl([
      "get",
      "events",
      "-n",
      namespace,
      "--sort-by=.metadata.creationTimestamp",
    ]);
    expect(table).toMatch(
      /Warning +LeaseExpired +fencedresource\/orders +pod worker-0 did not renew token 42/,
    );
    expect(table).toMatch(/Normal +TokenGranted +fencedresource\/orders +pod worker-1 holds token 43/);
    expect(table).toMatch(/Normal +TokenGranted +pod\/worker-1 +pod worker-1 holds token 43/);
  });

  it("that repeat are one object with a growing count", async () => {
    await using connection = await connect(cluster);
    const namespace = await cluster.namespace("events");
    const { orders } = subjects(namespace);
    const recorder = recorderOf(connection);
    const again = () =>
      recorder.record({
        regarding: orders,
        reason: "StaleWriteRejected",
        note: "the table refused an old token",
      });
    again();
    await expect.poll(() => connection.proxy.writes(), { timeout: 20_000 }).toEqual({ "create events": 1 });
    for (let i = 0; i < 6; i++) again();
    await recorder.flush(inTime());
    expect(connection.proxy.writes()).toEqual({ "create events": 1, "patch events": 1 });
    const { items } = JSON.parse(
      await cluster.kubectl(["get", "events.events.k8s.io", "-n", namespace, "-o", "json"]),
    );
    expect(items).toHaveLength(1);
    expect(items[0].series.count).toBe(7);
    expect(await cluster.kubectl(["events", "-n", namespace])).toMatch(/\(x7 over .*\)/);
  });

  it("with the longest note are taken, and those that are refused are counted and hinder nobody", async () => {
    await using connection = await connect(cluster);
    const namespace = await cluster.namespace("events");
    const { orders } = subjects(namespace);
    const recorder = recorderOf(connection);
    recorder.record({
      regarding: { ...orders, namespace: "not-there" },
      reason: "Waiting",
      note: "nobody reads this",
    });
    recorder.record({ regarding: orders, reason: "Waiting", note: "€".repeat(2000) });
    await recorder.flush(inTime());
    expect(recorder.dropped()).toBe(1);
    expect(await cluster.kubectl(["get", "events", "-n", namespace])).toContain("€€€…");
  });

  it("that were written without an answer are not written twice", async () => {
    await using connection = await connect(cluster);
    const namespace = await cluster.namespace("events");
    const { orders } = subjects(namespace);
    const recorder = recorderOf(connection);
    using lost = connection.proxy.loseAnswer({ verb: "create", resource: "events" }, { times: 1 });
    recorder.record({ regarding: orders, reason: "LeaseReleased", note: "pod worker-1 gave back token 43" });
    await lost.hit(1);
    await expect
      .poll(() => connection.proxy.total({ verb: "create", resource: "events" }), { timeout: 20_000 })
      .toBe(2);
    await recorder.flush(inTime());
    expect(recorder.dropped()).toBe(0);
    const { items } = JSON.parse(await cluster.kubectl(["get", "events", "-n", namespace, "-o", "json"]));
    expect(items).toHaveLength(1);
  });
});
