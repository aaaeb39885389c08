/**
 * The controller on a real API server, under the policies and as the service account that it is installed with. In a
 * cluster of its own: other tests run whole controllers, which would help along.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { FencedResource } from "../../../src/api/fencedresource.ts";
import type { LeaseObject } from "../../../src/api/lease.ts";
import { confirmDelete, leaseName, sequenceName } from "../../../src/api/names.ts";
import type { HolderId } from "../../../src/core/lease.ts";
import { type EventRecorder, makeEventRecorder } from "../../../src/kube/events.ts";
import { systemClock as clock, systemRandom as random } from "../../../src/runtime/clock.ts";
import { silentLogger as log } from "../../../src/runtime/logger.ts";
import { makeActor } from "../../support/actor.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type ControllerProcess, startController } from "../../support/controller.ts";
import { resource } from "../crds/support.ts";
import { enforced } from "../policies/support.ts";
import { type Account, asController } from "./account.ts";

let lab: Lab;
/** The controller's way to the API server, where its requests are counted. */
let account: Account;
/** The coordinator's, or rather that of whoever acts as it. */
let other: Account;
let events: EventRecorder;
let controller: ControllerProcess;
let namespace: string;

const issuer = "this-cluster";
const alice: HolderId = "user:a/1";
const bob: HolderId = "user:b/2";
const named = (label: string) => ({ pod: undefined, label });

const begin = () => {
  const instance = "controller-test";
  events = makeEventRecorder({
    client: account.client,
    controller: "fenceline",
    instance,
    clock,
    random,
    log,
  });
  controller = startController({ transport: account.transport, clock, random, events, issuer });
  controller.lead();
};
const end = async () => {
  await controller.stop();
  await events.flush(AbortSignal.timeout(10_000));
};

