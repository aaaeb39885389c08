import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { audience } from "../../../src/api/names.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Caller, heldBy, makeCaller, pathOf } from "../../support/fenceline/caller.ts";
import { type Controller, install, startController } from "../../support/fenceline/install.ts";
import { callerFor, leaseOf, readyResource } from "./support.ts";

/** Of its own: controllers elect one leader per cluster, and these are killed. */
let cluster: Lab;
collectOnFailure(() => cluster);
let controller: Controller;
let resource: `${string}/${string}`;
let worker: Caller;

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  controller = await startController(cluster);
  resource = await readyResource(cluster);
  worker = await callerFor(cluster, controller, resource);
});
afterAll(async () => {
  await worker?.close();
  await controller?.kill();
  await cluster?.[Symbol.asyncDispose]();
});

const bearerFor = (sa: string, more: object = {}) =>
  cluster.token({ namespace: resource.split("/")[0] ?? "", sa, audience, ...more });

const asCaller = (bearer: string) =>
  makeCaller({ server: controller.server, caFile: controller.caFile, bearer });

describe("the life of a right", () => {
  it("S1-03 S1-18 S2-05 grants, renews, releases, and grants the next one a higher token", async () => {
    const mine = await readyResource(cluster);
    const caller = await callerFor(cluster, controller, mine);
    const first = await caller.acquire(mine, { label: "first" });
    expect(first).toMatchObject({
      status: 200,
      body: { resource: mine, token: "1", guarantee: "Advisory", advanced: false, leaseDurationMs: 15_000 },
    });
    expect(first.body["holder"]).toMatch(/^user:[0-9a-f]{32}\/[0-9a-f-]{36}$/);
    expect(await caller.renew(mine, heldBy(first))).toMatchObject({
      status: 200,
      body: { leaseDurationMs: 15_000, renewAfterMs: 5_000 },
    });
    expect(await caller.acquire(mine)).toMatchObject({
      status: 409,
      body: { code: "busy", holder: first.body["holder"], aheadOnThisReplica: 0 },
    });
    expect(await caller.release(mine, heldBy(first))).toMatchObject({
      status: 200,
      body: { released: true },
    });
    expect(await caller.release(mine, heldBy(first))).toMatchObject({
      status: 200,
      body: { released: false, reason: "released" },
    });
    const second = await caller.acquire(mine, { waitMs: 10_000 });
    expect(second).toMatchObject({ status: 200, body: { token: "2" } });
    await caller.close();
  });

  it("gives the same grant to the same attempt, and none to one that has ended", async () => {
    const mine = await readyResource(cluster);
    const caller = await callerFor(cluster, controller, mine);
    const attempt = randomUUID();
    const first = await caller.acquire(mine, { attempt });
    const repeated = await caller.acquire(mine, { attempt });
    expect(repeated.body).toEqual(first.body);
    await caller.release(mine, heldBy(first));
    expect(await caller.acquire(mine, { attempt })).toMatchObject({
      status: 409,
      body: { code: "lost", reason: "released" },
    });
    await caller.close();
  });

  it("keeps an attempt to the identity that made it", async () => {
    const mine = await readyResource(cluster);
    const [alice, bob] = [
      await callerFor(cluster, controller, mine, "alice"),
      await callerFor(cluster, controller, mine, "bob"),
    ];
    const held = heldBy(await alice.acquire(mine));
    for (const answer of [
      await bob.acquire(mine, { attempt: held.attempt }),
      await bob.renew(mine, held),
      await bob.release(mine, held),
    ])
      expect(answer).toMatchObject({ status: 403, body: { code: "forbidden" } });
    expect(await alice.renew(mine, held)).toMatchObject({ status: 200 });
    await Promise.all([alice.close(), bob.close()]);
  });

  it("S1-42 S1-46 writes what other tools read, with the names of the contract", async () => {
    const mine = await readyResource(cluster, { lease: { durationSeconds: 30 } });
    const caller = await callerFor(cluster, controller, mine);
    const held = await caller.acquire(mine, { label: "import job" });
    const granted = await leaseOf(cluster, mine);
    expect(granted.spec).toMatchObject({
      holderIdentity: held.body["holder"],
      leaseDurationSeconds: 15,
      leaseTransitions: 1,
    });
    expect(granted.metadata.annotations).toMatchObject({
      "fenceline.dev/token": "1",
      "fenceline.dev/token-ceiling": "64",
      "fenceline.dev/credit-uid": granted.metadata.uid,
      "fenceline.dev/format": "1",
      "fenceline.dev/holder-label": "import job",
    });
    await caller.renew(mine, heldBy(held));
    expect((await leaseOf(cluster, mine)).spec).toMatchObject({ leaseDurationSeconds: 30 });
    await caller.close();
  });

  it("takes away by force, for those who may, and says so to the holder", async () => {
    const mine = await readyResource(cluster);
    const caller = await callerFor(cluster, controller, mine);
    const held = heldBy(await caller.acquire(mine));
    const forced = (who: Caller) => who.post(`${pathOf(mine)}/force-release`, { reason: "stuck since noon" });
    expect(await forced(caller)).toMatchObject({ status: 403, body: { code: "forbidden" } });
    const [namespace = ""] = mine.split("/");
    await cluster.apply({
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { name: "operator", namespace },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "fenceline-admin" },
      subjects: [{ kind: "ServiceAccount", name: "operator", namespace }],
    });
    const operator = await callerFor(cluster, controller, mine, "operator");
    expect(await forced(operator)).toMatchObject({
      status: 200,
      body: { released: true, token: held.token },
    });
    expect(await caller.renew(mine, held)).toMatchObject({
      status: 409,
      body: { code: "lost", reason: "forced" },
    });
    expect(await forced(operator)).toMatchObject({ status: 200, body: { released: false } });
    await Promise.all([caller.close(), operator.close()]);
  });

  it("answers many renewals in one call, each by itself", async () => {
    const mine = await readyResource(cluster);
    const caller = await callerFor(cluster, controller, mine);
    const held = heldBy(await caller.acquire(mine));
    const renewals = [
      { resource: mine, ...held },
      { resource: mine, attempt: randomUUID(), token: "1" },
      { resource: "kube-system/other", ...held },
    ];
    const { body } = await caller.post("/v1/renewals", { renewals });
    expect(body["results"]).toMatchObject([
      { attempt: held.attempt, renewed: { leaseDurationMs: 15_000 } },
      { problem: { code: "lost", reason: "superseded" } },
      { problem: { code: "forbidden" } },
    ]);
    await caller.close();
  });

  it("S1-21 tells the state, with the five items of an acquisition record", async () => {
    const mine = await readyResource(cluster);
    const caller = await callerFor(cluster, controller, mine);
    const held = await caller.acquire(mine);
    expect(await caller.get(pathOf(mine))).toMatchObject({
      status: 200,
      body: {
        resource: mine,
        highestToken: "1",
        holder: held.body["holder"],
        leaseExpiry: expect.stringMatching(/^\d{4}-.*Z$/),
        updated: expect.stringMatching(/^\d{4}-.*Z$/),
        expired: false,
      },
    });
    await caller.close();
  });
});

