import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Client } from "pg";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { isolationLevels } from "../support/postgres/stress.ts";
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
let helper: Client;

beforeAll(async () => {
  server = await startServer(inject("postgres"), { settings: { max_prepared_transactions: "5" } });
  db = await fencedDatabase(server);
  issuer = await db.as("issuer");
  helper = await db.as("issuer");
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const pidOf = async (client: Client): Promise<number> =>
  (await client.query("select pg_backend_pid() as pid")).rows[0].pid;

const waits = (pid: number) =>
  expect
    .poll(
      async () =>
        (await db.admin.query("select wait_event_type from pg_stat_activity where pid = $1", [pid])).rows[0]
          ?.wait_event_type,
      { timeout: 20_000 },
    )
    .toBe("Lock");

/** Sends an advance, and resolves when it waits. What it becomes is in `state`. */
const waitingAdvance = async (
  resource: string,
  token = 43,
  client = issuer,
): Promise<{ pid: number; state: Promise<string> }> => {
  const pid = await pidOf(client);
  const state = stateOf(
    client.query("select fenceline.advance($1, $2, 'pod:b/1', $3)", [resource, token, issuerName]),
  );
  await waits(pid);
  return { pid, state };
};

const evict = async (pid: number, client = helper) =>
  (await client.query("select * from fenceline.evict($1)", [pid])).rows;

/** A holder inside its transaction. */
const holding = async (
  resource: string,
  table: string,
  isolation = "read committed",
  user: "worker" | "postgres" = "worker",
) => {
  const client = await db.as(user);
  await client.query(`begin isolation level ${isolation}`);
  await client.query("select fenceline.enter($1, 42)", [resource]);
  await client.query(`update ${table} set v = 'held' where id = 1`);
  return client;
};

const value = async (table: string) =>
  (await db.admin.query(`select v from ${table} where id = 1`)).rows[0].v;

describe("a holder inside its transaction when the mark is to move", () => {
  test.for(isolationLevels)("FM-23 commits before the mark moves, at %s", async (isolation) => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table, isolation);
    const { state } = await waitingAdvance(resource);
    // It may enter again, in a savepoint too, while others wait for it.
    await holder.query("savepoint a");
    await holder.query("select fenceline.enter($1, 42)", [resource]);
    await holder.query(`update ${table} set v = 'more' where id = 1`);
    expect(await stateOf(holder.query("commit"))).toBe("00000");
    expect(await state).toBe("00000");
    expect(await value(table)).toBe("more");
    expect(await transact(holder, { token: 42, resource }, `update ${table} set v = 'late'`)).toBe("FNC01");
  });

  test.for(isolationLevels)("FM-23 is ended by evict, and its COMMIT fails, at %s", async (isolation) => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table, isolation);
    const holderPid = await pidOf(holder);
    const { pid, state } = await waitingAdvance(resource);
    expect(await evict(pid)).toEqual([{ blocker: holderPid, prepared: null, ended: true }]);
    expect(await state).toBe("00000");
    await expect(holder.query("commit")).rejects.toThrow(/terminat|Connection|connection/);
    expect(await value(table)).toBeNull();
  });

  test("all of them are ended in one call", async () => {
    const { resource, table } = await db.guarded(42);
    const holders = await Promise.all(
      [1, 2, 3].map(async (id) => {
        const client = await db.as("worker");
        await client.query("begin");
        await client.query("select fenceline.enter($1, 42)", [resource]);
        await client.query(`update ${table} set v = 'held' where id = ${id}`);
        return pidOf(client);
      }),
    );
    const { pid, state } = await waitingAdvance(resource);
    const ended = await evict(pid);
    expect(new Set(ended.map(({ blocker }) => blocker))).toEqual(new Set(holders));
    expect(ended.every((row) => row.ended)).toBe(true);
    expect(await state).toBe("00000");
  });

  test("who came to wait behind the advance is refused when it has passed", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table);
    const { state } = await waitingAdvance(resource);
    const late = await db.as("worker");
    const latePid = await pidOf(late);
    const lateState = transact(late, { token: 42, resource }, `update ${table} set v = 'late'`);
    await waits(latePid);
    await holder.query("commit");
    expect(await state).toBe("00000");
    expect(await lateState).toBe("FNC01");
  });

  test("an advance that gives up leaves everything as it was", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table);
    const client = await db.as("issuer");
    await client.query("set lock_timeout = '100ms'");
    expect(
      await stateOf(client.query("select fenceline.advance($1, 43, 'pod:b/1', $2)", [resource, issuerName])),
    ).toBe("55P03");
    expect(await stateOf(holder.query("commit"))).toBe("00000");
    expect(await transact(holder, { token: 42, resource }, `update ${table} set v = 'again'`)).toBe("00000");
  });
});

