/** The hostile cases of the protocol, by real coordinator processes on the real API server. */
import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import type { HttpProxy } from "../../support/faultproxy/http.ts";
import { type Answer, type Caller, heldBy } from "../../support/fenceline/caller.ts";
import { type Controller, install, killAll } from "../../support/fenceline/install.ts";
import { behindProxy, callerFor, leaseOf, readyResource } from "./support.ts";

/** Of its own: controllers elect one leader per cluster, and these are killed. */
let cluster: Lab;
collectOnFailure(() => cluster);
const short = { lease: { durationSeconds: 3, renewIntervalSeconds: 1 } };

interface Replica {
  proxy: HttpProxy;
  controller: Controller;
}
let replicas: Replica[] = [];
let callers: Caller[] = [];

/** Replicas of a test's own: each may be killed or cut off. */
const start = async (name: string): Promise<Replica> => {
  const replica = await behindProxy(cluster, name);
  replicas.push(replica);
  return replica;
};

const call = async (replica: Replica, resource: string, sa = "worker"): Promise<Caller> => {
  const caller = await callerFor(cluster, replica.controller, resource, sa);
  callers.push(caller);
  return caller;
};

const tokenOf = ({ body }: Answer): bigint => BigInt(String(body["token"]));

/** The Lease write of `resource`, and nobody else's. */
const leaseWrite = (resource: string) => {
  const [namespace = "", name] = resource.split("/");
  return { verb: "update", resource: "leases", namespace, name: `fenceline-${name}` } as const;
};

let a: Replica;
let b: Replica;

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
});
beforeEach(async () => {
  [a, b] = await Promise.all([start("faults-a"), start("faults-b")]);
});
afterEach(async () => {
  await Promise.all(callers.map((caller) => caller.close()));
  for (const { proxy } of replicas) proxy.heal();
  await killAll(
    cluster,
    replicas.map(({ controller }) => controller),
  );
  await Promise.all(replicas.map(({ proxy }) => proxy[Symbol.asyncDispose]()));
  replicas = [];
  callers = [];
});
afterAll(() => cluster?.[Symbol.asyncDispose]());

describe("renewals and releases that come late", () => {
  it("FM-03 S1-38 S1-39 change nothing, in both orders, and say why", async () => {
    const resource = await readyResource(cluster, short);
    const [old, next] = [await call(a, resource, "alice"), await call(b, resource, "bob")];
    const lost = heldBy(await old.acquire(resource));
    const granted = await next.acquire(resource, { waitMs: 30_000 });
    expect(granted.status).toBe(200);
    const before = await leaseOf(cluster, resource);
    const renew = async () =>
      expect(await old.renew(resource, lost)).toMatchObject({
        status: 409,
        body: { code: "lost", reason: "superseded" },
      });
    const release = async () =>
      expect(await old.release(resource, lost)).toMatchObject({
        status: 200,
        body: { released: false, reason: "superseded" },
      });
    for (const late of [renew, release, renew, release, renew, release]) await late();
    for (const late of [release, renew, release, renew, release, renew]) await late();
    const after = await leaseOf(cluster, resource);
    expect(after.metadata.resourceVersion).toBe(before.metadata.resourceVersion);
    expect(await next.renew(resource, heldBy(granted))).toMatchObject({ status: 200 });
  });

  it("FM-12 S1-37 a renewal that hangs on its way lands after the takeover, and changes nothing", async () => {
    const resource = await readyResource(cluster, short);
    const [old, next] = [await call(a, resource, "alice"), await call(b, resource, "bob")];
    const lost = heldBy(await old.acquire(resource));
    const gate = a.proxy.hold(leaseWrite(resource));
    const late = old.renew(resource, lost);
    await gate.arrived(1);
    const granted = await next.acquire(resource, { waitMs: 30_000 });
    expect(tokenOf(granted)).toBeGreaterThan(BigInt(lost.token));
    const before = await leaseOf(cluster, resource);
    gate.heal();
    expect(await late).toMatchObject({ status: 409, body: { code: "lost", reason: "superseded" } });
    expect((await leaseOf(cluster, resource)).metadata).toMatchObject({
      uid: before.metadata.uid,
      resourceVersion: before.metadata.resourceVersion,
    });
    expect(await next.renew(resource, heldBy(granted))).toMatchObject({ status: 200 });
  });
});

