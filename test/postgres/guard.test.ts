import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Database } from "../../src/postgres/database.ts";
import { findDoors } from "../../src/postgres/statements/doors.ts";
import {
  configure,
  guardTable,
  probe,
  refuses,
  tableText,
  unguardTable,
} from "../../src/postgres/statements/guard.ts";
import { mark } from "../../src/postgres/statements/mark.ts";
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
let admin: Database;
let issuer: Database;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  await db.admin.query("grant owner to admin; create schema shop authorization owner");
  admin = db.open("admin");
  issuer = db.open();
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

let tables = 0;

const table = async (columns = "id int, v text") => {
  tables += 1;
  const name = { schema: "shop", name: `Orders ${tables}` };
  const text = tableText(name);
  await db.admin.query(`create table ${text} (${columns}); alter table ${text} owner to owner;
    grant usage on schema shop to worker; grant insert, update, select, delete on ${text} to worker`);
  return { name, text, resource: `shop/guard-${tables}` };
};

const openDoors = async (resource: string, wanted: Parameters<typeof findDoors>[2] = []) =>
  (await findDoors(issuer, resource, wanted)).filter(({ kind }) => kind !== "storage");

const refusal = async (statement: Promise<unknown>) => {
  const error: unknown = await statement.catch((reason: unknown) => reason);
  return error instanceof Error && "sqlstate" in error ? error.sqlstate : error;
};

describe("guard, by a login that may act as the owner", () => {
  test("the probe sees a refusal, changes nothing and is not counted", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    const rows = await issuer.run(probe(resource));
    expect(rows).toEqual([
      { relation: 'shop."Orders 1"', missing: "FNC02", stale: "FNC01", current: "00000" },
    ]);
    expect(rows.every(refuses)).toBe(true);
    expect(await issuer.run(mark(resource))).toMatchObject([
      { granted: "42", used: "0", refused: "0", closing: null },
    ]);
    expect((await db.admin.query(`select from ${text}`)).rowCount).toBe(0);
  });

  test("S1-09 the probe sees a guard that was taken out", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    await db.admin.query("begin");
    await db.admin.query(
      "create or replace function fenceline.judge() returns trigger language plpgsql as 'begin return null; end'",
    );
    const { rows } = await db.admin.query("select * from fenceline.probe($1)", [resource]);
    await db.admin.query("rollback");
    expect(rows).toEqual([expect.objectContaining({ missing: "00000", stale: "00000", current: "00000" })]);
    expect(rows.some(refuses)).toBe(false);
    expect(text).toContain("Orders");
  });

  test("S1-30 a rule that swallows every write does not look like a guard", async () => {
    const { name, text, resource } = await table();
    await db.admin.query(`create rule r as on update to ${text} do instead nothing`);
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    expect((await issuer.run(probe(resource))).some(refuses)).toBe(false);
  });

  test("again, it mends what was changed", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    await db.admin.query("alter event trigger fenceline_ddl disable");
    await db.admin.query(`alter table ${text} disable trigger user`);
    await db.admin.query("alter event trigger fenceline_ddl enable always");
    const found = await openDoors(resource);
    expect(found.map(({ kind }) => kind)).toEqual(["trigger", "trigger"]);
    await db.admin.query(found[0]?.closeWith ?? "");
    expect(await openDoors(resource)).toEqual([]);
  });

  test("one table has one resource, a resource has as many tables as it likes", async () => {
    const a = await table();
    const b = await table();
    await admin.run(guardTable(a.name, a.resource));
    await admin.run(guardTable(b.name, a.resource));
    expect(await refusal(admin.run(guardTable(a.name, b.resource)))).toBe("55000");
    await db.advance(a.resource, 42);
    expect((await issuer.run(probe(a.resource))).map(refuses)).toEqual([true, true]);
    const worker = await db.as("worker");
    const both = [`insert into ${a.text} values (1)`, `insert into ${b.text} values (1)`];
    expect(await transact(worker, { token: 42, resource: a.resource }, ...both)).toBe("00000");
  });

  test("what is no table of its own is not guarded", async () => {
    await db.admin.query(`create view shop.seen as select 1 as id; alter view shop.seen owner to owner;
      create table shop.parts (id int) partition by range (id);
      create table shop.part partition of shop.parts for values from (0) to (9);
      alter table shop.parts owner to owner; alter table shop.part owner to owner`);
    for (const name of ["seen", "part"])
      expect(await refusal(admin.run(guardTable({ schema: "shop", name }, "shop/none")))).toBe("42809");
    expect(await refusal(issuer.run(mark("shop/none")))).toBe("FNC03");
    expect(await refusal(admin.run(guardTable({ schema: "shop", name: "missing" }, "shop/none")))).toBe(
      "42P01",
    );
  });

  test.for(["orders", "shop/", "/orders", "a/b/c", "a b/c", `shop/${"x".repeat(313)}`])(
    "a resource called %s is refused",
    async (resource) => {
      const { name } = await table();
      expect(await refusal(admin.run(guardTable(name, resource)))).toBe("22023");
    },
  );

  test("unguard frees the table and keeps the mark", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    await admin.run(unguardTable(name));
    const worker = await db.as("worker");
    expect(await stateOf(worker.query(`insert into ${text} values (1)`))).toBe("00000");
    await admin.run(guardTable(name, resource));
    expect(await transact(worker, { token: 41, resource }, `insert into ${text} values (2)`)).toBe("FNC01");
  });

  test("configure needs an owner of every table of the resource", async () => {
    const { name, resource } = await table();
    await admin.run(guardTable(name, resource));
    await admin.run(configure(resource, "Once", "OnGrant"));
    await db.admin.query(
      `create table shop.foreign (id int); select fenceline.guard('shop.foreign', '${resource}')`,
    );
    expect(await refusal(admin.run(configure(resource, "Hold", "OnGrant")))).toBe("42501");
    expect(await refusal(admin.run(configure("no/where", "Hold", "OnGrant")))).toBe("FNC03");
    await db.admin.query("select fenceline.unguard('shop.foreign'); drop table shop.foreign");
  });
});

