import { afterEach, beforeEach, describe, expect, inject, test } from "vitest";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { fencedDatabase, type Guarded, issuerName, stateOf, transact } from "../support/postgres/world.ts";

let servers: AsyncDisposableStack;
let primary: PostgresServer;
let name: string;
let guarded: Guarded;

const use = (server: PostgresServer): PostgresServer => servers.use(server);

/** One database whose resource stands at 42, with one row written by it. */
beforeEach(async () => {
  servers = new AsyncDisposableStack();
  primary = use(await startServer(inject("postgres")));
  await using db = await fencedDatabase(primary);
  name = db.name;
  guarded = await db.guarded(42);
  await db.admin.query("select fenceline.sequence_open('shop/numbers', 64, $1)", [issuerName]);
  await write(primary, 42);
});

afterEach(() => servers.disposeAsync());

/** The very first statement of a new connection: enter and write in one. */
const write = async (server: PostgresServer, token: number, database = name): Promise<string> => {
  const client = await server.connect(database, "worker");
  try {
    return await stateOf(
      client.query(`update ${guarded.table} set v = $3 where (select fenceline.enter($1, $2))`, [
        guarded.resource,
        String(token),
        String(token),
      ]),
    );
  } finally {
    await client.end();
  }
};

const closingOf = (server: PostgresServer, database = name): Promise<string | null> =>
  server.admin(
    async (client) =>
      (await client.query("select closing from fenceline.mark($1)", [guarded.resource])).rows[0].closing,
    database,
  );

const advance = (server: PostgresServer, token: number, database = name) =>
  server.admin(
    (client) =>
      stateOf(
        client.query("select fenceline.advance($1, $2, 'pod:b/1', $3)", [
          guarded.resource,
          token,
          issuerName,
        ]),
      ),
    database,
  );

const reopen = (
  server: PostgresServer,
  token: number,
  closing: string | null,
  database = name,
): Promise<boolean> =>
  server.admin(
    async (client) =>
      (
        await client.query("select fenceline.reopen($1, $2, 'pod:b/1', $3, $4) as opened", [
          guarded.resource,
          token,
          closing,
          issuerName,
        ])
      ).rows[0].opened,
    database,
  );

const sequence = (server: PostgresServer) =>
  server.admin(async (client) => {
    const state = await client.query(
      "select ceiling::text, copied from fenceline.sequence_state('shop/numbers')",
    );
    const block = await client.query("select base::text from fenceline.reserve('shop/numbers', 1, 0, $1)", [
      issuerName,
    ]);
    return { ...state.rows[0], reserved: block.rows[0]?.base };
  }, name);

/** Closed from the first statement on, to workers and issuer, until it is opened by what closed it. */
const expectClosed = async (server: PostgresServer, database = name) => {
  expect(await write(server, 42, database)).toBe("FNC07");
  expect(await write(server, 43, database)).toBe("FNC07");
  expect(await advance(server, 43, database)).toBe("FNC07");
  const closing = await closingOf(server, database);
  expect(closing).not.toBeNull();
  expect(await reopen(server, 43, null, database)).toBe(false);
  expect(await reopen(server, 43, `${closing}0`, database)).toBe(false);
  expect(await reopen(server, 43, closing, database)).toBe(true);
  expect(await reopen(server, 43, closing, database)).toBe(false);
  expect(await closingOf(server, database)).toBeNull();
  expect(await write(server, 42, database)).toBe("FNC01");
  expect(await write(server, 43, database)).toBe("00000");
};

describe("closed from the first statement on", () => {
  test("after a restart", async () => {
    await primary.restart();
    await expectClosed(primary);
    expect(await sequence(primary)).toMatchObject({ copied: false, reserved: "64" });
  });

  test("after a crash, with the mark as it was told", async () => {
    expect(await advance(primary, 50)).toBe("00000");
    await primary.restart("immediate");
    const closing = await closingOf(primary);
    expect(await write(primary, 50)).toBe("FNC07");
    expect(await reopen(primary, 43, closing)).toBe(true);
    expect(await write(primary, 43)).toBe("FNC01");
    expect(await write(primary, 50)).toBe("00000");
  });

  test("in a cold copy, and where a snapshot of the volume is put back", async () => {
    await primary.stop();
    const copy = use(await primary.copy());
    await primary.start();
    await reopen(primary, 42, await closingOf(primary));
    await copy.start();
    await expectClosed(copy);
    expect(await write(primary, 42)).toBe("00000");
  });

  test("in a base backup that is started", async () => {
    const backup = use(await primary.backup(false));
    await backup.start();
    await expectClosed(backup);
    expect(await write(primary, 42)).toBe("00000");
  });

  test("in a standby that is promoted, in the same process", async () => {
    const standby = use(await primary.backup(true));
    await standby.start();
    expect(await write(standby, 42)).toBe("25006");
    await primary.stop();
    await standby.promote();
    await expectClosed(standby);
    expect(await sequence(standby)).toEqual({ ceiling: "64", copied: true, reserved: undefined });
  });

  test("in a database made from it, and not in the one it was made from", async () => {
    await primary.admin((client) => client.query(`create database twin template ${name}`));
    await expectClosed(primary, "twin");
    expect(await write(primary, 42)).toBe("00000");
  });

  test("where another database takes its name", async () => {
    await primary.admin(async (client) => {
      await client.query(`create database twin template ${name}`);
      await client.query(`alter database ${name} rename to away`);
      await client.query(`alter database twin rename to ${name}`);
    });
    await expectClosed(primary);
    expect(await write(primary, 42, "away")).toBe("00000");
  });
});

