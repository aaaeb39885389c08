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
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { fencedDatabase, openServer } from "../support/postgres/world.ts";

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