beforeAll(async () => {
  lab = await startApi();
  await enforced(lab);
  account = await asController(lab);
  other = await asController(lab);
  begin();
});
afterAll(async () => {
  await end();
  await account[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
  await lab[Symbol.asyncDispose]();
});
beforeEach(async () => {
  namespace = await lab.namespace("shop");
});
afterEach(() => lab.kubectl(["delete", "namespace", namespace, "--wait=false", "--ignore-not-found"]));
collectOnFailure(() => lab);

const actor = (name = "orders", ns = namespace) =>
  makeActor({ client: other.client, clock, random, issuer }, { namespace: ns, name });

const read = async (name = "orders", ns = namespace): Promise<FencedResource> =>
  JSON.parse(await lab.kubectl(["get", "fr", name, "-n", ns, "-o", "json"]));
const leaseOf = async (name = "orders", ns = namespace): Promise<LeaseObject> =>
  JSON.parse(await lab.kubectl(["get", "lease", leaseName(name), "-n", ns, "-o", "json"]));
const condition = async (type: string, name = "orders", ns = namespace) =>
  (await read(name, ns)).status?.conditions?.find((condition) => condition.type === type);

const eventually = { timeout: 30_000, interval: 100 };
const ready = (name = "orders", ns = namespace) =>
  expect.poll(() => condition("Ready", name, ns), eventually).toMatchObject({ status: "True" });
const shown = (attempt: HolderId | undefined) =>
  expect.poll(async () => (await read()).status?.holder?.identity, eventually).toBe(attempt);

const apply = async (spec: object = {}) => {
  await lab.apply(resource(namespace, "orders", spec));
};

/** Reasons and notes of the events on the resource, as they happened. */
const story = async (): Promise<{ reason: string; note: string }[]> => {
  const list = JSON.parse(
    await lab.kubectl(["get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json"]),
  ) as { items: { reason: string; note: string; metadata: { resourceVersion: string } }[] };
  const order = (item: (typeof list.items)[number]) => Number(item.metadata.resourceVersion);
  return list.items.toSorted((a, b) => order(a) - order(b));
};
/** How often the controller writes something of this namespace, or to a sequence, from now on. */
const countWrites = () =>
  account.proxy.fault(
    {
      when: ({ verb, resource: kind, namespace: where }) =>
        ["create", "update", "patch", "delete"].includes(verb) &&
        (where === namespace || kind.startsWith("fencedsequences")),
    },
    (_, forward) => forward(),
  );

const reasons = async () => (await story()).map(({ reason }) => reason);

describe("what people see", () => {
  test("S1-11 S2-06 kubectl get, describe and events tell of a hand-over without a manual", async () => {
    await apply();
    await ready();
    const orders = actor();
    await orders.grant(alice, named("worker-a"));
    await shown(alice);
    const table = await lab.kubectl(["get", "fr", "-n", namespace]);
    expect(table.split("\n")[0]).toMatch(/NAME\s+HOLDER\s+TOKEN\s+GUARANTEE\s+READY\s+AGE/);
    expect(table.split("\n")[1]).toMatch(/orders\s+worker-a\s+1\s+Advisory\s+True/);
    const wide = await lab.kubectl(["get", "fr", "-n", namespace, "-o", "wide"]);
    expect(wide).toMatch(/worker-a\s+1\s+Advisory\s+True\s+\S+\s+0\s+Status\s+None/);
    await orders.release();
    await shown(undefined);
    await orders.grant(bob, named("worker-b"));
    await shown(bob);
    await expect.poll(reasons, eventually).toContain("OwnershipTransferred");
    const told = await story();
    expect(told.map(({ reason }) => reason)).toEqual([
      "GuaranteeChanged",
      "TokenGranted",
      "LeaseReleased",
      "TokenGranted",
      "OwnershipTransferred",
    ]);
    expect(told.at(-1)?.note).toBe("from worker-a (token 1), which gave it back, to worker-b (token 2)");
    const description = await lab.kubectl(["describe", "fr", "orders", "-n", namespace]);
    expect(description).toContain("reduces overlap, does not exclude it");
    expect(description).toContain(
      "token 2 granted to worker-b (Advisory: reduces overlap, does not exclude it)",
    );
    expect((await read()).status).toMatchObject({
      holder: { identity: bob, label: "worker-b", token: "2" },
      tokens: { granted: "2", ceiling: "64" },
      transfers: [
        { to: alice, token: "1", reason: "Granted" },
        { from: alice, to: bob, token: "2", reason: "Released" },
      ],
    });
  });

  test("an expired, untaken holder is shown as such and told once", async () => {
    await apply({ lease: { durationSeconds: 3, renewIntervalSeconds: 1 } });
    await ready();
    await actor().grant(alice, named("worker-a"));
    await expect
      .poll(() => lab.kubectl(["get", "fr", "-n", namespace]), eventually)
      .toContain("worker-a (expired)");
    await expect.poll(reasons, eventually).toContain("LeaseExpired");
    expect((await leaseOf()).spec.holderIdentity).toBe(alice);
    expect((await reasons()).filter((reason) => reason === "LeaseExpired")).toHaveLength(1);
  });

  test("suspended, and ready again", async () => {
    await apply({ suspend: true });
    await expect
      .poll(() => condition("Ready"), eventually)
      .toMatchObject({ status: "False", reason: "Suspended" });
    await apply({ suspend: false });
    await ready();
    expect((await read()).status?.observedGeneration).toBe((await read()).metadata.generation);
  });

  test("a floor raises the sequence, and is told", async () => {
    await apply();
    await ready();
    await apply({ tokens: { floor: "5000" } });
    await expect.poll(async () => (await read()).status?.tokens?.ceiling, eventually).toBe("5000");
    await expect.poll(reasons, eventually).toContain("TokenFloorRaised");
    expect(await actor().grant(alice)).toBe(5001n);
  });
});

describe("FM-27 the Lease deleted while held", () => {
  test("ten times: made anew without a holder, every token higher than all before", async () => {
    await apply();
    await ready();
    const orders = actor();
    let last = 0n;
    for (let round = 0; round < 10; round += 1) {
      const token = await orders.grant(`user:a/${round}`);
      expect(token).toBeGreaterThan(last);
      last = token;
      const { uid } = (await leaseOf()).metadata;
      await lab.kubectl(["delete", "lease", leaseName("orders"), "-n", namespace]);
      await expect
        .poll(async () => (await orders.lease().catch(() => undefined))?.view.uid ?? uid, eventually)
        .not.toBe(uid);
      expect((await orders.lease()).view).toMatchObject({ holder: undefined, credit: undefined });
    }
    await expect.poll(async () => (await read()).status?.holder, eventually).toBeUndefined();
  });
});

describe("FM-28 made again", () => {
  test("the resource: no finalizer holds it up, and tokens go on", async () => {
    await apply();
    await ready();
    const before = await actor().grant(alice);
    expect((await read()).metadata.finalizers).toBeUndefined();
    await lab.kubectl(["delete", "fr", "orders", "-n", namespace]);
    await lab.kubectl(["delete", "lease", leaseName("orders"), "-n", namespace]);
    await apply();
    await ready();
    expect(await actor().grant(bob)).toBeGreaterThan(before);
  });

  test("the namespace: it ends with all that is in it, and tokens go on", async () => {
    await apply();
    await ready();
    const before = await actor().grant(alice);
    await lab.kubectl(["delete", "namespace", namespace, "--timeout=60s"]);
    await lab.kubectl(["create", "namespace", namespace]);
    await apply();
    await ready();
    expect(await actor().grant(bob)).toBeGreaterThan(before);
  });

  test("the sequence forced away with the Lease: not ready until a floor is given", async () => {
    await apply();
    await ready();
    await actor().grant(alice);
    await expect.poll(async () => (await read()).status?.tokens?.ceiling, eventually).toBe("64");
    await end();
    const sequence = sequenceName(`${namespace}/orders`);
    await lab.kubectl(["annotate", "fs", sequence, `${confirmDelete}=${namespace}/orders`]);
    await lab.kubectl(["delete", "fs", sequence]);
    await lab.kubectl(["delete", "lease", leaseName("orders"), "-n", namespace]);
    begin();
    await expect
      .poll(() => condition("TokensConsistent"), eventually)
      .toMatchObject({ status: "False", reason: "SequenceMissing" });
    expect(await condition("Ready")).toMatchObject({ status: "False", reason: "TokensNotConsistent" });
    expect((await condition("Ready"))?.message).toContain("set spec.tokens.floor above every token");
    await apply({ tokens: { floor: "64" } });
    await ready();
    expect(await actor().grant(bob)).toBe(65n);
  });
});

describe("a restore of etcd", () => {
  test("is noticed by the watch: the sequence goes above everything seen", { timeout: 180_000 }, async ({
    onTestFinished,
  }) => {
    // It remembers a restore for as long as it runs: even a new resource would start with a safety jump.
    onTestFinished(async () => {
      await end();
      begin();
    });
    await apply();
    await ready();
    const orders = actor();
    await orders.grant(alice);
    await shown(alice);
    const backup = await lab.etcd.snapshot();
    for (let round = 0; round < 20; round += 1) await orders.renew();
    await orders.release();
    const last = await orders.grant(bob);
    await shown(bob);
    await lab.etcd.restore(backup);
    const slowly = { timeout: 120_000, interval: 500 };
    await expect
      .poll(async () => BigInt((await read().catch(() => undefined))?.status?.tokens?.ceiling ?? 0), slowly)
      .toBeGreaterThan(last + 2n ** 20n);
    expect((await orders.lease()).view).toMatchObject({ holder: alice, credit: { token: 1n, ceiling: 1n } });
    await expect.poll(reasons, slowly).toContain("TokenFloorRaised");
    await orders.release();
    expect(await orders.grant("user:c/3")).toBeGreaterThan(last + 2n ** 20n);
  });
});

describe("FM-39 names that clash", () => {
  test("a foreign Lease of our name stays as it is, and is named", async () => {
    const foreign = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { namespace, name: leaseName("orders") },
      spec: { holderIdentity: "somebody" },
    };
    await lab.apply(foreign);
    const before = await leaseOf();
    await apply();
    await expect
      .poll(() => condition("LeaseBound"), eventually)
      .toMatchObject({ status: "False", reason: "ForeignLease" });
    expect((await condition("Ready"))?.message).toContain(`${namespace}/${leaseName("orders")}`);
    expect(await leaseOf()).toEqual(before);
  });

  test("one that nobody holds is adopted under the policies", async () => {
    const free = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { namespace, name: leaseName("orders") },
      spec: {},
    };
    await lab.apply(free);
    await apply();
    await ready();
    expect(await actor().grant(alice)).toBe(1n);
  });

  test("two names of 253 characters with a common start, and one name in two namespaces", async () => {
    const long = "a".repeat(240);
    const elsewhere = await lab.namespace("shop");
    const pairs: [string, string][] = [
      [namespace, `${long}.first-one-of`],
      [namespace, `${long}.other-one-of`],
      [elsewhere, `${long}.first-one-of`],
    ];
    for (const [ns, name] of pairs) {
      expect(name).toHaveLength(253);
      await lab.apply(resource(ns, name));
    }
    for (const [ns, name] of pairs) {
      await ready(name, ns);
      expect(await actor(name, ns).grant(alice)).toBe(1n);
    }
    await lab.kubectl(["delete", "namespace", elsewhere, "--wait=false"]);
  });
});

