import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Client } from "pg";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, stateOf, transact } from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let worker: Client;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  worker = await db.as("worker");
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const value = async (table: string): Promise<string | null> =>
  (await db.admin.query(`select v from ${table} where id = 1`)).rows[0].v;

const oneStatement = (table: string, resource: string, token: number | string, v = "new") =>
  stateOf(
    worker.query(`update ${table} set v = $3 where id = 1 and (select fenceline.enter($1, $2))`, [
      resource,
      String(token),
      v,
    ]),
  );

describe("Hold, OnGrant", () => {
  test("S1-04 the granted token writes, a lower one is refused and changes nothing", async () => {
    const { table, resource } = await db.guarded(42);
    expect(await transact(worker, { token: 42, resource }, `update ${table} set v = 'b' where id = 1`)).toBe(
      "00000",
    );
    expect(await transact(worker, { token: 41, resource }, `update ${table} set v = 'a' where id = 1`)).toBe(
      "FNC01",
    );
    expect(await value(table)).toBe("b");
    expect(await db.mark(resource)).toMatchObject({ granted: "42", used: "42", refused: "1", closing: null });
  });

  test("S1-13 a write without a token is refused", async () => {
    const { table } = await db.guarded(42);
    expect(await stateOf(worker.query(`update ${table} set v = 'a'`))).toBe("FNC02");
  });

  test("S1-14 the late write of a holder that never learned of its loss is refused", async () => {
    const { table, resource } = await db.guarded(41);
    expect(await transact(worker, { token: 41, resource }, `update ${table} set v = 'a'`)).toBe("00000");
    await db.advance(resource, 42);
    expect(await transact(worker, { token: 41, resource }, `update ${table} set v = 'late'`)).toBe("FNC01");
    expect(await value(table)).toBe("a");
  });

  test.for([
    ["guarded", "FNC01", "B"],
    ["guard removed", "00000", "A"],
  ] as const)("S1-09 A acquires, pauses, expires, B stores, A stores: %s", async ([guard, state, winner]) => {
    const { table, resource } = await db.guarded(41);
    // What A has computed before its pause; without a guard nothing has to be declared.
    const store = (token: number, result: string) =>
      guard === "guarded"
        ? transact(worker, { token, resource }, `update ${table} set v = '${result}' where id = 1`)
        : transact(worker, { resource }, `update ${table} set v = '${result}' where id = 1`);
    if (guard === "guard removed") await db.admin.query("select fenceline.unguard($1)", [table]);
    await db.advance(resource, 42);
    expect(await store(42, "B")).toBe("00000");
    expect(await store(41, "A")).toBe(state);
    expect(await value(table)).toBe(winner);
  });

  test("a token above the mark was never issued", async () => {
    const { table, resource } = await db.guarded(42);
    expect(await oneStatement(table, resource, 43)).toBe("FNC04");
  });

  test("enter and write in one statement, also where no row is written", async () => {
    const { table, resource } = await db.guarded(42);
    expect(await oneStatement(table, resource, 42, "one")).toBe("00000");
    expect(await oneStatement(table, resource, 41)).toBe("FNC01");
    expect(await value(table)).toBe("one");
    const nothing = `update ${table} set v = 'x' where id = 99 and (select fenceline.enter($1, $2))`;
    expect(await stateOf(worker.query(nothing, [resource, "42"]))).toBe("00000");
    expect(await stateOf(worker.query(nothing, [resource, "41"]))).toBe("FNC01");
  });

  test("FM-06 a holder writes many times under one token, at once", async () => {
    const { table, resource } = await db.guarded(41);
    const clients = await Promise.all(Array.from({ length: 10 }, () => db.as("worker")));
    const states = await Promise.all(
      clients.map((client, index) =>
        transact(client, { token: 41, resource }, `insert into ${table} (id) values (${100 + index})`),
      ),
    );
    expect(states).toEqual(Array.from({ length: 10 }, () => "00000"));
    expect(await db.mark(resource)).toMatchObject({ used: "41", refused: "0" });
  });

  test("several resources in one transaction, each with its own token", async () => {
    const a = await db.guarded(7);
    const b = await db.guarded(9);
    await worker.query("begin");
    await worker.query("select fenceline.enter($1, 7), fenceline.enter($2, 9)", [a.resource, b.resource]);
    await worker.query(`update ${a.table} set v = 'a'; update ${b.table} set v = 'b'`);
    await worker.query("commit");
    expect([await value(a.table), await value(b.table)]).toEqual(["a", "b"]);
    expect(await transact(worker, { token: 7, resource: a.resource }, `update ${b.table} set v = 'x'`)).toBe(
      "FNC02",
    );
  });

  test("FM-38 numbers at the edge", async () => {
    const { table, resource } = await db.guarded(1);
    await db.advance(resource, 9_007_199_254_740_993n);
    expect(await oneStatement(table, resource, "9007199254740992")).toBe("FNC01");
    expect(await oneStatement(table, resource, "9007199254740993")).toBe("00000");
    await db.advance(resource, 9_223_372_036_854_775_807n);
    expect(await oneStatement(table, resource, "9223372036854775807")).toBe("00000");
    expect(await db.mark(resource)).toMatchObject({ granted: "9223372036854775807" });
    for (const [text, state] of [
      ["0", "22023"],
      ["-1", "22023"],
      ["1e3", "22P02"],
      ["0x2a", "22P02"],
      ["9223372036854775808", "22003"],
    ] as const)
      expect([text, await oneStatement(table, resource, text)]).toEqual([text, state]);
    expect(await stateOf(worker.query("select fenceline.enter($1, null)", [resource]))).toBe("FNC02");
  });

  test("S1-28 every refusal has its code as message, one JSON object as detail, and a hint", async () => {
    const { resource } = await db.guarded(42);
    const error = await worker.query("select fenceline.enter($1, 41)", [resource]).catch((e: unknown) => e);
    expect(error).toMatchObject({ code: "FNC01", message: "stale_fencing_token", severity: "ERROR" });
    const { detail, hint } = error as { detail: string; hint: string };
    expect(JSON.parse(detail)).toEqual({ resource, offered: "41", accepted: "42" });
    expect(hint).toContain("do not try it again");
    const unknown = await worker.query("select fenceline.enter('no/where', 1)").catch((e: unknown) => e);
    expect(unknown).toMatchObject({ code: "FNC03", message: "unknown_resource" });
  });

  test("an unclean end, a savepoint and a RESET leave nothing that could be used", async () => {
    const { table, resource } = await db.guarded(42);
    const write = `update ${table} set v = 's'`;
    expect(
      await transact(worker, { token: 42, resource }, "savepoint a", write, "rollback to a", write),
    ).toBe("00000");
    expect(
      await transact(
        worker,
        { resource },
        "savepoint a",
        `select fenceline.enter('${resource}', 42)`,
        "rollback to a",
        write,
      ),
    ).toBe("FNC02");
    expect(await transact(worker, { token: 42, resource }, "reset all", write)).toBe("FNC02");
    expect(await transact(worker, { token: 42, resource })).toBe("00000");
    expect(await stateOf(worker.query(write))).toBe("FNC02");
  });

  test("a read only transaction cannot enter", async () => {
    const { resource } = await db.guarded(42);
    expect(
      await transact(
        worker,
        { resource },
        "set transaction read only",
        `select fenceline.enter('${resource}', 42)`,
      ),
    ).toBe("25006");
  });
});

