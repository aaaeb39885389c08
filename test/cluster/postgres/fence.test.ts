import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { startTcpProxy } from "../../support/faultproxy/tcp.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { stateOf } from "../../support/postgres/world.ts";
import { leading, startWorld, type World } from "./support.ts";

let world: World;
collectOnFailure(() => world.cluster);

beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
});

const soon = { timeout: 20_000, interval: 200 };
const stale = 'fenceline_stale_rejections_total{boundary="PostgreSQL"}';
const missing = 'fenceline_missing_token_rejections_total{boundary="PostgreSQL"}';

describe("a resource behind PostgreSQL", () => {
  it("S1-04 S1-13 S1-14 is Fenced once a refusal was seen, and refuses the old holder from the grant on", async () => {
    const guarded = await world.guarded();
    const { resource, namespace } = guarded;
    await expect.poll(() => world.status(resource), soon).toMatchObject({ guarantee: "Fenced" });
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource, { label: "alice" });
    expect(a).toMatchObject({ status: 200, body: { token: "1", guarantee: "Fenced", advanced: true } });
    expect(await world.write(guarded, "1", "alice")).toBe("00000");
    expect(await world.write(guarded, undefined, "nobody")).toBe("FNC02");
    const before = await world.metric(leading(world), stale);
    await caller.release(resource, heldBy(a));
    const b = await caller.acquire(resource, { label: "bob", waitMs: 10_000 });
    expect(b).toMatchObject({ status: 200, body: { token: "2", advanced: true } });
    // Before B wrote anything.
    expect(await world.write(guarded, "1", "alice again")).toBe("FNC01");
    expect(await world.write(guarded, "2", "bob")).toBe("00000");
    expect(await world.write(guarded, "3", "nobody's")).toBe("FNC04");
    expect(await world.value(guarded)).toBe("bob");
    await expect
      .poll(() => world.events(resource), soon)
      .toContainEqual(expect.stringMatching(/^StaleWriteRejected: .*1 write with an old token/));
    expect(await world.metric(leading(world), stale)).toBe(before + 1);
    expect(await world.metric(leading(world), missing)).toBeGreaterThan(0);
    const time = expect.stringMatching(/^\d{4}-.*Z$/);
    await expect
      .poll(async () => (await world.status(resource)).boundary, soon)
      .toEqual({ grantedMark: "2", verifiedTime: time, refusedStaleTime: time });
  });

  it("FM-01 FM-12 S1-16 a paused holder wakes, renews and writes: lost, and refused", async () => {
    const guarded = await world.guarded({ durationSeconds: 3 });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource, { label: "alice" });
    expect(a.body["token"]).toBe("1");
    // Alice looked, found that she holds it, and says nothing any more.
    const b = await caller.acquire(resource, { label: "bob", waitMs: 20_000 });
    expect(b.body["token"]).toBe("2");
    expect(await world.write(guarded, "2", "bob")).toBe("00000");
    expect(await world.write(guarded, "1", "alice")).toBe("FNC01");
    expect(await caller.renew(resource, heldBy(a))).toMatchObject({
      status: 409,
      body: { code: "lost", reason: "superseded" },
    });
    expect(await caller.renew(resource, heldBy(b))).toMatchObject({ status: 200 });
    expect(await world.value(guarded)).toBe("bob");
    for (const reason of ["LeaseExpired", "OwnershipTransferred", "StaleWriteRejected"])
      await expect
        .poll(() => world.events(resource), soon)
        .toContainEqual(expect.stringContaining(`${reason}: `));
  });

  it("FM-02 a write that was long on its way arrives after the next holder's", async () => {
    const guarded = await world.guarded();
    const { resource, namespace, table } = guarded;
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource);
    await using proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: world.server.port } });
    const alice = await world.db.as("worker", proxy.port);
    using hole = proxy.halfOpen("up");
    const late = stateOf(
      alice.query(`update ${table} set v = 'alice' where (select fenceline.enter($1, $2))`, [resource, "1"]),
    );
    await caller.release(resource, heldBy(a));
    expect((await caller.acquire(resource, { waitMs: 10_000 })).body["token"]).toBe("2");
    expect(await world.write(guarded, "2", "bob")).toBe("00000");
    hole.heal();
    expect(await late).toBe("FNC01");
    expect(await world.value(guarded)).toBe("bob");
  });

  it.for(["read committed", "repeatable read", "serializable"])(
    "FM-23 a holder stopped inside its transaction (%s) is ended after the limit",
    async (level) => {
      const guarded = await world.guarded();
      const { resource, namespace, table } = guarded;
      const caller = await world.caller(namespace);
      const a = await caller.acquire(resource);
      const alice = await world.db.as("worker");
      await alice.query(`begin isolation level ${level}`);
      await alice.query("select fenceline.enter($1, 1)", [resource]);
      await alice.query(`update ${table} set v = 'alice'`);
      const before = await world.metric(leading(world), "fenceline_evictions_total");
      await caller.release(resource, heldBy(a));
      const b = await caller.acquire(resource, { waitMs: 10_000 });
      expect(b).toMatchObject({ status: 200, body: { token: "2", advanced: true } });
      expect(await world.write(guarded, "2", "bob")).toBe("00000");
      await expect(alice.query("commit")).rejects.toThrow(/terminat|not queryable|connection/i);
      expect(await world.value(guarded)).toBe("bob");
      expect(await world.metric(leading(world), "fenceline_evictions_total")).toBe(before + 1);
    },
  );

  it("FM-06 ten writes at once under one token: all of them, or one", async () => {
    const [hold, once] = [await world.guarded(), await world.guarded({ mode: "Once" })];
    const results = async (guarded: typeof hold) => {
      const caller = await world.caller(guarded.namespace);
      const { token } = (await caller.acquire(guarded.resource)).body;
      const writes = Array.from({ length: 10 }, (_, index) =>
        world.write(guarded, String(token), `${index}`),
      );
      return (await Promise.all(writes)).toSorted();
    };
    expect(await results(hold)).toEqual(Array.from({ length: 10 }, () => "00000"));
    expect(await results(once)).toEqual(["00000", ...Array.from({ length: 9 }, () => "FNC08")]);
  });

  it("FM-29 a mark above every token raises the sequence, and the next token is above it", async () => {
    const guarded = await world.guarded();
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    await caller.release(resource, heldBy(await caller.acquire(resource)));
    const [{ issuer }] = (
      await world.db.admin.query<{ issuer: string }>(
        "select issuer from fenceline.mark where resource = $1",
        [resource],
      )
    ).rows as [{ issuer: string }];
    await world.db.admin.query("select fenceline.advance($1, 4242, 'user:gone/1', $2)", [resource, issuer]);
    const next = await caller.acquire(resource, { waitMs: 10_000 });
    expect(next.status).toBe(200);
    expect(Number(next.body["token"])).toBeGreaterThan(4242);
    expect(await world.write(guarded, String(next.body["token"]), "next")).toBe("00000");
  });
});
