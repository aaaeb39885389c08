import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { DatabaseError } from "../../src/postgres/errors.ts";
import { systemClock, systemRandom } from "../../src/runtime/clock.ts";
import { makePostgresStore } from "../../src/store/postgres.ts";
import type { Reservation } from "../../src/store/port.ts";
import { type Database, openDatabase } from "../../src/postgres/database.ts";
import { parseDatabaseUrl } from "../../src/postgres/url.ts";
import { noToken } from "../../src/core/token.ts";
import { storeContract } from "../contract/store.ts";
import { until } from "../support/cluster/process.ts";
import { startTcpProxy } from "../support/faultproxy/tcp.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, issuerName } from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let database: Database;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  database = db.open();
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const storeOn = (run: Database["run"], issuer = issuerName) =>
  makePostgresStore({ database: { run }, issuer, clock: systemClock, random: systemRandom });

const lost = (kind: "unknown" | "refused", sqlstate?: string) =>
  Promise.reject(new DatabaseError(kind, "the test cut the connection", sqlstate));

storeContract("PostgreSQL", () => ({
  issuer: issuerName,
  store: (issuer) => storeOn((...args) => database.run(...args), issuer),
  async seal(resource) {
    await db.admin.query("select fenceline.sequence_seal($1, $2)", [resource, issuerName]);
  },
  async remove(resource) {
    await db.admin.query("delete from fenceline.sequence where resource = $1", [resource]);
  },
  async copy(resource, { issuer = issuerName } = {}) {
    await db.admin.query(
      "update fenceline.sequence set timeline = '0000000F', issuer = $2 where resource = $1",
      [resource, issuer],
    );
  },
  flaky(fault, times) {
    let left = times;
    return storeOn(async (statement, options) => {
      left -= 1;
      if (left < 0) return database.run(statement, options);
      if (fault === "conflict") return lost("refused", "40001");
      if (fault === "answer-lost") await database.run(statement, options);
      return lost("unknown");
    });
  },
}));

describe("a server that fails between and within statements", () => {
  type Block = Extract<Reservation, { outcome: "reserved" }>;
  const given = (all: readonly Reservation[]) =>
    all.filter((one): one is Block => one.outcome === "reserved");
  /** In the order in which they were answered: each above all before it, whatever was lost between. */
  const inOrder = (blocks: readonly Block[]) =>
    blocks.every(({ base }, index) => index === 0 || base >= (blocks[index - 1]?.ceiling ?? base));

  test("FM-31 S1-18 connections cut at any moment, also during COMMIT: a gap at most", async () => {
    await using proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: server.port } });
    const url = new URL(server.url("issuer", db.name));
    url.port = String(proxy.port);
    const parsed = parseDatabaseUrl(url.href);
    if (!parsed.ok) throw new Error(parsed.message);
    const cut = openDatabase(parsed.address, systemClock);
    const store = storeOn((...args) => cut.run(...args));
    await store.open("shop/cut", noToken);
    const idle = async () => {
      const { rowCount } = await db.admin.query(
        "select from pg_stat_activity where state = 'active' and usename = 'issuer' and datname = current_database()",
      );
      return rowCount === 0;
    };
    const blocks: Reservation[] = [];
    for (let round = 0; round < 30; round += 1) {
      // The answer is lost, the request is lost, or both go through.
      const way = (["down", "up", undefined] as const)[round % 3];
      const hole = way === undefined ? undefined : proxy.halfOpen(way);
      const asked = store.reserve("shop/cut", 3n, noToken);
      if (way === "down") await until("the server to have done it", 10_000, idle);
      if (way !== undefined) proxy.cut();
      hole?.heal();
      blocks.push(await asked);
    }
    const known = given(blocks);
    expect(known.length).toBeGreaterThanOrEqual(10);
    expect(inOrder(known)).toBe(true);
    const state = await store.read("shop/cut");
    expect(state.state === "open" && state.ceiling >= (known.at(-1)?.ceiling ?? 0n)).toBe(true);
    await cut.end();
  });

  test("FM-31 S1-65 a crash of the server between statements takes nothing back", async () => {
    const own = await startServer(inject("postgres"), { durable: true });
    const there = await fencedDatabase(own);
    const parsed = parseDatabaseUrl(own.url("issuer", there.name));
    if (!parsed.ok) throw new Error(parsed.message);
    const way = openDatabase(parsed.address, systemClock);
    const store = storeOn((...args) => way.run(...args));
    await store.open("shop/crash", noToken);
    const blocks: Reservation[] = [];
    for (let round = 0; round < 3; round += 1) {
      for (let more = 0; more < 5; more += 1) blocks.push(await store.reserve("shop/crash", 2n, noToken));
      await own.restart("immediate");
    }
    await expect
      .poll(async () => {
        const block = await store.reserve("shop/crash", 2n, noToken);
        blocks.push(block);
        return block.outcome;
      })
      .toBe("reserved");
    const known = given(blocks);
    expect(known.length).toBeGreaterThanOrEqual(6);
    expect(inOrder(known)).toBe(true);
    await way.end();
    await there[Symbol.asyncDispose]();
    await own[Symbol.asyncDispose]();
  });
});
