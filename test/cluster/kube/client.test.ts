import { describe, expect, it } from "vitest";
import type { LeaseObject } from "../../../src/api/lease.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { leaseKind, namespaceKind } from "../../../src/kube/kinds.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";

const cluster = sharedCluster();

const connect = () => {
  const access = loadKubeConfig(
    { from: "file", path: cluster.kubeconfig, context: cluster.context },
    systemClock,
  );
  const counts: string[] = [];
  const transport = makeTransport({
    access,
    clock: systemClock,
    onRequest: ({ verb, resource, code }) => counts.push(`${verb} ${resource} ${code}`),
  });
  return { client: makeKubeClient(transport), counts, [Symbol.asyncDispose]: () => transport.close() };
};

const lease = async (
  client: ReturnType<typeof connect>["client"],
  namespace: string,
): Promise<LeaseObject> => {
  const made = await client.create(leaseKind, { metadata: { name: "orders", namespace }, spec: {} });
  expect(made.outcome).toBe("ok");
  if (made.outcome !== "ok") throw new Error(made.outcome);
  return made.object;
};

describe("writes on a real API server", () => {
  it("says ok, exists, conflict, gone and refused, and counts each by verb, resource and code", async () => {
    await using test = connect();
    const { client, counts } = test;
    const namespace = await cluster.namespace("client");
    const first = await lease(client, namespace);
    expect(first.metadata.uid).toMatch(/^[0-9a-f-]{36}$/);

    const again = await client.create(leaseKind, { metadata: { name: "orders", namespace }, spec: {} });
    expect(again.outcome).toBe("exists");

    const held = { ...first, spec: { holderIdentity: "user:a/1", renewTime: "2026-05-01T12:00:00.123456Z" } };
    const updated = await client.update(leaseKind, held);
    expect(updated).toMatchObject({ outcome: "ok", object: { spec: held.spec } });
    if (updated.outcome !== "ok") return;
    expect(await client.update(leaseKind, held)).toMatchObject({ outcome: "conflict" });

    const refused = await client.update(leaseKind, {
      ...updated.object,
      spec: { leaseDurationSeconds: -1 },
    });
    expect(refused).toMatchObject({
      outcome: "refused",
      status: 422,
      message: expect.stringContaining("leaseDuration"),
    });

    const ref = { namespace, name: "orders" };
    expect(await client.remove(leaseKind, ref, { uid: "not-this-one" })).toMatchObject({
      outcome: "conflict",
    });
    expect(await client.remove(leaseKind, ref, { uid: first.metadata.uid })).toMatchObject({ outcome: "ok" });
    expect(await client.remove(leaseKind, ref, { uid: first.metadata.uid })).toMatchObject({
      outcome: "gone",
    });
    expect(await client.get(leaseKind, ref)).toEqual({ outcome: "absent" });
    // The PUT with uid on a Lease that is gone is a conflict, and makes nothing.
    expect(await client.update(leaseKind, held)).toMatchObject({ outcome: "conflict" });
    expect(await client.get(leaseKind, ref)).toEqual({ outcome: "absent" });

    expect(counts).toEqual([
      "create leases 201",
      "create leases 409",
      "update leases 200",
      "update leases 409",
      "update leases 422",
      "delete leases 409",
      "delete leases 200",
      "delete leases 404",
      "get leases 404",
      "update leases 409",
      "get leases 404",
    ]);
  });

  it("sends no update without uid or resourceVersion", async () => {
    await using test = connect();
    const { client, counts } = test;
    const namespace = await cluster.namespace("client");
    const { metadata, spec } = await lease(client, namespace);
    for (const missing of ["uid", "resourceVersion"] as const) {
      const { [missing]: _, ...rest } = metadata;
      expect(await client.update(leaseKind, { metadata: rest, spec })).toMatchObject({
        outcome: "refused",
        message: expect.stringContaining("not sent"),
      });
    }
    expect(counts.filter((count) => count.startsWith("update"))).toEqual([]);
  });

  it("keeps what others put into the metadata of a Lease", async () => {
    await using test = connect();
    const { client } = test;
    const namespace = await cluster.namespace("client");
    await cluster.apply({
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: {
        name: "orders",
        namespace,
        labels: { a: "b" },
        annotations: { c: "d" },
        finalizers: ["example.com/x"],
      },
      spec: {},
    });
    const read = await client.get(leaseKind, { namespace, name: "orders" });
    if (read.outcome !== "found") throw new Error("absent");
    const result = await client.update(leaseKind, { ...read.object, spec: { holderIdentity: "user:a/1" } });
    expect(result).toMatchObject({
      outcome: "ok",
      object: { metadata: { labels: { a: "b" }, annotations: { c: "d" }, finalizers: ["example.com/x"] } },
    });
    await client.patch(leaseKind, { namespace, name: "orders" }, { metadata: { finalizers: null } });
  });

  it("pages through a list, and reads cluster-scoped kinds", async () => {
    await using test = connect();
    const { client } = test;
    const namespace = await cluster.namespace("client");
    for (const name of ["a", "b", "c"])
      await client.create(leaseKind, { metadata: { name, namespace }, spec: {} });
    const one = await client.list(leaseKind, { namespace, limit: 2 });
    expect(one.items.map((item) => item.metadata.name)).toEqual(["a", "b"]);
    const two = await client.list(leaseKind, { namespace, limit: 2, continue: one.continue });
    expect(two.items.map((item) => item.metadata.name)).toEqual(["c"]);
    expect(two.continue).toBeUndefined();
    expect(await client.get(namespaceKind, { name: namespace })).toMatchObject({ outcome: "found" });
  });

  it("posts virtual resources", async () => {
    await using test = connect();
    const review = await test.client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { verb: "get", resource: "leases", group: "coordination.k8s.io" } },
    });
    expect(review).toMatchObject({ status: { allowed: true } });
  });
});
