import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { isolationLevels, stress, stressed, without } from "../support/postgres/stress.ts";
import { type FencedDatabase, fencedDatabase, issuerName } from "../support/postgres/world.ts";

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
  /** Commits under the old token after the advance was asked for, until it came through or there were `most`. */
  const commitsMeanwhile = async (db: FencedDatabase, most: number): Promise<number> => {
    const { table, resource } = await stressed(db);
    const run = { commits: 0, asked: false, over: false };
    const writer = async () => {
      const client = await db.as("worker");
      while (!run.over)
        try {
          await client.query("begin");
          await client.query("select fenceline.enter($1, 9)", [resource]);
          await client.query(`insert into ${table}_log values (9); select pg_sleep(0.005)`);
          await client.query("commit");
          if (run.asked) run.commits += 1;
          run.over ||= run.commits >= most;
        } catch {
          await client.query("rollback");
        }
    };
    const writers = Promise.all(Array.from({ length: 8 }, writer));
    const issuer = await db.as("postgres");
    await expect
      .poll(async () => (await issuer.query(`select from ${table}_log`)).rowCount)
      .toBeGreaterThan(20);
    run.asked = true;
    await issuer.query("select fenceline.advance($1, 10, 'pod:x/1', $2)", [resource, issuerName]);
    run.over = true;
    await writers;
    return run.commits;
  };

  test("S1-64 each finishes what it began", async () => {
    await using db = await fencedDatabase(server);
    expect(await commitsMeanwhile(db, 200)).toBeLessThanOrEqual(16);
  });

  test("row lock only: the same holders go on and on", async () => {
    await using db = await fencedDatabase(server);
    await without(db, { enter: [sharedGate], advance: [ownGate] });
    expect(await commitsMeanwhile(db, 200)).toBeGreaterThanOrEqual(200);
  });
});