describe("a claim made by hand", () => {
  const settingOf = async (resource: string): Promise<string> => {
    const { rows } = await db.admin.query(
      "select 'fenceline.c' || id as name from fenceline.mark where resource = $1",
      [resource],
    );
    return rows[0].name;
  };

  test.for(["42", "0:42", `${"0".repeat(64)}:42`])("of the form %s gains nothing", async (claim) => {
    const { table, resource } = await db.guarded(42);
    const name = await settingOf(resource);
    expect(
      await transact(
        worker,
        { resource },
        `select set_config('${name}', '${claim}', true)`,
        `update ${table} set v = 'x'`,
      ),
    ).toBe("FNC02");
    expect(
      await transact(worker, { resource }, `set session ${name} = '${claim}'`, `update ${table} set v = 'x'`),
    ).toBe("FNC02");
    await worker.query(`reset ${name}`);
  });

  test("with the right transaction and token, but without the proof", async () => {
    const { table, resource } = await db.guarded(42);
    const name = await settingOf(resource);
    const forged = `select set_config('${name}', repeat('a', 64) || ':42', true)`;
    expect(await transact(worker, { resource }, forged, `update ${table} set v = 'x'`)).toBe("FNC02");
  });

  test("a claim of another transaction is none", async () => {
    const { table, resource } = await db.guarded(42);
    const name = await settingOf(resource);
    await worker.query("begin");
    await worker.query("select fenceline.enter($1, 42)", [resource]);
    const claim = (await worker.query(`select current_setting('${name}') as claim`)).rows[0].claim;
    await worker.query("commit");
    expect(
      await transact(
        worker,
        { resource },
        `select set_config('${name}', '${claim}', true)`,
        `update ${table} set v = 'x'`,
      ),
    ).toBe("FNC02");
  });

  test("S1-26 a claim that was right, put back after the lock was given back and the mark moved on", async () => {
    const { table, resource } = await db.guarded(41);
    const name = await settingOf(resource);
    await worker.query("begin");
    await worker.query("savepoint a");
    await worker.query("select fenceline.enter($1, 41)", [resource]);
    const claim = (await worker.query(`select current_setting('${name}') as claim`)).rows[0].claim;
    await worker.query("rollback to a");
    // Nothing is held any more: this does not wait.
    await db.advance(resource, 42);
    await worker.query(`select set_config('${name}', '${claim}', true)`);
    expect(await stateOf(worker.query(`update ${table} set v = 'x'`))).toBe("FNC01");
    await worker.query("rollback");
  });
});