describe("evict", () => {
  test("ends nobody but who blocks a waiting advance of its own login", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table);
    const holderPid = await pidOf(holder);
    const bystander = await db.as("worker");
    // Not waiting at all; another login's advance; a session that waits for something else.
    expect(await evict(await pidOf(bystander))).toEqual([]);
    expect(await evict(holderPid)).toEqual([]);
    const foreign = await waitingAdvance(resource, 43, await db.as("postgres"));
    expect(await evict(foreign.pid)).toEqual([]);
    const other = await db.as("worker");
    const otherPid = await pidOf(other);
    await other.query("begin");
    const stuck = stateOf(other.query(`select from ${table} where id = 1 for update`));
    await waits(otherPid);
    expect(await evict(otherPid)).toEqual([]);
    expect(await stateOf(helper.query("select pg_terminate_backend($1)", [holderPid]))).toBe("42501");
    expect(await stateOf(holder.query("commit"))).toBe("00000");
    expect([await foreign.state, await stuck]).toEqual(["00000", "00000"]);
    await other.query("rollback");
  });

  test("does not end another advance that waits for the same holder", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table);
    const holderPid = await pidOf(holder);
    const first = await waitingAdvance(resource, 43);
    const second = await waitingAdvance(resource, 44, await db.as("issuer"));
    expect(await evict(second.pid)).toEqual([{ blocker: holderPid, prepared: null, ended: true }]);
    expect([await first.state, await second.state]).toEqual(["00000", "00000"]);
  });

  test("ends a stranger who holds the gate", async () => {
    const { resource } = await db.guarded(42);
    const stranger = await db.as("reader");
    await stranger.query("begin");
    await stranger.query("select pg_advisory_xact_lock_shared($1, hashtext($2))", [0x464e434c, resource]);
    const { pid, state } = await waitingAdvance(resource);
    expect(await evict(pid)).toEqual([expect.objectContaining({ ended: true })]);
    expect(await state).toBe("00000");
  });

  test("names a superuser's session, which it may not end", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table, "read committed", "postgres");
    const { pid, state } = await waitingAdvance(resource);
    expect(await evict(pid)).toEqual([{ blocker: await pidOf(holder), prepared: null, ended: false }]);
    await holder.query("commit");
    expect(await state).toBe("00000");
  });

  test("names a prepared transaction, which has no session", async () => {
    const { resource, table } = await db.guarded(42);
    const holder = await holding(resource, table);
    await holder.query("prepare transaction 'forgotten'");
    const { pid, state } = await waitingAdvance(resource);
    expect(await evict(pid)).toEqual([{ blocker: 0, prepared: "forgotten", ended: false }]);
    await holder.query("commit prepared 'forgotten'");
    expect(await state).toBe("00000");
    expect(await value(table)).toBe("held");
  });
});

describe("a snapshot that is older than the advance", () => {
  const older = async (isolation: string, resource: string, token: number) => {
    const client = await db.as("worker");
    await client.query(`begin isolation level ${isolation}`);
    await client.query("select 1 from pg_class limit 1");
    await db.advance(resource, 43);
    const state = await stateOf(client.query("select fenceline.enter($1, $2)", [resource, token]));
    await client.query("rollback");
    return state;
  };

  test.for([
    ["read committed", 42, "FNC01"],
    ["read committed", 43, "00000"],
    ["repeatable read", 42, "40001"],
    ["repeatable read", 43, "40001"],
    ["serializable", 42, "40001"],
    ["serializable", 43, "40001"],
  ] as const)("FM-23 at %s, token %i: %s", async ([isolation, token, state]) => {
    const { resource, table } = await db.guarded(42);
    expect(await older(isolation, resource, token)).toBe(state);
    // 40001 is answered by a new transaction, and that one says what is true.
    const again = await db.as("worker");
    expect(await transact(again, { token, resource }, `update ${table} set v = 'x'`)).toBe(
      token === 42 ? "FNC01" : "00000",
    );
  });
});

test("two resources in opposite order, both advanced: nobody stays stuck, nothing late gets in", async () => {
  const a = await db.guarded(42);
  const b = await db.guarded(42);
  const [one, two] = [await db.as("worker"), await db.as("worker")];
  await one.query("begin");
  await two.query("begin");
  await one.query("select fenceline.enter($1, 42)", [a.resource]);
  await two.query("select fenceline.enter($1, 42)", [b.resource]);
  const advances = [
    (await waitingAdvance(a.resource)).state,
    (await waitingAdvance(b.resource, 43, await db.as("issuer"))).state,
  ];
  const finish = async (client: Client, resource: string) => {
    const state = await stateOf(client.query("select fenceline.enter($1, 42)", [resource]));
    await client.query("commit");
    return state;
  };
  const states = await Promise.all([finish(one, b.resource), finish(two, a.resource)]);
  expect(await Promise.all(advances)).toEqual(["00000", "00000"]);
  for (const state of states) expect(["00000", "FNC01", "40P01"]).toContain(state);
  expect(states).not.toEqual(["00000", "00000"]);
});