test("a server process that crashed closes nothing and forgets nothing", async () => {
  const client = await primary.connect(name, "worker");
  await primary.admin((admin) => admin.query("alter role all set synchronous_commit = off"));
  expect(await advance(primary, 50)).toBe("00000");
  const { rows } = await client.query("select pg_backend_pid() as pid");
  process.kill(rows[0].pid, "SIGKILL");
  await expect.poll(() => write(primary, 50).catch(() => "no connection"), { timeout: 20_000 }).toBe("00000");
  expect(await write(primary, 42)).toBe("FNC01");
  await client.end().catch(() => undefined);
});

test("FM-31 a standby that lags is promoted: what it forgot stays dead", async () => {
  const standby = use(await primary.backup(true));
  await standby.start();
  await standby.stop();
  // Granted and used while the standby was away.
  expect(await advance(primary, 45)).toBe("00000");
  expect(await sequence(primary)).toMatchObject({ reserved: "64" });
  expect(await write(primary, 45)).toBe("00000");
  await primary.stop("immediate");
  await standby.start();
  await standby.promote();
  // It believes in 42 and has handed out nothing above 64.
  expect(await write(standby, 42)).toBe("FNC07");
  expect(await sequence(standby)).toEqual({ ceiling: "64", copied: true, reserved: undefined });
  expect(await reopen(standby, 45, await closingOf(standby))).toBe(true);
  for (const token of [42, 43, 44]) expect(await write(standby, token)).toBe("FNC01");
  expect(await write(standby, 45)).toBe("00000");
  const opened = await standby.admin(
    (client) =>
      client.query("select base::text from fenceline.sequence_open('shop/numbers', 65, $1)", [issuerName]),
    name,
  );
  expect(opened.rows).toEqual([{ base: "65" }]);
  expect(await sequence(standby)).toEqual({ ceiling: "65", copied: false, reserved: "65" });
});

test("FM-30 restored from a backup: 31 to 41 stay dead", async () => {
  await primary.admin(
    (client) => client.query("update fenceline.mark set granted = 30, attempt = 'pod:a/30'"),
    name,
  );
  const backup = use(await primary.backup(false));
  await primary.admin(
    (client) => client.query("update fenceline.mark set granted = 42, attempt = 'pod:a/42'"),
    name,
  );
  await primary.stop();
  await backup.start();
  for (const token of [30, 41, 42]) expect(await write(backup, token)).toBe("FNC07");
  expect(await reopen(backup, 42, await closingOf(backup))).toBe(true);
  for (const token of [30, 31, 41]) expect(await write(backup, token)).toBe("FNC01");
  expect(await write(backup, 42)).toBe("00000");
});

test("a resource without an issuer is not closed: nobody could open it", async () => {
  await using db = await fencedDatabase(primary);
  const { table, resource } = await db.guarded();
  const worker = await db.as("worker");
  expect(await transact(worker, { token: 5, resource }, `update ${table} set v = 'x'`)).toBe("00000");
  await primary.restart();
  const again = await primary.connect(db.name, "worker");
  expect(await transact(again, { token: 5, resource }, `update ${table} set v = 'y'`)).toBe("00000");
  expect(await transact(again, { token: 4, resource }, `update ${table} set v = 'z'`)).toBe("FNC01");
  await again.end();
});

test("S1-20 nextval as a source comes back after a crash, reserve does not", async () => {
  // Commits that nobody waits for, as roles are often set, and nobody else who writes the log.
  await primary.admin(async (client) => {
    await client.query("alter system set wal_writer_delay = '10s'");
    await client.query("alter system set autovacuum = off");
    await client.query("alter role issuer set synchronous_commit = off");
    await client.query("create sequence numbers; grant usage on sequence numbers to issuer");
  }, name);
  await primary.restart();
  const takeThenCrash = async (statement: string): Promise<string> => {
    const client = await primary.connect(name, "issuer");
    const { rows } = await client.query(statement);
    const crash = primary.restart("immediate");
    await client.end().catch(() => undefined);
    await crash;
    return rows[0].value;
  };
  const reserve = `select ceiling::text as value from fenceline.reserve('shop/numbers', 1, 0, '${issuerName}')`;
  const bare: string[] = [];
  const reserved: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    bare.push(await takeThenCrash("select nextval('numbers')::text as value"));
    reserved.push(await takeThenCrash(reserve));
  }
  expect(new Set(bare).size).toBeLessThan(bare.length);
  expect(reserved).toEqual(["65", "66", "67"]);
});
