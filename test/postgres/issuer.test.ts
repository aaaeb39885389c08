import { afterAll, beforeAll, expect, inject, test } from "vitest";
import type { Client } from "pg";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import {
  type FencedDatabase,
  fencedDatabase,
  issuerName,
  stateOf,
  transact,
} from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let issuer: Client;
let worker: Client;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  issuer = await db.as("issuer");
  worker = await db.as("worker");
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const advance = (
  resource: string,
  token: bigint | number,
  attempt: string | null = "pod:b/1",
  from: string | null = issuerName,
) =>
  stateOf(issuer.query("select fenceline.advance($1, $2, $3, $4)", [resource, String(token), attempt, from]));

const reserve = async (resource: string, count: number, atLeast = 0, from = issuerName) =>
  (await issuer.query("select * from fenceline.reserve($1, $2, $3, $4)", [resource, count, atLeast, from]))
    .rows;

test("advance is strict: above the mark, or exactly what stands there", async () => {
  const { resource } = await db.guarded();
  expect(await advance(resource, 42)).toBe("00000");
  expect(await advance(resource, 42)).toBe("00000");
  expect(await advance(resource, 42, "pod:c/1")).toBe("FNC01");
  expect(await advance(resource, 41)).toBe("FNC01");
  expect(await advance(resource, 43, "pod:c/1")).toBe("00000");
  expect(await advance(resource, 42)).toBe("FNC01");
  expect(await db.mark(resource)).toMatchObject({ granted: "43", refused: "0" });
  for (const [token, attempt, from] of [
    [0, "a", "b"],
    [-1, "a", "b"],
    [44, "", "b"],
    [44, null, "b"],
    [44, "a", ""],
    [44, "a", null],
  ] as const)
    expect(await advance(resource, token, attempt, from)).toBe("22023");
  expect(await advance("no/where", 1)).toBe("FNC03");
});

test("S1-18 of many advances at once the mark ends at the highest", async () => {
  const { resource } = await db.guarded(1);
  const issuers = await Promise.all(Array.from({ length: 8 }, () => db.as("issuer")));
  const tokens = Array.from({ length: 40 }, (_, index) => index + 2).toSorted(() => Math.random() - 0.5);
  await Promise.all(
    issuers.map(async (client, index) => {
      // Of one connection: answers of several may pass one another on their way.
      let seen = 0n;
      for (const token of tokens.filter((_, place) => place % issuers.length === index)) {
        const state = await stateOf(
          client.query("select fenceline.advance($1, $2, $3, $4)", [
            resource,
            token,
            `pod:${token}/1`,
            issuerName,
          ]),
        );
        expect(["00000", "FNC01"]).toContain(state);
        const { rows } = await client.query("select granted from fenceline.mark($1)", [resource]);
        const now = BigInt(rows[0].granted);
        expect(now).toBeGreaterThanOrEqual(seen);
        seen = now;
      }
    }),
  );
  expect(await db.mark(resource)).toMatchObject({ granted: "41" });
});

test("S1-12 the boundary refuses by itself, with nobody of the coordinator there", async () => {
  const { resource, table } = await db.guarded(42);
  const states = [];
  for (const token of [41, 42, 43])
    states.push(await transact(worker, { token, resource }, `update ${table} set v = '${token}'`));
  expect(states).toEqual(["FNC01", "00000", "FNC04"]);
});

