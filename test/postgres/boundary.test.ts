import { afterAll, beforeAll, expect, inject, test, vi } from "vitest";
import { makePostgresBoundary } from "../../src/boundary/postgres.ts";
import type { HolderId } from "../../src/core/lease.ts";
import type { Token } from "../../src/core/token.ts";
import type { Database } from "../../src/postgres/database.ts";
import { makeSlots } from "../../src/postgres/slots.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, issuerName, stateOf } from "../support/postgres/world.ts";

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

const holder = (name: string) => `pod:${name}/1` as HolderId;

const boundaryOf = (resource: string, onEvicted?: (pid: number) => void) =>
  makePostgresBoundary({
    database,
    waiting: makeSlots(2),
    resource,
    issuer: issuerName,
    clock: systemClock,
    evictAfterMs: 300,
    wanted: { mode: "Hold", advance: "OnGrant", tables: [] },
    ...(onEvicted !== undefined && { onEvicted }),
  });

test("the mark is raised by one attempt, and the others are refused", async () => {
  const { resource } = await db.guarded(41);
  const boundary = boundaryOf(resource);
  expect(await boundary.advance(42n as Token, holder("a"))).toEqual({ outcome: "ok" });
  expect(await boundary.advance(42n as Token, holder("a"))).toEqual({ outcome: "ok" });
  expect(await boundary.advance(42n as Token, holder("b"))).toEqual({ outcome: "refused", mark: 42n });
  expect(await boundary.marks()).toEqual({
    outcome: "ok",
    granted: 42n,
    used: 0n,
    refused: { stale: 0n, missing: 0n },
    closing: undefined,
  });
  expect(await boundaryOf("no/where").marks()).toEqual({ outcome: "missing" });
});

test("FM-23 a holder that is stopped inside its transaction is ended after the limit", async () => {
  const { table, resource } = await db.guarded(41);
  const frozen = await db.as("worker");
  await frozen.query("begin");
  await frozen.query("select fenceline.enter($1, 41)", [resource]);
  await frozen.query(`update ${table} set v = 'frozen'`);
  const onEvicted = vi.fn<(pid: number) => void>();
  expect(await boundaryOf(resource, onEvicted).advance(42n as Token, holder("b"))).toEqual({ outcome: "ok" });
  expect(onEvicted).toHaveBeenCalledOnce();
  expect(await stateOf(frozen.query("commit").catch(() => Promise.reject(gone)))).toBe("gone");
  expect((await db.admin.query(`select v from ${table}`)).rows).toEqual([
    { v: null },
    { v: null },
    { v: null },
  ]);
});

const gone = Object.assign(new Error("the session has ended"), { code: "gone" });

test("S1-43 after a restart it is closed until it is opened by what closed it", async () => {
  const { table, resource } = await db.guarded(41);
  const boundary = boundaryOf(resource);
  await db.admin.query("update fenceline.mark set timeline = '0000000F' where resource = $1", [resource]);
  const closed = await boundary.advance(42n as Token, holder("b"));
  expect(closed).toMatchObject({ outcome: "closed" });
  if (closed.outcome !== "closed") return;
  expect(await boundary.marks()).toMatchObject({ closing: closed.closing });
  expect(await boundary.reopen(42n as Token, holder("b"), "another")).toMatchObject({ outcome: "unknown" });
  expect(await boundary.reopen(42n as Token, holder("b"), closed.closing)).toEqual({ outcome: "ok" });
  expect(await boundary.marks()).toMatchObject({ granted: 42n, closing: undefined });
  const worker = await db.as("worker");
  const write = `update ${table} set v = 'x' where (select fenceline.enter('${resource}', 42))`;
  expect(await stateOf(worker.query(write))).toBe("00000");
});
