import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Client } from "pg";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, stateOf } from "../support/postgres/world.ts";

/** The SQL of docs/postgres-recipes.md, by the name that its first line gives it. */
const recipes = new Map(
  [
    ...readFileSync(new URL("../../docs/postgres-recipes.md", import.meta.url), "utf8").matchAll(
      /```sql\n-- (.+)\n([^`]+)```/g,
    ),
  ].map(([, name = "", text = ""]) => [name, text]),
);

const recipe = (name: string): string => {
  const text = recipes.get(name);
  if (text === undefined)
    throw new Error(`docs/postgres-recipes.md has no ${name}, only ${[...recipes.keys()].join(", ")}`);
  return text;
};

let server: PostgresServer;
let db: FencedDatabase;
let clients: Client[];

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  await db.admin.query("create schema shop");
  for (const name of ["row: table", "row: trigger", "log: table", "queue: table"])
    await db.admin.query(recipe(name));
  await db.admin.query(
    "grant usage on schema shop to worker; grant all on all tables in schema shop to worker",
  );
  clients = await Promise.all(Array.from({ length: 4 }, () => db.as("worker")));
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const run = async (name: string, values: unknown[], client = clients[0]) => {
  const result = await client?.query(recipe(name), values);
  return { rows: result?.rows ?? [], count: result?.rowCount ?? 0 };
};

const ascending = (a: number, b: number): number => a - b;

let accounts = 0;

describe("S1-27 PerRow", () => {
  const account = async (token?: number) => {
    accounts += 1;
    if (token !== undefined)
      await db.admin.query("insert into shop.account_projection values ($1, 0, $2)", [accounts, token]);
    return accounts;
  };
  const balance = async (id: number) =>
    (
      await db.admin.query(
        "select balance::int, last_fencing_token from shop.account_projection where account_id = $1",
        [id],
      )
    ).rows;

  test("S1-28 the conditional UPDATE: an older token changes no row", async () => {
    const id = await account(41);
    expect((await run("row: update", [100, 42, id])).count).toBe(1);
    expect((await run("row: update", [999, 41, id])).count).toBe(0);
    expect(await balance(id)).toEqual([{ balance: 100, last_fencing_token: "42" }]);
  });

  test("FM-06 one write per row and token", async () => {
    const id = await account(41);
    const counts = await Promise.all(
      clients.map((client, index) => run("row: update", [index, 42, id], client)),
    );
    expect(counts.filter(({ count }) => count === 1)).toHaveLength(1);
    expect(counts.filter(({ count }) => count === 0)).toHaveLength(clients.length - 1);
  });

  test("S1-29 the first row: whoever inserts it with the higher token wins", async () => {
    const id = await account();
    expect((await run("row: first", [id, 10, 41])).count).toBe(1);
    expect((await run("row: first", [id, 20, 42])).count).toBe(1);
    expect((await run("row: first", [id, 30, 41])).count).toBe(0);
    expect(await balance(id)).toEqual([{ balance: 20, last_fencing_token: "42" }]);
  });

  test("S1-28 with its trigger a stale write is FNC01, and a row that is not there is no row", async () => {
    const id = await account(42);
    const plain =
      "update shop.account_projection set balance = $1, last_fencing_token = $2 where account_id = $3";
    const tried = (token: number | null, row: number) =>
      stateOf(clients[0]?.query(plain, [1, token, row]) ?? Promise.resolve());
    expect(await tried(41, id)).toBe("FNC01");
    expect(await tried(42, id)).toBe("FNC01");
    expect(await tried(43, 0)).toBe("00000");
    expect(await tried(43, id)).toBe("00000");
    expect(
      await stateOf(
        clients[0]?.query("update shop.account_projection set balance = 5 where account_id = $1", [id]) ??
          Promise.resolve(),
      ),
    ).toBe("FNC01");
    expect(await balance(id)).toEqual([{ balance: 1, last_fencing_token: "43" }]);
  });
});

test("S1-31 append-only log: tokens never fall along it, whoever writes at once", async () => {
  const accepted: number[] = [];
  await Promise.all(
    clients.map(async (client, index) => {
      for (let round = 0; round < 60; round += 1) {
        const token = 1 + Math.floor(round / 6) + (index % 3);
        // 23505: another one was first at this place. The next try sees it.
        const appended = await run("log: append", [token, `${index}/${round}`], client).catch(
          async (error: unknown) => {
            if ((await stateOf(Promise.reject(error))) !== "23505") throw error;
            return { count: 0 };
          },
        );
        if (appended.count === 1) accepted.push(token);
      }
    }),
  );
  const { rows } = await db.admin.query("select token::int from shop.journal order by place");
  const tokens = rows.map(({ token }) => token);
  expect(tokens).toEqual(tokens.toSorted(ascending));
  expect(tokens).toEqual(accepted.toSorted(ascending));
  expect((await run("log: append", [1, "late"])).count).toBe(0);
});

describe("S1-32 queue", () => {
  const job = async () =>
    (await db.admin.query("insert into shop.job default values returning id::int")).rows[0].id as number;
  const state = async (id: number) =>
    (await db.admin.query("select state, token::int, result from shop.job where id = $1", [id])).rows[0];

  test("token and state move together, and the old owner's result is refused", async () => {
    const id = await job();
    expect((await run("queue: take", [id, 41])).count).toBe(1);
    expect((await run("queue: take", [id, 41])).count).toBe(0);
    expect((await run("queue: take", [id, 42])).count).toBe(1);
    expect((await run("queue: finish", [id, 41, "old"])).count).toBe(0);
    expect(await state(id)).toEqual({ state: "running", token: 42, result: null });
    expect((await run("queue: finish", [id, 42, "new"])).count).toBe(1);
    expect((await run("queue: take", [id, 43])).count).toBe(0);
    expect((await run("queue: finish", [id, 41, "old"])).count).toBe(0);
    expect(await state(id)).toEqual({ state: "done", token: 42, result: "new" });
  });

  test("of many that take and finish at once one result stays, of the highest that took it", async () => {
    const id = await job();
    const took = await Promise.all(
      clients.map(async (client, index) => {
        const token = 10 + index;
        if ((await run("queue: take", [id, token], client)).count === 0) return 0;
        return (await run("queue: finish", [id, token, String(token)], client)).count === 1 ? token : 0;
      }),
    );
    const finished = took.filter((token) => token > 0);
    expect(finished).toHaveLength(1);
    expect(await state(id)).toEqual({ state: "done", token: finished[0], result: String(finished[0]) });
  });
});