test("FM-40 another cluster is refused until the resource is taken over, and then starts above both", async () => {
  const { resource, table } = await db.guarded(42);
  await issuer.query("select fenceline.sequence_open($1, 50, $2)", [resource, issuerName]);
  expect(await advance(resource, 100, "pod:x/1", "cluster-2")).toBe("FNC06");
  expect(await reserve(resource, 1, 0, "cluster-2")).toEqual([]);
  const refused: unknown = await issuer
    .query("select fenceline.advance($1, 100, 'pod:x/1', 'cluster-2')", [resource])
    .catch((error: unknown) => error);
  expect(JSON.parse(String(Reflect.get(Object(refused), "detail")))).toMatchObject({
    issuer: issuerName,
    accepted: "42",
  });

  const admin = await db.as("admin");
  const takeOver = (reason: string | null, name = resource) =>
    stateOf(admin.query("select fenceline.take_over($1, 'cluster-2', $2)", [name, reason]));
  expect(await takeOver("moved")).toBe("42501");
  await db.admin.query("grant owner to admin");
  expect(await takeOver("")).toBe("22023");
  expect(await takeOver("moved", "no/where")).toBe("FNC03");
  expect(await takeOver("moved")).toBe("00000");
  await db.admin.query("revoke owner from admin");

  expect((await admin.query("select before, after, reason, login from fenceline.takeover")).rows).toEqual([
    { before: issuerName, after: "cluster-2", reason: "moved", login: "admin" },
  ]);
  expect(await advance(resource, 43)).toBe("FNC06");
  expect(await reserve(resource, 1)).toEqual([]);
  expect(await advance(resource, 42, "pod:a/42", "cluster-2")).toBe("FNC01");
  expect(await reserve(resource, 1, 0, "cluster-2")).toEqual([{ base: "50", ceiling: "51" }]);
  expect(await advance(resource, 51, "pod:x/1", "cluster-2")).toBe("00000");
  expect(await transact(worker, { token: 42, resource }, `update ${table} set v = 'old'`)).toBe("FNC01");
});

test("S1-20 S1-03 blocks of many connections share nothing, and a rollback leaves a gap at most", async () => {
  const resource = "shop/blocks";
  await issuer.query("select fenceline.sequence_open($1, 0, $2)", [resource, issuerName]);
  const clients = await Promise.all(Array.from({ length: 8 }, () => db.as("issuer")));
  const seen = new Set<bigint>();
  await Promise.all(
    clients.map(async (client, index) => {
      let last = 0n;
      for (let round = 0; round < 40; round += 1) {
        await client.query("begin");
        const { rows } = await client.query(
          "select base::text, ceiling::text from fenceline.reserve($1, 3, 0, $2)",
          [resource, issuerName],
        );
        if ((round + index) % 4 === 0) {
          await client.query("rollback");
          continue;
        }
        await client.query("commit");
        const [base, ceiling] = [BigInt(rows[0].base), BigInt(rows[0].ceiling)];
        expect(base).toBeGreaterThanOrEqual(last);
        last = ceiling;
        for (let token = base + 1n; token <= ceiling; token += 1n) {
          expect(seen.has(token)).toBe(false);
          seen.add(token);
        }
      }
    }),
  );
  expect(seen.size).toBe(8 * 30 * 3);
});

test("FM-38 reserve at the end of the range gives what is left, then nothing", async () => {
  const resource = "shop/edge";
  await issuer.query("select fenceline.sequence_open($1, 9223372036854775805, $2)", [resource, issuerName]);
  expect(await reserve(resource, 64)).toEqual([
    { base: "9223372036854775805", ceiling: "9223372036854775807" },
  ]);
  expect(await reserve(resource, 1)).toEqual([]);
  expect(await reserve(resource, 0)).toEqual([
    { base: "9223372036854775807", ceiling: "9223372036854775807" },
  ]);
  for (const [count, atLeast] of [
    [-1, 0],
    [1, -1],
  ] as const)
    expect(await stateOf(reserve(resource, count, atLeast))).toBe("22023");
});

test("what is told to an issuer is durable, whatever its role is set to", async () => {
  const { resource } = await db.guarded(1);
  await issuer.query("select fenceline.sequence_open('shop/durable', 0, $1)", [issuerName]);
  for (const call of [
    `fenceline.advance('${resource}', 2, 'a', '${issuerName}')`,
    `fenceline.reopen('${resource}', 2, 'a', 'x', '${issuerName}')`,
    `fenceline.reserve('shop/durable', 1, 0, '${issuerName}')`,
    `fenceline.sequence_open('shop/durable', 0, '${issuerName}')`,
    `fenceline.sequence_seal('shop/durable', '${issuerName}')`,
  ]) {
    await issuer.query("begin; set local synchronous_commit = off");
    await issuer.query(`select ${call}`);
    const { rows } = await issuer.query("show synchronous_commit");
    await issuer.query("rollback");
    expect([call, rows]).toEqual([call, [{ synchronous_commit: "on" }]]);
  }
});