describe("names of the caller's own", () => {
  test("that shadow operators and functions change nothing", async () => {
    const { table, resource } = await db.guarded(42);
    await db.admin.query(`create schema if not exists evil authorization worker;
      grant create on database ${db.name} to worker`);
    await worker.query(`set search_path = evil, pg_temp, pg_catalog, public;
      create function evil.yes(bigint, bigint) returns boolean language sql as 'select true';
      create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.yes);
      create function evil.yes(text, text) returns boolean language sql as 'select true';
      create operator evil.= (leftarg = text, rightarg = text, function = evil.yes);
      create function evil.hashtext(text) returns integer language sql as 'select 0';
      create function evil.sha256(bytea) returns bytea language sql as $$ select ''::bytea $$;
      create function evil.current_setting(text, boolean) returns text language sql as $$ select 'x' $$;
      create temp table mark (resource text, granted bigint)`);
    const write = `update ${table} set v = 'x'`;
    expect(await transact(worker, { token: 41, resource }, write)).toBe("FNC01");
    expect(await stateOf(worker.query(write))).toBe("FNC02");
    expect(await transact(worker, { token: 42, resource }, write)).toBe("00000");
    await worker.query("reset search_path; drop table pg_temp.mark");
  });
});

describe("Once", () => {
  const once = async (token: number, advance = "OnGrant") => {
    const guarded = await db.guarded(token);
    await db.admin.query("select fenceline.configure($1, 'Once', $2)", [guarded.resource, advance]);
    return guarded;
  };

  test("FM-06 one of ten is accepted, the others have used it already and are not stale", async () => {
    const { table, resource } = await once(41);
    const clients = await Promise.all(Array.from({ length: 10 }, () => db.as("worker")));
    const states = await Promise.all(
      clients.map((client) => transact(client, { token: 41, resource }, `update ${table} set v = 'once'`)),
    );
    expect(states.toSorted()).toEqual(["00000", ...Array.from({ length: 9 }, () => "FNC08")]);
    expect(await db.mark(resource)).toMatchObject({ granted: "41", used: "41", refused: "9" });
    expect(await oneStatement(table, resource, 40)).toBe("FNC01");
    await db.advance(resource, 42);
    expect(await oneStatement(table, resource, 42)).toBe("00000");
  });

  test("the grant itself uses nothing up, and a rollback neither", async () => {
    const { table, resource } = await once(41);
    expect(await db.mark(resource)).toMatchObject({ granted: "41", used: "0" });
    expect(await transact(worker, { token: 41, resource }, "select 1 / 0")).toBe("22012");
    expect(await oneStatement(table, resource, 41)).toBe("00000");
    expect(await oneStatement(table, resource, 41)).toBe("FNC08");
  });

  test("one transaction may enter again and write several statements", async () => {
    const { table, resource } = await once(41);
    const again = `update ${table} set v = 'x' where (select fenceline.enter('${resource}', 41))`;
    expect(await transact(worker, { resource }, again, again, `delete from ${table} where id = 3`)).toBe(
      "00000",
    );
    expect(await oneStatement(table, resource, 41)).toBe("FNC08");
  });

  test("a claim saved from a savepoint does not make a second effect", async () => {
    const { table, resource } = await once(41);
    const name = (
      await db.admin.query("select 'fenceline.c' || id as name from fenceline.mark where resource = $1", [
        resource,
      ])
    ).rows[0].name;
    const other = await db.as("worker");
    await worker.query("begin");
    await worker.query("savepoint a");
    await worker.query("select fenceline.enter($1, 41)", [resource]);
    const claim = (await worker.query(`select current_setting('${name}') as claim`)).rows[0].claim;
    await worker.query("rollback to a");
    expect(await transact(other, { token: 41, resource }, `update ${table} set v = 'first'`)).toBe("00000");
    await worker.query(`select set_config('${name}', '${claim}', true)`);
    expect(await stateOf(worker.query(`update ${table} set v = 'second'`))).toBe("FNC08");
    await worker.query("rollback");
  });

  test("what Hold used stays used when the mode changes", async () => {
    const { table, resource } = await db.guarded(41);
    expect(await oneStatement(table, resource, 41)).toBe("00000");
    await db.admin.query("select fenceline.configure($1, 'Once', 'OnGrant')", [resource]);
    expect(await oneStatement(table, resource, 41)).toBe("FNC08");
  });
});

