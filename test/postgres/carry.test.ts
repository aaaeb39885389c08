import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { findDoors } from "../../src/postgres/statements/doors.ts";
import { dropDoorkeeper } from "../../src/postgres/schema/doorkeeper.ts";
import { runProgram } from "../support/postgres/lab.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import {
  type FencedDatabase,
  fencedDatabase,
  type Guarded,
  openServer,
  stateOf,
} from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
/** Where rows come from. */
let source: FencedDatabase;

beforeAll(async () => {
  server = await startServer(inject("postgres"), {
    settings: {
      wal_retrieve_retry_interval: "100ms",
      max_replication_slots: "20",
      max_logical_replication_workers: "10",
    },
  });
  db = await fencedDatabase(server);
  source = await fencedDatabase(server);
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await source[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const rowsOf = async ({ table }: Guarded, where = db) =>
  (await where.admin.query(`select id, v from ${table} order by id`)).rows;

const before = [1, 2, 3].map((id) => ({ id, v: null }));

describe("logical replication", () => {
  let subscriptions = 0;

  /** Rows of the same table in another database flow into the guarded one. */
  const subscribe = async (
    { table }: Guarded,
    copy: boolean,
  ): Promise<{ name: string; end: () => Promise<void> }> => {
    subscriptions += 1;
    const name = `s${process.pid}_${subscriptions}`;
    await source.admin.query(`create table ${table} (id int primary key, v text, last_fencing_token bigint);
      insert into ${table} (id) values (1), (2), (3);
      create publication ${name} for table ${table}`);
    await source.admin.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [name]);
    await db.admin.query(`create subscription ${name}
      connection 'host=127.0.0.1 port=${server.port} user=postgres dbname=${source.name}' publication ${name}
      with (create_slot = false, slot_name = '${name}', copy_data = ${copy})`);
    const end = async () => {
      await db.admin.query(
        `alter subscription ${name} disable; alter subscription ${name} set (slot_name = none)`,
      );
      await db.admin.query(`drop subscription ${name}`);
    };
    return { name, end };
  };

  const errors = async (name: string): Promise<number> =>
    (
      await db.admin.query(
        "select (apply_error_count + sync_error_count)::int as n from pg_stat_subscription_stats where subname = $1",
        [name],
      )
    ).rows[0].n;

  test.for([
    ["INSERT", "insert into $ values (9, 'x')"],
    ["UPDATE", "update $ set v = 'x'"],
    ["DELETE", "delete from $"],
    ["TRUNCATE", "truncate $"],
  ] as const)("S1-30 FM-07 %s that is applied is refused", async ([, statement]) => {
    const guarded = await db.guarded(42);
    const { name, end } = await subscribe(guarded, false);
    await source.admin.query(statement.replace("$", guarded.table));
    await expect.poll(() => errors(name), { timeout: 30_000 }).toBeGreaterThan(0);
    expect(await rowsOf(guarded)).toEqual(before);
    expect(await findDoors(db.open(), guarded.resource)).toContainEqual(
      expect.objectContaining({ kind: "subscription", state: "warning" }),
    );
    // The same without the guard: it is the guard that keeps it out.
    await db.admin.query("select fenceline.unguard($1)", [guarded.table]);
    await expect.poll(() => rowsOf(guarded), { timeout: 30_000 }).not.toEqual(before);
    await end();
  });

  test("S1-30 FM-07 a partition that rows are applied to refuses them", async () => {
    const guarded = await db.guarded(42);
    const { table, resource } = guarded;
    await db.admin.query(`begin; select fenceline.unguard('${table}'); drop table ${table};
      create table ${table} (id int primary key, v text, last_fencing_token bigint) partition by range (id);
      create table ${table}_low partition of ${table} for values from (0) to (100);
      insert into ${table} (id) values (1), (2), (3); select fenceline.guard('${table}', '${resource}'); commit`);
    const { name, end } = await subscribe(guarded, false);
    await source.admin.query(`insert into ${table} values (9, 'x')`);
    await expect.poll(() => errors(name), { timeout: 30_000 }).toBeGreaterThan(0);
    expect(await rowsOf(guarded)).toEqual(before);
    await end();
  });

  test("S1-30 FM-07 the first copy of the rows is refused", async () => {
    const guarded = await db.guarded(42);
    await db.admin.query(`begin; select fenceline.unguard('${guarded.table}'); delete from ${guarded.table};
      select fenceline.guard('${guarded.table}', '${guarded.resource}'); commit`);
    const { name, end } = await subscribe(guarded, true);
    await expect.poll(() => errors(name), { timeout: 30_000 }).toBeGreaterThan(0);
    expect(await rowsOf(guarded)).toEqual([]);
    await end();
  });
});

describe("pg_dump and pg_restore", () => {
  const dump = (from: FencedDatabase, ...more: string[]): string => {
    const file = path.join(inject("postgres").folder, `dump-${process.pid}-${Math.random()}`);
    const text = runProgram("pg_dump", ["-d", server.url("postgres", from.name), ...more]);
    writeFileSync(file, text, { mode: 0o644 });
    return file;
  };
  /** Three other rows of the same table. */
  const others = async ({ table }: Guarded) => {
    await source.admin.query(`create table ${table} (id int primary key, v text, last_fencing_token bigint);
      insert into ${table} (id) values (11), (12), (13)`);
    return source;
  };
  const restore = (file: string, database: string): string => {
    try {
      runProgram("psql", [
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-v",
        "VERBOSITY=sqlstate",
        "-o",
        "/dev/null",
        "-f",
        file,
        server.url("postgres", database),
      ]);
      return "00000";
    } catch (error) {
      const said = error instanceof Error && "stderr" in error ? String(error.stderr) : String(error);
      return /ERROR: {2}(\w{5})/.exec(said)?.[1] ?? said;
    }
  };

  test("FM-30 a whole database, put back elsewhere: guarded, and closed", async () => {
    await using one = await fencedDatabase(server);
    const guarded = await one.guarded(42);
    const file = dump(one);
    await server.admin((client) => client.query(`create database back_${one.name}`));
    expect(restore(file, `back_${one.name}`)).toBe("00000");
    const client = await server.connect(`back_${one.name}`, "worker");
    const write = `update ${guarded.table} set v = 'x'`;
    expect(await stateOf(client.query(write))).toBe("FNC02");
    expect(await stateOf(client.query(`select fenceline.enter('${guarded.resource}', 42)`))).toBe("FNC07");
    await client.end();
    const back = openServer(server, "issuer", `back_${one.name}`);
    // The guard is there; the register still knows the table by the number that it had.
    const open = (await findDoors(back, guarded.resource)).filter(({ state }) => state === "open");
    expect(open.map(({ kind }) => kind)).toEqual(["swapped"]);
    await server.admin((admin) => admin.query(open[0]?.closeWith ?? ""), `back_${one.name}`);
    expect((await findDoors(back, guarded.resource)).filter(({ state }) => state === "open")).toEqual([]);
    await back.end();
  });

  test("S1-30 rows alone are refused", async () => {
    const guarded = await db.guarded(42);
    const file = dump(await others(guarded), "--data-only", "-t", guarded.table);
    expect(restore(file, db.name)).toBe("FNC02");
    expect(await rowsOf(guarded)).toEqual(before);
  });

  test("S1-30 rows alone with --disable-triggers: refused by the doorkeeper, else found", async () => {
    const guarded = await db.guarded(42);
    const file = dump(await others(guarded), "--data-only", "--disable-triggers", "-t", guarded.table);
    expect(restore(file, db.name)).toBe("42501");
    await using plain = await fencedDatabase(server);
    await plain.admin.query(dropDoorkeeper);
    await plain.admin.query(`create table ${guarded.table} (id int primary key, v text, last_fencing_token bigint);
      select fenceline.guard('${guarded.table}', '${guarded.resource}')`);
    await plain.advance(guarded.resource, 42);
    expect(restore(file, plain.name)).toBe("00000");
    const open = (await findDoors(plain.open(), guarded.resource)).filter(({ state }) => state === "open");
    expect(open.map(({ kind }) => kind)).toEqual(["trigger", "trigger"]);
    await plain.admin.query(open[0]?.closeWith ?? "");
    expect((await findDoors(plain.open(), guarded.resource)).filter(({ state }) => state === "open")).toEqual(
      [],
    );
  });

  test("S1-30 one table, put into a database without its marks, is known to nobody", async () => {
    const guarded = await db.guarded(42);
    const file = dump(db, "-t", guarded.table);
    await using other = await fencedDatabase(server);
    expect(restore(file, other.name)).toBe("00000");
    expect(await stateOf(other.admin.query("select fenceline.mark($1)", [guarded.resource]))).toBe("FNC03");
    expect(await stateOf(other.admin.query(`update ${guarded.table} set v = 'x'`))).toBe("FNC03");
  });
});