describe("who may not come in", () => {
  const ask = (bearer: string) => asCaller(bearer).acquire(resource);

  it("refuses a bearer for another audience, one that nobody issued, and one that is too long", async () => {
    const [namespace = ""] = resource.split("/");
    const foreign = await cluster.token({ namespace, sa: "worker" });
    for (const bearer of [foreign, "made-up", "x".repeat(9000)])
      expect(await ask(bearer)).toMatchObject({ status: 401, body: { code: "unauthenticated" } });
  });

  it("refuses who has no right to the verb, and tells which", async () => {
    expect(await ask(await bearerFor("stranger"))).toMatchObject({
      status: 403,
      body: {
        code: "forbidden",
        detail: expect.stringContaining(`may not acquire fencedresources.fenceline.dev ${resource}`),
      },
    });
  });
});

describe("bad input gets one clear line, and changes nothing", () => {
  const path = () => `${pathOf(resource)}/acquire`;
  const attempt = randomUUID();
  const json = (value: unknown) => ({ raw: JSON.stringify(value) });

  it.each([
    ["no JSON", { raw: "{" }, "invalid_request", "body"],
    ["an empty body", { raw: "" }, "invalid_request", "body"],
    ["a list", json([]), "invalid_request", "body"],
    [
      "another type",
      { raw: "a=b", headers: { "content-type": "application/x-www-form-urlencoded" } },
      "invalid_request",
      "body",
    ],
    ["no attempt", json({}), "invalid_request", "attempt"],
    ["an attempt that is no UUID", json({ attempt: "1" }), "invalid_request", "attempt"],
    ["an unknown field", json({ attempt, wait: 1 }), "invalid_request", "wait"],
    ["a token that a caller proposes (S1-25)", json({ attempt, token: "42" }), "invalid_request", "token"],
    ["a wait that is too long", json({ attempt, waitMs: 30_001 }), "invalid_request", "waitMs"],
    ["a wait that is no number", json({ attempt, waitMs: "5" }), "invalid_request", "waitMs"],
    ["control characters in a label", json({ attempt, label: "a\u001b[31mb" }), "invalid_request", "label"],
    ["a label that is too long", json({ attempt, label: "x".repeat(129) }), "invalid_request", "label"],
  ])("%s", async (_case, more, code, field) => {
    const before = await leaseOf(cluster, resource);
    const answer = await worker.post(path(), undefined, more);
    expect(answer).toMatchObject({ status: 400, body: { code, field } });
    expect(String(answer.body["detail"])).not.toMatch(/\p{C}/u);
    expect(answer.headers["content-type"]).toMatch(/^application\/problem\+json/);
    expect((await leaseOf(cluster, resource)).metadata.resourceVersion).toBe(before.metadata.resourceVersion);
  });

  it("a body that is too large", async () => {
    const answer = await worker.post(path(), { attempt, label: "x".repeat(40_000) });
    expect(answer).toMatchObject({ status: 413, body: { code: "payload_too_large" } });
  });

  it.each(["0", "-1", "042", "1e3", "9223372036854775808", "", "４２"])(
    "FM-38 the malformed token %j",
    async (token) => {
      const answer = await worker.post(`${pathOf(resource)}/renew`, { attempt, token });
      expect(answer).toMatchObject({ status: 400, body: { code: "invalid_request", field: "token" } });
    },
  );

  it("FM-38 a number where a decimal string belongs, so that nothing is ever rounded", async () => {
    const answer = await worker.post(`${pathOf(resource)}/renew`, undefined, {
      raw: `{"attempt":"${attempt}","token":9007199254740993}`,
    });
    expect(answer).toMatchObject({ status: 400, body: { code: "invalid_request", field: "token" } });
  });

  it.each([
    ["a resource that is not there", "nope", 404, "unknown_resource"],
    ["a name of 254 characters", "x".repeat(254), 400, "invalid_request"],
    ["a name in capitals", "Orders", 400, "invalid_request"],
    ["a path that tries to leave", "..%2F..%2Fsecrets", 400, "invalid_request"],
  ])("%s", async (_case, name, status, code) => {
    const [namespace = ""] = resource.split("/");
    const answer = await worker.post(`/v1/namespaces/${namespace}/resources/${name}/acquire`, { attempt });
    expect(answer).toMatchObject({ status, body: { code } });
  });

  it("another path, another method", async () => {
    expect(await worker.get("/v2")).toMatchObject({ status: 400, body: { code: "invalid_request" } });
    expect(await worker.get(path())).toMatchObject({ status: 400, body: { code: "invalid_request" } });
  });
});

