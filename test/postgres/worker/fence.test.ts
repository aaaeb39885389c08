import { Pool, type PoolClient } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import {
  CommitUnknown,
  type Fence,
  type Isolation,
  RolledBack,
  withFence,
} from "../../../src/client/fence.ts";
import { FenceRefusal, StaleToken } from "../../../src/client/refusal.ts";
import { startTcpProxy, type TcpProxy } from "../../support/faultproxy/tcp.ts";
import { type Bouncer, startBouncer } from "../../support/postgres/bouncer.ts";
import { type PostgresServer, startServer } from "../../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, type Guarded } from "../../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let bouncer: Bouncer;
let proxy: TcpProxy;
let direct: Pool;
const pools: Pool[] = [];

const poolAt = (port: number, max = 10): Pool => {
  const pool = new Pool({ host: "127.0.0.1", port, user: "worker", database: db.name, max });
  // A pool tells of idle connections that break.
  pool.on("error", () => {});
  pools.push(pool);
  return pool;
};

beforeAll(async () => {
  const lab = inject("postgres");
  server = await startServer(lab);
  db = await fencedDatabase(server);
  bouncer = await startBouncer(lab, server, 5);
  proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: server.port } });
  direct = poolAt(server.port);
});
afterEach(() => {
  proxy.heal();
});
afterAll(async () => {
  await Promise.all(pools.map((pool) => pool.end()));
  await proxy[Symbol.asyncDispose]();
  await bouncer[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const values = async ({ table }: Guarded): Promise<(string | null)[]> =>
  (await db.admin.query(`select v from ${table} order by id`)).rows.map(({ v }) => v);

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => `no failure, but ${String(value)}`,
    (error: unknown) => error,
  );

/** Work that writes `v` everywhere, and how often it ran. */
const writing = (table: string, v: string) => {
  const work = async (client: PoolClient) => {
    work.runs += 1;
    return (await client.query(`update ${table} set v = $1`, [v])).rowCount;
  };
  work.runs = 0;
  return work;
};

describe("withFence", () => {
  test("S1-13 writes under its token, and gives back what the work returns", async () => {
    const guarded = await db.guarded(42);
    const work = writing(guarded.table, "mine");
    expect(await withFence(direct, { resource: guarded.resource, token: 42n }, work)).toBe(3);
    expect(await withFence(direct, { resource: guarded.resource, token: "42" }, work)).toBe(3);
    expect(await values(guarded)).toEqual(["mine", "mine", "mine"]);
  });

  test("S1-28 S1-48 S1-50 a stale token is a class of its own, and never tried again", async () => {
    const guarded = await db.guarded(42);
    const work = writing(guarded.table, "late");
    const error = await failureOf(withFence(direct, { resource: guarded.resource, token: 41n }, work));
    expect(error).toBeInstanceOf(StaleToken);
    expect(error).toMatchObject({
      code: "stale_fencing_token",
      resource: guarded.resource,
      offered: "41",
      accepted: "42",
    });
    expect(String(error)).toContain("stop this work");
    expect(work.runs).toBe(0);
    expect(await db.mark(guarded.resource)).toMatchObject({ refused: "1" });
    expect(await values(guarded)).toEqual([null, null, null]);
  });

  test("every other refusal is told apart", async () => {
    const [mine, other, once] = [await db.guarded(42), await db.guarded(7), await db.guarded(9)];
    await db.admin.query("select fenceline.configure($1, 'Once', 'OnGrant')", [once.resource]);
    const codeOf = async (fence: Fence, table: string) => {
      const error = await failureOf(withFence(direct, fence, writing(table, "x")));
      expect(error).not.toBeInstanceOf(StaleToken);
      return error instanceof FenceRefusal ? error.code : String(error);
    };
    expect(await codeOf({ resource: mine.resource, token: 42n }, other.table)).toBe("missing_fencing_token");
    expect(await codeOf({ resource: "shop/nowhere", token: 42n }, mine.table)).toBe("unknown_resource");
    expect(await codeOf({ resource: mine.resource, token: 43n }, mine.table)).toBe("token_never_issued");
    const fence = { resource: once.resource, token: 9n };
    await withFence(direct, fence, writing(once.table, "first"));
    expect(await codeOf(fence, once.table)).toBe("token_already_used");
    expect(await values(once)).toEqual(["first", "first", "first"]);
    await db.admin.query(
      "update fenceline.mark set started = started - interval '1 day' where resource = $1",
      [mine.resource],
    );
    expect(await codeOf({ resource: mine.resource, token: 42n }, mine.table)).toBe("boundary_closed");
  });

  test("several resources in one transaction: all or nothing", async () => {
    const [a, b] = [await db.guarded(5), await db.guarded(6)];
    const both = async (client: PoolClient) => {
      await client.query(`update ${a.table} set v = 'both'`);
      await client.query(`update ${b.table} set v = 'both'`);
    };
    const fences = [
      { resource: a.resource, token: 5n },
      { resource: b.resource, token: 6n },
    ];
    await withFence(direct, fences, both);
    await db.advance(b.resource, 7);
    expect(await failureOf(withFence(direct, fences, writing(a.table, "half")))).toBeInstanceOf(StaleToken);
    expect([...(await values(a)), ...(await values(b))]).toEqual(Array.from({ length: 6 }, () => "both"));
  });

  test("S1-66 one token used by many at once: Hold accepts all, Once exactly one", async () => {
    const [hold, once] = [await db.guarded(5), await db.guarded(5)];
    await db.admin.query("select fenceline.configure($1, 'Once', 'OnGrant')", [once.resource]);
    const insert = (table: string) => (_: unknown, index: number) =>
      failureOf(
        withFence(
          direct,
          { resource: table === hold.table ? hold.resource : once.resource, token: 5n },
          (client) =>
            client.query(`insert into ${table} (id) values ($1)`, [String(100 + index)]).then(() => "stored"),
        ),
      ).then((end) => (end instanceof FenceRefusal ? end.code : end));
    const ends = (table: string) => Promise.all(Array.from({ length: 8 }, insert(table)));
    expect(await ends(hold.table)).toEqual(Array.from({ length: 8 }, () => "no failure, but stored"));
    const used = await ends(once.table);
    expect(used.filter((end) => end === "no failure, but stored")).toHaveLength(1);
    expect(used.filter((end) => end === "token_already_used")).toHaveLength(7);
    const { rows } = await db.admin.query(`select count(*)::int as n from ${once.table} where id >= 100`);
    expect(rows).toEqual([{ n: 1 }]);
  });

  test.for(["042", "-1", "0", "1e3", "", "9223372036854775808"])("FM-38 %j is no token", async (token) => {
    const work = writing("nothing", "x");
    const error = await failureOf(withFence(direct, { resource: "shop/orders", token }, work));
    expect(error).toBeInstanceOf(TypeError);
    expect(String(error)).toContain("decimal digits");
    expect(work.runs).toBe(0);
  });

  test.for(["9007199254740993", "9223372036854775807"])("FM-38 %s arrives exactly", async (text) => {
    const guarded = await db.guarded();
    await db.advance(guarded.resource, BigInt(text));
    expect(
      await withFence(
        direct,
        { resource: guarded.resource, token: BigInt(text) },
        writing(guarded.table, "x"),
      ),
    ).toBe(3);
    expect(await db.mark(guarded.resource)).toMatchObject({ granted: text });
    const below = { resource: guarded.resource, token: BigInt(text) - 1n };
    expect(await failureOf(withFence(direct, below, writing(guarded.table, "y")))).toBeInstanceOf(StaleToken);
  });

  test("a right that its holder knows to be lost begins nothing", async () => {
    const guarded = await db.guarded(5);
    const lost = AbortSignal.abort(new Error("the deadline passed"));
    const work = writing(guarded.table, "x");
    const fence = { resource: guarded.resource, token: 5n, lost };
    expect(String(await failureOf(withFence(direct, fence, work)))).toContain("the deadline passed");
    expect(work.runs).toBe(0);
  });

  test("what the work throws is thrown on, and nothing is stored", async () => {
    const guarded = await db.guarded(5);
    const mine = new Error("no stock");
    const fence = { resource: guarded.resource, token: 5n };
    const error = await failureOf(
      withFence(direct, fence, async (client) => {
        await client.query(`update ${guarded.table} set v = 'half'`);
        throw mine;
      }),
    );
    expect(error).toBe(mine);
    expect(await values(guarded)).toEqual([null, null, null]);
  });

  test("a lost connection of the work's own errands is not that of the database: it runs once", async () => {
    const guarded = await db.guarded(5);
    let runs = 0;
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    const error = await failureOf(
      withFence(direct, { resource: guarded.resource, token: 5n }, async () => {
        runs += 1;
        throw reset;
      }),
    );
    expect(error).toBe(reset);
    expect(runs).toBe(1);
  });

  test("a failed statement that the work swallowed is no success", async () => {
    const guarded = await db.guarded(5);
    const error = await failureOf(
      withFence(direct, { resource: guarded.resource, token: 5n }, async (client) => {
        await client.query(`update ${guarded.table} set v = 'half'`);
        await client.query("select 1 / 0").catch(() => {});
      }),
    );
    expect(error).toBeInstanceOf(RolledBack);
    expect(await values(guarded)).toEqual([null, null, null]);
  });
});

describe("trouble that passes", () => {
  test.for<Isolation>(["repeatable read", "serializable"])(
    "S1-28 counters raised by ten at once at %s: each once, by trying again",
    async (isolation) => {
      const guarded = await db.guarded(5, { columns: "id int primary key, n int not null default 0" });
      const fence = { resource: guarded.resource, token: 5n };
      const raise = () =>
        withFence(
          direct,
          fence,
          (client) => client.query(`update ${guarded.table} set n = n + 1 where id = 1`),
          { isolation, attempts: 30 },
        );
      await Promise.all(Array.from({ length: 10 }, raise));
      expect((await db.admin.query(`select n from ${guarded.table} where id = 1`)).rows).toEqual([{ n: 10 }]);
    },
  );

  test("two that wait for each other: one is tried again", async () => {
    const guarded = await db.guarded(5, { columns: "id int primary key, n int not null default 0" });
    const fence = { resource: guarded.resource, token: 5n };
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const crosswise = (mine: number) => {
      let tried = 0;
      return withFence(direct, fence, async (client) => {
        tried += 1;
        await client.query(`update ${guarded.table} set n = n + 1 where id = $1`, [mine + 1]);
        gates[mine]?.resolve();
        if (tried === 1) await gates[1 - mine]?.promise;
        await client.query(`update ${guarded.table} set n = n + 1 where id = $1`, [2 - mine]);
        return tried;
      });
    };
    const tries = await Promise.all([crosswise(0), crosswise(1)]);
    expect(new Set(tries)).toEqual(new Set([1, 2]));
    const { rows } = await db.admin.query(`select n from ${guarded.table} where id in (1, 2) order by id`);
    expect(rows).toEqual([{ n: 2 }, { n: 2 }]);
  });

  test("the bound: then what the server said", async () => {
    const guarded = await db.guarded(5);
    let runs = 0;
    const error = await failureOf(
      withFence(
        direct,
        { resource: guarded.resource, token: 5n },
        (client) => {
          runs += 1;
          return client.query("do $$ begin raise exception using errcode = '40001'; end $$");
        },
        { attempts: 3 },
      ),
    );
    expect(error).toMatchObject({ code: "40001" });
    expect(runs).toBe(3);
  });

  test.for([
    { when: "at the next statement", next: (client: PoolClient) => client.query("select 1") },
    { when: "between the last statement and COMMIT", next: () => Promise.resolve() },
  ])("a session ended by an administrator, noticed $when, is tried again", async ({ next }) => {
    const guarded = await db.guarded(5);
    let runs = 0;
    await withFence(direct, { resource: guarded.resource, token: 5n }, async (client) => {
      runs += 1;
      await client.query(`update ${guarded.table} set v = $1`, [String(runs)]);
      if (runs > 1) return;
      const { pid } = (await client.query("select pg_backend_pid() as pid")).rows[0];
      const told = new Promise((resolve) => client.once("error", resolve));
      await db.admin.query("select pg_terminate_backend($1)", [pid]);
      await told;
      await next(client);
    });
    expect(runs).toBe(2);
    expect(await values(guarded)).toEqual(["2", "2", "2"]);
  });

  test("FM-23 S1-50 ended because the next grant had to pass: the second try is stale, the process lives", async () => {
    const guarded = await db.guarded(41);
    const [issuer, evictor] = [await db.as("issuer"), await db.as("issuer")];
    const { pid } = (await issuer.query("select pg_backend_pid() as pid")).rows[0];
    let runs = 0;
    const error = await failureOf(
      withFence(direct, { resource: guarded.resource, token: 41n }, async (client) => {
        runs += 1;
        await client.query(`update ${guarded.table} set v = 'old'`);
        const advanced = issuer.query("select fenceline.advance($1, 42, 'pod:b/1', 'cluster-1')", [
          guarded.resource,
        ]);
        const ended = async () => (await evictor.query("select * from fenceline.evict($1)", [pid])).rowCount;
        await expect.poll(ended).toBe(1);
        await advanced;
        await client.query("select 1");
      }),
    );
    expect(error).toBeInstanceOf(StaleToken);
    expect(runs).toBe(1);
    expect(await values(guarded)).toEqual([null, null, null]);
  });

  test("a server that starts again is waited for", async () => {
    const own = await startServer(inject("postgres"));
    const there = await fencedDatabase(own);
    const guarded = await there.guarded(5);
    const pool = new Pool({
      host: "127.0.0.1",
      port: own.port,
      user: "worker",
      database: there.name,
      max: 2,
    });
    pool.on("error", () => {});
    // Not closed by the restart: nobody issues here.
    await there.admin.query("update fenceline.mark set issuer = null");
    await there[Symbol.asyncDispose]();
    const restarted = own.restart("immediate");
    const written = withFence(
      pool,
      { resource: guarded.resource, token: 5n },
      (client) => client.query(`update ${guarded.table} set v = 'after'`),
      { attempts: 12 },
    );
    await restarted;
    expect((await written).rowCount).toBe(3);
    await pool.end();
    await own[Symbol.asyncDispose]();
  });
});

describe("COMMIT without an answer", () => {
  test.for([
    { way: "down", stored: "mine", why: "applied, and the answer was lost" },
    { way: "up", stored: null, why: "never arrived" },
  ] as const)("S1-28 is unknown, also where it $why", async ({ way, stored }) => {
    const guarded = await db.guarded(5);
    const pool = poolAt(proxy.port, 1);
    let runs = 0;
    const written = failureOf(
      withFence(pool, { resource: guarded.resource, token: 5n }, async (client) => {
        runs += 1;
        await client.query(`update ${guarded.table} set v = 'mine'`);
        proxy.halfOpen(way);
      }),
    );
    const seen = async () => (await values(guarded))[0];
    await expect.poll(() => runs).toBe(1);
    // Applied where it can be, and given time to arrive where it cannot.
    await expect.poll(seen).toBe(stored);
    proxy.cut();
    const error = await written;
    expect(error).toBeInstanceOf(CommitUnknown);
    expect(runs).toBe(1);
    proxy.heal();
    expect(await seen()).toBe(stored);
    // The broken connection is gone from the pool, and the next work gets another one.
    expect(
      await withFence(pool, { resource: guarded.resource, token: 5n }, writing(guarded.table, "next")),
    ).toBe(3);
  });
});

describe("FM-32 through PgBouncer in transaction mode", () => {
  test("a hundred workers on five connections: those with the token write, the others are stale", async () => {
    const guarded = await db.guarded(42);
    const pool = poolAt(bouncer.port, 100);
    const work = (index: number) => (client: PoolClient) =>
      client
        .query(`insert into ${guarded.table} (id) values ($1)`, [String(100 + index)])
        .then(() => "stored");
    const ends = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        failureOf(
          withFence(pool, { resource: guarded.resource, token: index % 2 === 0 ? 42n : 41n }, work(index)),
        ),
      ),
    );
    expect(ends.filter((end) => end === "no failure, but stored")).toHaveLength(50);
    expect(ends.filter((end) => end instanceof StaleToken)).toHaveLength(50);
    const { rows } = await db.admin.query(
      `select count(*)::int as n, bool_and(id % 2 = 0) as even from ${guarded.table} where id >= 100`,
    );
    expect(rows).toEqual([{ n: 50, even: true }]);
    expect(pool.idleCount).toBe(pool.totalCount);
  });
});
