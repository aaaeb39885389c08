import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Client } from "pg";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { isolationLevels, stress, stressed, without } from "../support/postgres/stress.ts";
import { type FencedDatabase, fencedDatabase, issuerName, stateOf } from "../support/postgres/world.ts";

let server: PostgresServer;
const long = process.env["FENCELINE_LONG"] === "1";
const forMs = long ? 120_000 : 2_500;
const timeout = forMs + 60_000;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
});

afterAll(() => server[Symbol.asyncDispose]());

const rowLock = [/ for share/, ""] as const;
const sharedGate = [/pg_advisory_xact_lock_shared\(\d+, hashtext\(\$1\)\) is null/, "false"] as const;
const ownGate = [/perform pg_advisory_xact_lock\(\d+, hashtext\(\$1\)\);/, ""] as const;

describe("once an advance has returned, nothing lower appears any more", () => {
  test.for(isolationLevels)("S1-26 FM-23 S1-64 at %s", { timeout }, async (isolation) => {
    await using db = await fencedDatabase(server);
    const result = await stress(db, await stressed(db), { isolation, forMs });
    expect(result).toMatchObject({ violations: 0 });
    expect(Object.keys(result.refusals).filter((state) => !["FNC01", "40001"].includes(state))).toEqual([]);
    expect(result.refusals["FNC01"]).toBeGreaterThan(0);
    expect(result.commits).toBeGreaterThan(0);
  });

  test("also where an administrator moves the mark with an UPDATE", { timeout }, async () => {
    await using db = await fencedDatabase(server);
    const options = { isolation: "repeatable read", forMs, byHand: true, writers: 3 } as const;
    expect(await stress(db, await stressed(db), options)).toMatchObject({ violations: 0 });
  });
});

describe("with a rule taken out, the same harness finds it", () => {
  const found = { violations: 1 };
  const hunt = { forMs: 60_000, untilViolated: true } as const;

  test("S1-09 guard removed", { timeout: 120_000 }, async () => {
    await using db = await fencedDatabase(server);
    const guarded = await stressed(db);
    await db.admin.query(`select fenceline.unguard('${guarded.table}_log')`);
    await without(db, { enter: [[/begin/, "begin return true;"]] });
    expect(await stress(db, guarded, { ...hunt, isolation: "read committed" })).toMatchObject(found);
  });

  test("S1-26 plain read", { timeout: 120_000 }, async () => {
    await using db = await fencedDatabase(server);
    const guarded = await stressed(db);
    await without(db, { enter: [sharedGate, rowLock], enter_slowly: [rowLock], judge: [rowLock] });
    expect(await stress(db, guarded, { ...hunt, isolation: "read committed" })).toMatchObject(found);
  });

  test("gate only, above READ COMMITTED", { timeout: 120_000 }, async () => {
    await using db = await fencedDatabase(server);
    const guarded = await stressed(db);
    await without(db, { enter: [rowLock], enter_slowly: [rowLock], judge: [rowLock] });
    expect(await stress(db, guarded, { ...hunt, isolation: "serializable" })).toMatchObject(found);
  });

  test("FOR KEY SHARE, which an UPDATE does not wait for", { timeout: 120_000 }, async () => {
    await using db = await fencedDatabase(server);
    const guarded = await stressed(db);
    const weaker = [/ for share/, " for key share"] as const;
    await without(db, { enter: [weaker], enter_slowly: [weaker], judge: [weaker] });
    const options = { ...hunt, isolation: "repeatable read", byHand: true, writers: 3 } as const;
    expect(await stress(db, guarded, options)).toMatchObject(found);
  });
});

describe("a living holder of the past does not hold an advance up", () => {
  /** How often two connections of it can take turns, so that one is always inside, after an advance began to wait. */
  const turns = async (db: FencedDatabase, most: number): Promise<number> => {
    const { resource } = await db.guarded(9);
    let [inside, next] = [await db.as("worker"), await db.as("worker")];
    const issuer = await db.as("postgres");
    const { pid } = (await issuer.query("select pg_backend_pid() as pid")).rows[0];
    const enter = async (client: Client) => {
      await client.query("begin; set local lock_timeout = '200ms'");
      return stateOf(client.query("select fenceline.enter($1, 9)", [resource]));
    };
    await enter(inside);
    const advance = issuer.query("select fenceline.advance($1, 10, 'pod:x/1', $2)", [resource, issuerName]);
    await expect
      .poll(
        async () =>
          (await db.admin.query("select from pg_locks where pid = $1 and not granted", [pid])).rowCount,
        { timeout: 20_000 },
      )
      .toBe(1);
    let taken = 0;
    while (taken < most && (await enter(next)) === "00000") {
      await inside.query("commit");
      [inside, next] = [next, inside];
      taken += 1;
    }
    await Promise.all([inside.query("rollback"), next.query("rollback")]);
    await advance;
    return taken;
  };

  test("S1-64 who comes after the advance waits for it", async () => {
    await using db = await fencedDatabase(server);
    expect(await turns(db, 20)).toBe(0);
  });

  test("row lock only: the same holder goes on and on", async () => {
    await using db = await fencedDatabase(server);
    await without(db, { enter: [sharedGate], advance: [ownGate] });
    expect(await turns(db, 20)).toBe(20);
  });
});