describe("what it costs", () => {
  test("a quiet held resource: renewals, and not one write of the controller", async () => {
    await apply({ lease: { durationSeconds: 3, renewIntervalSeconds: 1 } });
    await ready();
    const orders = actor();
    await orders.grant(alice);
    await shown(alice);
    await expect.poll(reasons, eventually).toContain("TokenGranted");
    using writes = countWrites();
    for (let round = 0; round < 5; round += 1) {
      const { resourceVersion } = (await orders.renew()).view;
      await expect
        .poll(
          () => controller.leases.get({ namespace, name: leaseName("orders") })?.metadata.resourceVersion,
          eventually,
        )
        .toBe(resourceVersion);
    }
    expect(writes.hits).toBe(0);
  });

  test("1,000 unchanged resources at a start: 0 writes", { timeout: 300_000 }, async () => {
    const count = 1000;
    const names = Array.from({ length: count }, (_, index) => `r${index}`);
    await lab.apply(...names.map((name) => resource(namespace, name)));
    const readyOnes = async () =>
      (
        await lab.kubectl([
          "get",
          "fr",
          "-n",
          namespace,
          '-o=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}',
        ])
      )
        .split(" ")
        .filter((status) => status === "True").length;
    await expect.poll(readyOnes, { timeout: 200_000, interval: 1000 }).toBe(count);
    await end();
    using writes = countWrites();
    begin();
    const looked = async () => {
      const { values } = await controller.metrics.reconcileDuration.get();
      return values.find(({ metricName }) => metricName?.endsWith("_count"))?.value ?? 0;
    };
    await expect.poll(looked, eventually).toBeGreaterThanOrEqual(count);
    expect(writes.hits).toBe(0);
  });
});