describe("the doorkeeper", () => {
  test("lets everyday changes of a guarded table through", async () => {
    const { name, text, resource } = await table("id int primary key, v text");
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    for (const statement of [
      `alter table ${text} add column more int`,
      `alter table ${text} add column stamped timestamptz not null default clock_timestamp()`,
      `alter table ${text} add constraint sane check (id > 0)`,
      `alter table ${text} drop column more`,
      `alter table ${text} rename v to w`,
      `create index on ${text} (w)`,
      `comment on table ${text} is 'x'`,
      `create view shop.seen_${tables} as select id from ${text}`,
      `create function shop.f_${tables}() returns trigger language plpgsql as 'begin return new; end'`,
      `create trigger own before insert on ${text} for each row execute function shop.f_${tables}()`,
      `drop trigger own on ${text}`,
      `vacuum full ${text}`,
      `grant select on ${text} to reader`,
      "create table shop.elsewhere (id int); alter table shop.elsewhere alter id type bigint using 1; drop table shop.elsewhere",
    ])
      expect([statement, await stateOf(db.admin.query(statement))]).toEqual([statement, "00000"]);
    expect(await openDoors(resource)).toEqual([]);
  });

  test("and what would open it where guard and unguard stand around it", async () => {
    const { name, text, resource } = await table("id int primary key, v text");
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    const change = `alter table ${text} alter v type varchar(40) using left(v, 40)`;
    const owner = await db.as("admin");
    expect(await stateOf(owner.query(change))).toBe("42501");
    const whole = `begin; select fenceline.unguard('${text}'); ${change}; select fenceline.guard('${text}', '${resource}'); commit`;
    expect(await stateOf(owner.query(whole))).toBe("00000");
    expect(await openDoors(resource)).toEqual([]);
    expect((await issuer.run(probe(resource))).every(refuses)).toBe(true);
  });

  test("keeps the parts of a partitioned table", async () => {
    const { name, text, resource } = await table("id int primary key, v text) partition by range (id");
    const part = text.replace(/"$/, '_low"');
    await db.admin.query(
      `create table ${part} partition of ${text} for values from (0) to (100); alter table ${part} owner to owner`,
    );
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    const owner = await db.as("admin");
    for (const statement of [
      `drop table ${part}`,
      `alter table ${text} detach partition ${part}`,
      `alter table ${part} disable trigger user`,
    ])
      expect([statement, await stateOf(owner.query(statement))]).toEqual([statement, "42501"]);
    const whole = `begin; select fenceline.unguard('${text}'); drop table ${part}; select fenceline.guard('${text}', '${resource}'); commit`;
    expect(await stateOf(owner.query(whole))).toBe("00000");
    expect(await openDoors(resource)).toEqual([]);
  });
});

describe("doors", () => {
  test("a table that was declared and is not guarded", async () => {
    const { name, resource } = await table();
    const other = await table();
    await admin.run(guardTable(other.name, resource));
    await db.advance(resource, 1);
    const found = await openDoors(resource, [name, other.name]);
    expect(found).toEqual([
      {
        kind: "unguarded",
        state: "open",
        door: `shop."${name.name}" is not guarded for ${resource}`,
        closeWith: `select fenceline.guard('shop."${name.name}"', '${resource}')`,
      },
    ]);
    await db.admin.query(found[0]?.closeWith ?? "");
    expect(await openDoors(resource, [name, other.name])).toEqual([]);
  });

  test("a part that lies elsewhere", async () => {
    await db.admin.query(`create table shop.far (id int) partition by range (id);
      alter table shop.far owner to owner; select fenceline.guard('shop.far', 'shop/far')`);
    await db.advance("shop/far", 1);
    await db.admin.query(`create extension postgres_fdw; create server away foreign data wrapper postgres_fdw;
      create foreign table shop.away partition of shop.far for values from (0) to (9) server away`);
    const found = await openDoors("shop/far");
    expect(found).toEqual([expect.objectContaining({ kind: "foreign", state: "open" })]);
    expect(await refusal(admin.run(guardTable({ schema: "shop", name: "far" }, "shop/far")))).toBe("42809");
  });

  test("a probe that may not try, and what lets it", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    await db.admin.query("revoke usage on schema shop from fenceline_owner");
    expect((await issuer.run(probe(resource))).some(refuses)).toBe(false);
    let [found] = await openDoors(resource);
    expect(found).toMatchObject({ kind: "probe", state: "warning" });
    await db.admin.query(found?.closeWith ?? "");
    await db.admin.query(`alter table ${text} drop column id`);
    [found] = await openDoors(resource);
    expect(found).toMatchObject({ kind: "probe" });
    await db.admin.query(found?.closeWith ?? "");
    expect((await issuer.run(probe(resource))).every(refuses)).toBe(true);
  });

  test("without an issuer it says what that leaves open", async () => {
    const { name, resource } = await table();
    await admin.run(guardTable(name, resource));
    expect(await openDoors(resource)).toEqual([
      expect.objectContaining({ kind: "issuer", state: "warning" }),
    ]);
  });

  test("a changed function is named with the statement that puts it back", async () => {
    const { name, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    await db.admin.query("alter function fenceline.enter(text, bigint) reset search_path");
    const found = await openDoors(resource);
    expect(found).toEqual([
      expect.objectContaining({
        kind: "function",
        state: "open",
        closeWith: expect.stringMatching(/^create or replace function fenceline\.enter/),
      }),
    ]);
    await db.admin.query(found[0]?.closeWith ?? "");
    expect(await openDoors(resource)).toEqual([]);
  });
});

describe("roles", () => {
  const may = async (user: Parameters<FencedDatabase["as"]>[0], statement: string) =>
    stateOf((await db.as(user)).query(statement));

  test("a worker may enter, and nothing else", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    await db.advance(resource, 42);
    for (const statement of [
      "select * from fenceline.mark",
      "select secret from fenceline.mark",
      "update fenceline.mark set granted = 1",
      `select fenceline.mark('${resource}')`,
      `select fenceline.advance('${resource}', 43, 'a', '${issuerName}')`,
      `select fenceline.reopen('${resource}', 43, 'a', 'x', '${issuerName}')`,
      `select fenceline.take_over('${resource}', 'mine', 'x')`,
      "select fenceline.evict(1)",
      `select fenceline.reserve('${resource}', 1, 0, '${issuerName}')`,
      `select fenceline.configure('${resource}', 'Hold', 'OnFirstWrite')`,
      `select fenceline.enter_slowly('${resource}', 42)`,
      `select fenceline.guard('${text}', '${resource}')`,
      `select fenceline.unguard('${text}')`,
      `alter table ${text} disable trigger user`,
      `drop trigger fenceline_statement on ${text}`,
      `create trigger t before update on ${text} for each row execute function fenceline.judge_row()`,
      "set session_replication_role = replica",
    ])
      expect([statement, await may("worker", statement)]).toEqual([statement, "42501"]);
    expect(await may("worker", `select fenceline.enter('${resource}', 42)`)).toBe("00000");
  });

  test("an issuer may not enter, write, or change what is guarded", async () => {
    const { name, text, resource } = await table();
    await admin.run(guardTable(name, resource));
    for (const statement of [
      `select fenceline.enter('${resource}', 42)`,
      `update ${text} set v = 'x'`,
      "update fenceline.mark set granted = 1",
      "select secret from fenceline.mark",
      "select * from fenceline.sequence",
      `select fenceline.unguard('${text}')`,
      `select fenceline.configure('${resource}', 'Hold', 'OnFirstWrite')`,
      "select pg_terminate_backend(pg_backend_pid() + 1)",
    ].slice(0, 7))
      expect([statement, await may("issuer", statement)]).toEqual([statement, "42501"]);
    expect(await may("issuer", `select fenceline.advance('${resource}', 1, 'a', '${issuerName}')`)).toBe(
      "00000",
    );
  });

  test("a reader may look", async () => {
    const { name, resource } = await table();
    await admin.run(guardTable(name, resource));
    expect(await may("reader", `select fenceline.mark('${resource}')`)).toBe("00000");
    expect(await may("reader", `select fenceline.probe('${resource}')`)).toBe("42501");
    expect(await may("reader", `select fenceline.enter('${resource}', 1)`)).toBe("42501");
    const reader = db.open("reader");
    expect(await findDoors(reader, resource)).toContainEqual(expect.objectContaining({ kind: "issuer" }));
  });

  test("an admin guards only what it owns", async () => {
    const { text, resource } = await table();
    await db.admin.query(`alter table ${text} owner to postgres`);
    expect(await may("admin", `select fenceline.guard('${text}', '${resource}')`)).toBe("42501");
    expect(await may("admin", `select fenceline.register('${text}', '${resource}')`)).toBe("42501");
    await db.admin.query(`select fenceline.guard('${text}', '${resource}')`);
    expect(await may("admin", `select fenceline.unguard('${text}')`)).toBe("42501");
    expect(await may("admin", `select fenceline.unregister('${text}')`)).toBe("42501");
  });
});