describe("answers that get lost", () => {
  it("the grant was applied: the re-read finds it, and the token in the Lease is the one answered", async () => {
    const resource = await readyResource(cluster);
    const caller = await call(a, resource);
    const lost = a.proxy.loseAnswer(leaseWrite(resource), { times: 1 });
    const granted = await caller.acquire(resource);
    expect(lost.hits).toBe(1);
    expect(granted.status).toBe(200);
    expect((await leaseOf(cluster, resource)).metadata.annotations["fenceline.dev/token"]).toBe(
      granted.body["token"],
    );
  });

  it("the renewal was applied: still held, with the same token", async () => {
    const resource = await readyResource(cluster);
    const caller = await call(a, resource);
    const held = heldBy(await caller.acquire(resource));
    const lost = a.proxy.loseAnswer(leaseWrite(resource), { times: 1 });
    expect(await caller.renew(resource, held)).toMatchObject({ status: 200 });
    expect(lost.hits).toBe(1);
  });

  it("the release was applied: said to be done, by the call that did it", async () => {
    const resource = await readyResource(cluster);
    const caller = await call(a, resource);
    const held = heldBy(await caller.acquire(resource));
    a.proxy.loseAnswer(leaseWrite(resource), { times: 1 });
    expect(await caller.release(resource, held)).toMatchObject({ status: 200, body: { released: true } });
    expect((await leaseOf(cluster, resource)).spec.holderIdentity ?? "").toBe("");
  });
});

describe("a coordinator that dies", () => {
  const kill = async (replica: Replica) => {
    await replica.controller.kill();
  };

  it("FM-04 S1-22 after the tokens were reserved: they are a gap, and appear nowhere as a right", async () => {
    const resource = await readyResource(cluster);
    const caller = await call(a, resource);
    const gate = a.proxy.hold(leaseWrite(resource));
    const never = caller.acquire(resource).catch(() => undefined);
    await gate.arrived(1);
    const drop = a.proxy.drop(leaseWrite(resource));
    await kill(a);
    gate.heal();
    await never;
    drop.heal();
    const before = await leaseOf(cluster, resource);
    const next = await call(b, resource);
    const granted = await next.acquire(resource, { waitMs: 30_000 });
    expect(granted.status).toBe(200);
    // A write that is still under way may land before the next grant does: then its token is below.
    expect(tokenOf(granted)).toBeGreaterThan(
      BigInt(before.metadata.annotations["fenceline.dev/token"] ?? "0"),
    );
  });

  it("FM-05 after the Lease was written: the same attempt gets the same token from another replica", async () => {
    const resource = await readyResource(cluster);
    const caller = await call(a, resource, "alice");
    const attempt = randomUUID();
    const gate = a.proxy.hold(leaseWrite(resource), { at: "answer" });
    const never = caller.acquire(resource, { attempt }).catch(() => undefined);
    await gate.arrived(1);
    await kill(a);
    gate.heal();
    await never;
    const written = (await leaseOf(cluster, resource)).metadata.annotations["fenceline.dev/token"];
    const again = await (await call(b, resource, "alice")).acquire(resource, { attempt, waitMs: 10_000 });
    expect(again).toMatchObject({ status: 200, body: { token: written } });
  });

  it("FM-05 after the answer: the holder goes on with another replica, and nobody takes over because of it", async () => {
    const resource = await readyResource(cluster);
    const held = heldBy(await (await call(a, resource, "alice")).acquire(resource));
    await kill(a);
    const again = await call(b, resource, "alice");
    const rival = await call(b, resource, "bob");
    const rivals = rival.acquire(resource, { waitMs: 2_000 });
    expect(await again.renew(resource, held)).toMatchObject({ status: 200 });
    expect(await rivals).toMatchObject({ status: 409, body: { code: "busy" } });
    expect(await again.renew(resource, held)).toMatchObject({ status: 200 });
  });

  it("S1-06 S1-72 a dead holder's resource goes to who waits, and never before its lease has run out", async () => {
    const resource = await readyResource(cluster, short);
    const first = heldBy(await (await call(a, resource, "alice")).acquire(resource));
    const renewed = (await leaseOf(cluster, resource)).spec.renewTime ?? "";
    const granted = await (await call(b, resource, "bob")).acquire(resource, { waitMs: 30_000 });
    expect(tokenOf(granted)).toBeGreaterThan(BigInt(first.token));
    const taken = (await leaseOf(cluster, resource)).spec.acquireTime ?? "";
    expect(Date.parse(taken) - Date.parse(renewed)).toBeGreaterThanOrEqual(3_000);
  });
});

describe("two replicas", () => {
  it("FM-13 S1-17 S2-07 S2-35 race: one winner a round, tokens strictly grow over all of them", async () => {
    const resource = await readyResource(cluster);
    const rivals = [await call(a, resource, "alice"), await call(b, resource, "bob")];
    const rounds = process.env["FENCELINE_LONG"] === "1" ? 1_000 : 20;
    let last = 0n;
    for (let round = 0; round < rounds; round += 1) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, async (_, index) => {
          const rival = rivals[index % 2];
          if (rival === undefined) throw new Error("no rival");
          return { rival, answer: await rival.acquire(resource) };
        }),
      );
      const won = answers.filter(({ answer }) => answer.status === 200);
      // 16 of one identity may wait on a replica; who comes beyond them is sent away.
      expect(won.length).toBeLessThanOrEqual(1);
      const codes = new Set(answers.flatMap(({ answer }) => answer.body["code"] ?? []));
      expect([...codes].filter((code) => code !== "busy" && code !== "overloaded")).toEqual([]);
      for (const { rival, answer } of won) {
        expect(tokenOf(answer)).toBeGreaterThan(last);
        last = tokenOf(answer);
        await rival.release(resource, heldBy(answer));
      }
    }
    expect(last).toBeGreaterThan(0n);
  });

  it("hands a release over to the one that waits on the other replica", async () => {
    const resource = await readyResource(cluster);
    const held = heldBy(await (await call(a, resource, "alice")).acquire(resource));
    const waiting = (await call(b, resource, "bob")).acquire(resource, { waitMs: 20_000 });
    await expect
      .poll(
        async () => {
          const state = await (await call(b, resource, "bob")).get(
            `/v1/namespaces/${resource.replace("/", "/resources/")}`,
          );
          return Number(state.body["waiters"]);
        },
        { timeout: 10_000 },
      )
      .toBeGreaterThan(0);
    const alice = await call(a, resource, "alice");
    await alice.release(resource, held);
    expect(await waiting).toMatchObject({ status: 200 });
  });
});

