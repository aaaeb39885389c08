import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { type Bouncer, startBouncer } from "../support/postgres/bouncer.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, stateOf, transact } from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let bouncer: Bouncer;

beforeAll(async () => {
  const lab = inject("postgres");
  server = await startServer(lab);
  db = await fencedDatabase(server);
  bouncer = await startBouncer(lab, server, 5);
});

afterAll(async () => {
  await bouncer[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

test("FM-32 100 clients on 5 connections: no token of one serves another", async () => {
  const { table, resource } = await db.guarded(42);
  const name = (
    await db.admin.query("select 'fenceline.c' || id as name from fenceline.mark where resource = $1", [
      resource,
    ])
  ).rows[0].name;
  const forged = `${"0".repeat(64)}:42`;
  const clients = await Promise.all(Array.from({ length: 100 }, () => db.as("worker", bouncer.port)));
  const states = await Promise.all(
    clients.map(async (client, index) => {
      const write = `insert into ${table} (id) values (${1000 + index})`;
      const seen: string[] = [];
      for (let round = 0; round < 10; round += 1) {
        const undo = `delete from ${table} where id = ${1000 + index}`;
        if (index % 2 === 0)
          seen.push(await transact(client, { token: 42, resource }, write, "select 1", undo));
        // Leaves its own invention behind on the server's connection, for whoever comes next.
        else seen.push(await stateOf(client.query(`set session ${name} = '${forged}'; ${write}`)));
      }
      return seen;
    }),
  );
  const outcomes = (parity: number) =>
    states.flatMap((seen, index) => (index % 2 === parity ? seen : [])).toSorted();
  expect(outcomes(0)).toEqual(Array.from({ length: 500 }, () => "00000"));
  expect(outcomes(1)).toEqual(Array.from({ length: 500 }, () => "FNC02"));
  expect(await db.mark(resource)).toMatchObject({ refused: "500" });
  const { rows } = await db.admin.query(
    "select count(*)::int as servers, (select count(*)::int from pg_locks where locktype = 'advisory') as locks from pg_stat_activity where usename = 'worker'",
  );
  expect(rows).toEqual([{ servers: 5, locks: 0 }]);
});

test("FM-32 the issuer's way in works through it, and one client's end frees what it held", async () => {
  const { table, resource } = await db.guarded(41);
  const worker = await db.as("worker", bouncer.port);
  await worker.query("begin");
  await worker.query("select fenceline.enter($1, 41)", [resource]);
  await worker.end();
  const issuer = await db.as("issuer", bouncer.port);
  await issuer.query("select fenceline.advance($1, 42, 'pod:b/1', 'cluster-1')", [resource]);
  const other = await db.as("worker", bouncer.port);
  const write = `update ${table} set v = 'x'`;
  expect(await transact(other, { token: 41, resource }, write)).toBe("FNC01");
  expect(await transact(other, { token: 42, resource }, write)).toBe("00000");
});