describe("OnFirstWrite", () => {
  test("S1-29 a guard without an issuer: the first token is any, 0 is the bound below", async () => {
    const { table, resource } = await db.guarded();
    expect(await db.mark(resource)).toMatchObject({ granted: "0", used: "0", closing: null });
    expect(await oneStatement(table, resource, 0)).toBe("22023");
    expect(await oneStatement(table, resource, 41)).toBe("00000");
    expect(await oneStatement(table, resource, 43)).toBe("00000");
    expect(await oneStatement(table, resource, 42)).toBe("FNC01");
    expect(await db.mark(resource)).toMatchObject({ granted: "43", used: "43" });
  });

  test("a raise that is rolled back is none", async () => {
    const { table, resource } = await db.guarded();
    expect(await transact(worker, { token: 50, resource }, "select 1 / 0")).toBe("22012");
    expect(await oneStatement(table, resource, 41)).toBe("00000");
  });

  test("the first advance brings OnGrant", async () => {
    const { table, resource } = await db.guarded();
    expect(await oneStatement(table, resource, 41)).toBe("00000");
    await db.advance(resource, 42);
    expect(await oneStatement(table, resource, 43)).toBe("FNC04");
    expect(await oneStatement(table, resource, 42)).toBe("00000");
  });

  test("chosen with an issuer it stays", async () => {
    const { table, resource } = await db.guarded(42);
    await db.admin.query("select fenceline.configure($1, 'Hold', 'OnFirstWrite')", [resource]);
    expect(await oneStatement(table, resource, 44)).toBe("00000");
    expect(await oneStatement(table, resource, 43)).toBe("FNC01");
  });

  test("two sessions that raise to the same token do not end in a deadlock", async () => {
    const { table, resource } = await db.guarded();
    const [a, b] = [await db.as("worker"), await db.as("worker")];
    for (let token = 1; token <= 40; token += 1) {
      const states = await Promise.all(
        [a, b].map((client, index) =>
          transact(client, { token, resource }, `update ${table} set v = '${token}' where id = ${index + 1}`),
        ),
      );
      expect(states).toEqual(["00000", "00000"]);
    }
  });
});
