import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { type Guarded, type Resource, startWorld, type World } from "./support.ts";

let world: World;
collectOnFailure(() => world.cluster);

beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
});

const soon = { timeout: 20_000, interval: 200 };
const stores = ["Status", "PostgreSQL"] as const;

/** Acquires and gives back. Returns the token. */
const turn = async (namespace: string, resource: Resource): Promise<bigint> => {
  const caller = await world.caller(namespace);
  const answer = await caller.acquire(resource, { waitMs: 20_000 });
  expect(answer).toMatchObject({ status: 200 });
  await caller.release(resource, heldBy(answer));
  return BigInt(String(answer.body["token"]));
};

const ceiling = async (resource: Resource): Promise<string | undefined> =>
  (
    await world.db.admin.query<{ ceiling: string }>(
      "select ceiling::text from fenceline.sequence where resource = $1",
      [resource],
    )
  ).rows[0]?.ceiling;

const removeAll = async ({ namespace }: Guarded) => {
  await world.cluster.kubectl(["delete", "fr/orders", "-n", namespace]);
  await world.cluster.kubectl(["delete", "lease/fenceline-orders", "-n", namespace, "--ignore-not-found"]);
};

describe("tokens kept in PostgreSQL", { timeout: 150_000 }, () => {
  it("S1-18 come from its rows, in order, across a crash of the controller and of the server", async () => {
    const { resource, namespace } = await world.guarded({ tokens: { store: "PostgreSQL", reserve: 2 } });
    const tokens: bigint[] = [];
    for (let round = 0; round < 3; round += 1) tokens.push(await turn(namespace, resource));
    expect(await ceiling(resource)).toBe("4");
    await Promise.all([world.crash(), world.server.restart("immediate")]);
    await world.reconnect();
    await world.ready(resource);
    for (let round = 0; round < 2; round += 1) tokens.push(await turn(namespace, resource));
    expect(tokens).toEqual(tokens.toSorted((a, b) => Number(a - b)));
    expect(new Set(tokens).size).toBe(tokens.length);
    expect(Number(await ceiling(resource))).toBeGreaterThanOrEqual(5);
  });

  it.for(stores)(
    "FM-28 %s: all that Kubernetes knows is deleted, and the next token is above the last",
    async (store) => {
      const guarded = await world.guarded({ tokens: { store, reserve: 4 } });
      const { resource, namespace } = guarded;
      const last = await turn(namespace, resource);
      await removeAll(guarded);
      await world.declare(guarded, { tokens: { store, reserve: 4 } });
      await world.ready(resource);
      const next = await turn(namespace, resource);
      expect(next).toBeGreaterThan(last);
    },
  );

  it("FM-28 the row is deleted as well: the boundary tells how far it went", async () => {
    const tokens = { store: "PostgreSQL", reserve: 4 };
    const guarded = await world.guarded({ tokens });
    const { resource, namespace } = guarded;
    await turn(namespace, resource);
    const last = await turn(namespace, resource);
    await removeAll(guarded);
    await world.db.admin.query("delete from fenceline.sequence where resource = $1", [resource]);
    await world.declare(guarded, { tokens });
    await world.ready(resource);
    expect(await turn(namespace, resource)).toBeGreaterThan(last);
  });

  it("FM-30 FM-31 rows that went back are raised above the Lease before anything is granted", async () => {
    const { resource, namespace } = await world.guarded({ tokens: { store: "PostgreSQL", reserve: 1 } });
    for (let round = 0; round < 4; round += 1) await turn(namespace, resource);
    await world.db.admin.query("update fenceline.sequence set ceiling = base where resource = $1", [
      resource,
    ]);
    expect(await turn(namespace, resource)).toBeGreaterThan(4n);
    await expect
      .poll(async () => Number(await ceiling(resource)), { ...soon, timeout: 45_000 })
      .toBeGreaterThan(4);
  });

  it("FM-38 the last token is exact everywhere, then there is none", async () => {
    const last = "9223372036854775807";
    const guarded = await world.guarded({
      tokens: { store: "PostgreSQL", reserve: 64, floor: "9223372036854775806" },
    });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    const held = await caller.acquire(resource);
    expect(held).toMatchObject({ status: 200, body: { token: last } });
    expect(await world.write(guarded, last, "last")).toBe("00000");
    expect(await ceiling(resource)).toBe(last);
    await caller.release(resource, heldBy(held));
    expect(await caller.acquire(resource)).toMatchObject({
      status: 409,
      body: { code: "tokens_exhausted" },
    });
    await expect
      .poll(() => world.condition(resource, "TokensConsistent"), soon)
      .toMatchObject({ status: "False", reason: "TokensExhausted" });
  });

  it("FM-40 rows that another cluster issues from are refused, and it is named", async () => {
    const guarded = await world.table();
    await world.db.admin.query("select fenceline.sequence_open($1, 7, 'another-cluster')", [
      guarded.resource,
    ]);
    await world.guard(guarded);
    await world.declare(guarded, { tokens: { store: "PostgreSQL" } });
    await expect
      .poll(() => world.condition(guarded.resource, "TokensConsistent"), soon)
      .toMatchObject({
        status: "False",
        reason: "IssuerMismatch",
        message: expect.stringContaining("another-cluster"),
      });
    const caller = await world.caller(guarded.namespace);
    expect((await caller.acquire(guarded.resource)).status).not.toBe(200);
  });
});
