import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { migrations } from "../../src/postgres/migrations.ts";
import {
  installation,
  migrate,
  removeSchema,
  SchemaError,
  schemaTrouble,
} from "../../src/postgres/schema.ts";
import { triggerNames } from "../../src/postgres/schema/guard.ts";
import { findDoors } from "../../src/postgres/statements/doors.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { fencedDatabase, issuerName, openServer, stateOf } from "../support/postgres/world.ts";

let server: PostgresServer;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
});

afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const next = { version: 2, name: "next", breaking: true, statements: ["create table fenceline.next ()"] };

test("several that start at once install it once", async () => {
  await server.admin((client) => client.query("create database fresh"));
  const installers = Array.from({ length: 6 }, () => openServer(server, "postgres", "fresh"));
  const applied = await Promise.all(installers.map((installer) => migrate(installer)));
  expect(applied.flat()).toEqual(migrations.map(({ version }) => version));
  await Promise.all(installers.map((installer) => installer.end()));
});

test("an upgrade is all or nothing", async () => {
  await using db = await fencedDatabase(server);
  const database = db.open("postgres");
  const broken = { ...next, statements: [...next.statements, "select 1 / 0"] };
  await expect(migrate(database, [...migrations, broken])).rejects.toThrow("SQLSTATE 22012");
  expect(await schemaTrouble(database, [...migrations, next])).toMatch(/older than this program/);
  expect(await migrate(database, [...migrations, next])).toEqual([2]);
  expect(await migrate(database, [...migrations, next])).toEqual([]);
  expect(await schemaTrouble(database, [...migrations, next])).toBeUndefined();
});

test("a newer breaking schema is refused, a newer one that breaks nothing is not", async () => {
  await using db = await fencedDatabase(server);
  const database = db.open("postgres");
  await migrate(database, [...migrations, { ...next, breaking: false }]);
  expect(await schemaTrouble(database)).toBeUndefined();
  await migrate(database, [
    ...migrations,
    { ...next, breaking: false },
    { ...next, version: 3, statements: [] },
  ]);
  expect(await schemaTrouble(database)).toMatch(/at version 3, which this program does not know/);
  await expect(migrate(database)).rejects.toThrow(SchemaError);
});

test("a version that is not the one of this program is refused", async () => {
  await using db = await fencedDatabase(server);
  const database = db.open("postgres");
  await migrate(database, [...migrations, next]);
  const other = [...migrations, { ...next, statements: [] }];
  expect(await schemaTrouble(database, other)).toMatch(/version 2 .* is not the one of this program/);
});

test("removed, nothing of it is left, and the tables write as before", async () => {
  await using db = await fencedDatabase(server);
  const { table } = await db.guarded(41);
  const database = db.open("postgres");
  await removeSchema(database);
  const { rows } = await db.admin.query(
    "select tgname from pg_trigger where tgname = any ($1) union all select nspname from pg_namespace where nspname = 'fenceline'",
    [Object.values(triggerNames)],
  );
  expect(rows).toEqual([]);
  await db.admin.query(`update ${table} set v = 'free'`);
  expect(await schemaTrouble(database)).toMatch(/is missing/);
});

test("what is shown to people installs the same", async () => {
  await server.admin((client) => client.query("create database shown"));
  await server.admin((client) => client.query(`begin;${installation().join(";\n")};commit`), "shown");
  const database = openServer(server, "postgres", "shown");
  expect(await schemaTrouble(database)).toBeUndefined();
  await database.end();
});

test("a login with CREATEROLE installs it where no superuser is at hand", async () => {
  await using fresh = await startServer(inject("postgres"));
  await fresh.admin((client) =>
    client.query("create role installer login createrole; create role app login"),
  );
  await fresh.admin((client) => client.query("create database managed owner installer"));
  const database = openServer(fresh, "installer", "managed");
  expect(await migrate(database)).toEqual(migrations.map(({ version }) => version));
  expect(await migrate(database)).toEqual([]);
  await fresh.admin(async (client) => {
    await client.query("set role installer");
    await client.query(`create table public.orders (id int); grant insert on public.orders to app;
      grant fenceline_worker to app; grant fenceline_issuer to installer;
      select fenceline.guard('public.orders', 'shop/orders')`);
    await client.query("select fenceline.advance('shop/orders', 42, 'pod:a/1', $1)", [issuerName]);
  }, "managed");
  const app = await fresh.connect("managed", "app");
  const insert = "insert into public.orders select 1 where (select fenceline.enter('shop/orders', $1))";
  expect(await stateOf(app.query(insert, ["41"]))).toBe("FNC01");
  expect(await stateOf(app.query(insert, ["42"]))).toBe("00000");
  await app.end();
  expect((await findDoors(database, "shop/orders")).map(({ kind }) => kind)).toEqual([
    "ddl",
    "storage",
    "storage",
  ]);
  await removeSchema(database);
  expect(await schemaTrouble(database)).toMatch(/is missing/);
  await database.end();
});
