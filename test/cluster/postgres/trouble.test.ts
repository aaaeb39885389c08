/** What is found at an interval: all at once, so that one interval is waited for. */
import { afterAll, beforeAll, describe, it } from "vitest";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { fencedBy, mayRead, secretOf, startWorld, type World } from "./support.ts";

let world: World;
collectOnFailure(() => world.cluster);

beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
});

const soon = { timeout: 60_000, interval: 500 };
const interval = { timeout: 90_000, interval: 500 };
const fenced = { status: "True", reason: "Guarded" };

/** One after the other: two at once would meet at the event trigger. */
const dropTrigger = (table: string) =>
  world.db.admin.query(`set session_replication_role = 'replica';
    alter event trigger fenceline_drop disable;
    drop trigger fenceline_statement on ${table};
    alter event trigger fenceline_drop enable always;
    set session_replication_role = 'origin'`);

describe.concurrent("the guarantee", { timeout: 150_000 }, () => {
  it("FM-07 falls within an interval after a trigger was dropped, with an event", async ({ expect }) => {
    const { resource, table } = await world.guarded();
    await expect.poll(() => world.status(resource), soon).toMatchObject({ guarantee: "Fenced" });
    await dropTrigger(table);
    await expect.poll(() => world.status(resource), interval).toMatchObject({ guarantee: "Advisory" });
    expect(await world.condition(resource, "BoundaryGuarded")).toMatchObject({
      status: "False",
      reason: "BoundaryOpen",
      message: expect.stringContaining(`${table}: trigger fenceline_statement is missing: select`),
    });
    await expect
      .poll(() => world.events(resource), soon)
      .toContainEqual(
        expect.stringMatching(
          /^GuaranteeChanged: the guarantee is Advisory: reduces overlap, does not exclude it; .*missing/,
        ),
      );
  });

  it("is never Fenced for a worker that owns the table", async ({ expect }) => {
    const guarded = await world.table();
    await world.sql(`do $$ begin create role cuckoo login; end $$;
      grant fenceline_worker to cuckoo; alter table ${guarded.table} owner to cuckoo`);
    await world.guard(guarded);
    await world.declare(guarded);
    await expect
      .poll(() => world.condition(guarded.resource, "BoundaryGuarded"), soon)
      .toMatchObject({ reason: "BoundaryOpen", message: expect.stringContaining("worker cuckoo") });
    expect((await world.status(guarded.resource)).guarantee).toBe("Advisory");
  });

  it("manage: true installs the guard, and mends it", async ({ expect }) => {
    const guarded = await world.table();
    const { resource, namespace, table } = guarded;
    await world.cluster.apply(
      secretOf(namespace, "db", world.server.url("issuer", world.db.name)),
      secretOf(namespace, "owner", world.server.url("postgres", world.db.name)),
      ...mayRead(namespace, "db", "owner"),
      fencedBy(guarded, {}, { manage: true, adminSecretRef: { name: "owner", key: "url" } }),
    );
    await expect.poll(() => world.status(resource), soon).toMatchObject({ guarantee: "Fenced" });
    expect(await world.write(guarded, undefined, "nobody")).toBe("FNC02");
    await dropTrigger(table);
    expect(await world.write(guarded, undefined, "nobody")).toBe("00000");
    await expect.poll(() => world.write(guarded, undefined, "nobody"), interval).toBe("FNC02");
    await expect
      .poll(() => world.events(resource), soon)
      .toContainEqual(expect.stringMatching(/^GuaranteeChanged: the guard stood open and was mended: /));
  });

  it("waits for the Role that the condition names", async ({ expect }) => {
    const guarded = await world.table();
    const { resource, namespace } = guarded;
    await world.guard(guarded);
    await world.cluster.apply(
      secretOf(namespace, "db", world.server.url("issuer", world.db.name)),
      fencedBy(guarded, {}),
    );
    await expect
      .poll(() => world.condition(resource, "BoundaryGuarded"), soon)
      .toMatchObject({
        status: "False",
        reason: "SecretForbidden",
        message: expect.stringContaining(
          `kubectl create role fenceline-database -n ${namespace} --verb=get --resource=secrets --resource-name=db`,
        ),
      });
    const caller = await world.caller(namespace);
    expect(await caller.acquire(resource)).toMatchObject({ status: 503, body: { code: "not_ready" } });
    await world.cluster.apply(...mayRead(namespace, "db"));
    await expect.poll(() => world.condition(resource, "BoundaryGuarded"), interval).toMatchObject(fenced);
  });

  it("another login for the same database: bound anew, and the holder keeps its token", async ({
    expect,
  }) => {
    const guarded = await world.guarded({ durationSeconds: 120 });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource);
    const hash = () =>
      world.cluster.kubectl([
        "get",
        "lease/fenceline-orders",
        "-n",
        namespace,
        "-o",
        "jsonpath={.metadata.annotations.fenceline\\.dev/boundary}",
      ]);
    const before = await hash();
    await caller.renew(resource, heldBy(a));
    await world.cluster.apply(
      secretOf(namespace, "db", world.server.url("issuer", world.db.name, "another-password")),
    );
    await expect.poll(hash, interval).not.toBe(before);
    expect(await caller.renew(resource, heldBy(a))).toMatchObject({ status: 200 });
    expect(await world.write(guarded, "1", "alice")).toBe("00000");
    await caller.release(resource, heldBy(a));
    expect(await caller.acquire(resource, { waitMs: 10_000 })).toMatchObject({ body: { token: "2" } });
  });

  it("FM-40 a guard for which another cluster issues is left alone, and that one is named", async ({
    expect,
  }) => {
    const guarded = await world.table();
    const { resource, namespace } = guarded;
    await world.guard(guarded);
    await world.sql("select fenceline.advance($1, 7, 'user:there/1', 'another-cluster')", [resource]);
    await world.declare(guarded);
    const caller = await world.caller(namespace);
    await expect
      .poll(() => world.condition(resource, "BoundaryGuarded"), soon)
      .toMatchObject({
        status: "False",
        reason: "IssuerMismatch",
        message: expect.stringContaining("another-cluster"),
      });
    expect(await world.condition(resource, "Ready")).toMatchObject({ status: "False" });
    expect((await caller.acquire(resource)).status).not.toBe(200);
    // Taken over by hand, on record: above both.
    const { issuer } = await world.status(resource);
    await world.sql("select fenceline.take_over($1, $2, 'moved')", [resource, issuer]);
    await expect
      .poll(async () => Number((await caller.acquire(resource)).body["token"]), interval)
      .toBeGreaterThan(7);
  });

  it("S1-33 S1-36 without a boundary, or with one that learns late, overlap is only reduced", async ({
    expect,
  }) => {
    const late = await world.guarded({ advance: "OnFirstWrite" });
    expect((await world.status(late.resource)).guarantee).toBe("Advisory");
    const caller = await world.caller(late.namespace);
    expect(await caller.acquire(late.resource)).toMatchObject({
      body: { token: "1", guarantee: "Advisory", advanced: false },
    });
    const namespace = await world.cluster.namespace("shop");
    await world.cluster.apply({
      apiVersion: "fenceline.dev/v1alpha1",
      kind: "FencedResource",
      metadata: { name: "orders", namespace },
      spec: {},
    });
    const resource = `${namespace}/orders` as const;
    await world.ready(resource);
    expect((await world.condition(resource, "Ready"))?.message).toContain(
      "Advisory: reduces overlap, does not exclude it",
    );
    expect((await world.status(resource)).guarantee).toBe("Advisory");
  });
});