it("serves a certificate that a Secret holds, with the rights that its role gives", async () => {
  const other = await startController(cluster, { replica: "secret", secret: "fenceline-tls" });
  const caller = await callerFor(cluster, other, resource);
  expect(await caller.get(pathOf(resource))).toMatchObject({ status: 200, body: { resource } });
  await caller.close();
  await other.kill();
});

describe("health and metrics", () => {
  it("is ready, and every metric of the contract is there from the start", async () => {
    expect(await (await fetch(`${controller.ops}/readyz`)).text()).toContain("[+] leases");
    const text = await (await fetch(`${controller.ops}/metrics`)).text();
    for (const series of [
      'fenceline_acquire_total{outcome="busy"}',
      'fenceline_renew_total{outcome="lost"}',
      'fenceline_lease_lost_total{reason="superseded"}',
      'fenceline_stale_rejections_total{boundary="PostgreSQL"} 0',
      "fenceline_token_gaps_total",
      'fenceline_kube_requests_total{verb="update",resource="leases",code="200"}',
    ])
      expect(text).toContain(series);
  });

  it("S1-57 S1-58 logs resource and trace, and no bearer", async () => {
    const bearer = await bearerFor("worker");
    await asCaller(bearer).acquire(resource);
    expect(controller.log.join("\n")).not.toContain(bearer);
    expect(controller.log.join("\n")).not.toMatch(/eyJ[\w-]{20,}\./);
  });
});