describe("FM-25 a replica and the API server apart", () => {
  it("grants nothing, says so, is not ready, and takes nothing from a holder that went on meanwhile", async () => {
    const resource = await readyResource(cluster, short);
    const holder = await call(b, resource, "alice");
    const held = heldBy(await holder.acquire(resource));
    const cutOff = await call(a, resource, "bob");
    expect((await cutOff.acquire(resource)).status).toBe(409);
    const readiness = async () => {
      expect(await holder.renew(resource, held)).toMatchObject({ status: 200 });
      return (await fetch(`${a.controller.ops}/readyz`)).status;
    };
    const cut = a.proxy.wire.refuse();
    a.proxy.wire.cut();
    expect(await cutOff.acquire(resource, { waitMs: 20_000 })).toMatchObject({
      status: 503,
      body: { code: "store_unavailable" },
    });
    await expect.poll(readiness, { timeout: 40_000, interval: 500 }).toBe(503);
    cut.heal();
    await expect.poll(readiness, { timeout: 40_000, interval: 500 }).toBe(200);
    expect(await cutOff.acquire(resource)).toMatchObject({ status: 409, body: { code: "busy" } });
    expect(await holder.renew(resource, held)).toMatchObject({ status: 200 });
  });
});

describe("FM-27 a Lease deleted while it is held", () => {
  it("never comes back with a holder, tells the old one, and the next token is above all", async () => {
    const resource = await readyResource(cluster, short);
    const caller = await call(a, resource, "alice");
    const [namespace = ""] = resource.split("/");
    let highest = 0n;
    for (let round = 0; round < 3; round += 1) {
      const granted = await caller.acquire(resource, { waitMs: 30_000 });
      expect(tokenOf(granted)).toBeGreaterThan(highest);
      highest = tokenOf(granted);
      await cluster.kubectl(["delete", "lease", "fenceline-orders", "-n", namespace]);
      expect(await caller.renew(resource, heldBy(granted))).toMatchObject({
        status: 409,
        body: { code: "lost", reason: "deleted" },
      });
      await expect
        .poll(async () => (await leaseOf(cluster, resource)).spec.holderIdentity ?? "", { timeout: 10_000 })
        .toBe("");
    }
  });

  it("a grant that stalls over the deletion does not make a Lease with a holder", async () => {
    const resource = await readyResource(cluster);
    const [namespace = ""] = resource.split("/");
    const caller = await call(a, resource);
    const gate = a.proxy.hold(leaseWrite(resource));
    const stalled = caller.acquire(resource, { waitMs: 20_000 });
    await gate.arrived(1);
    const before = await leaseOf(cluster, resource);
    await cluster.kubectl(["delete", "lease", "fenceline-orders", "-n", namespace]);
    gate.heal();
    const granted = await stalled;
    const after = await leaseOf(cluster, resource);
    expect(after.metadata.uid).not.toBe(before.metadata.uid);
    expect(after.metadata.annotations["fenceline.dev/credit-uid"] ?? after.metadata.uid).toBe(
      after.metadata.uid,
    );
    expect(granted.status).toBe(200);
    expect(after.metadata.annotations["fenceline.dev/token"]).toBe(granted.body["token"]);
  });
});

it("FM-36 in part: a replica that is told to stop sends waiters away and serves renewals until the end", async () => {
  const resource = await readyResource(cluster);
  const holder = await call(a, resource, "alice");
  const held = heldBy(await holder.acquire(resource));
  const waiting = (await call(a, resource, "bob")).acquire(resource, { waitMs: 25_000 });
  await expect.poll(() => a.controller.log.length, { timeout: 5_000 }).toBeGreaterThan(0);
  const stopped = a.controller.stop();
  expect(await waiting).toMatchObject({ status: 503, headers: { "retry-after": "0" } });
  expect(await holder.renew(resource, held)).toMatchObject({ status: 200 });
  expect(await stopped).toBe(143);
  expect(await (await call(b, resource, "alice")).renew(resource, held)).toMatchObject({ status: 200 });
});
