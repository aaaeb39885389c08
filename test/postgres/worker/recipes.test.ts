/** The recipes of docs/client.md for other languages, as they are printed there. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { serverPrograms } from "../../support/postgres/lab.ts";
import { type PostgresServer, startServer } from "../../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase } from "../../support/postgres/world.ts";

const guide = readFileSync(new URL("../../../docs/client.md", import.meta.url), "utf8");

/** The block of `language` that begins with `# name`. */
const recipe = (language: string, name: string): string => {
  const found = guide.split(`\`\`\`${language}\n# ${name}\n`)[1]?.split("```")[0];
  if (found === undefined) throw new Error(`docs/client.md has no ${language} block "# ${name}"`);
  return found;
};

let server: PostgresServer;
let db: FencedDatabase;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  await db.admin.query(`create schema shop;
    create table shop.orders (id int primary key, state text not null); insert into shop.orders values (7, 'new');
    alter table shop.orders owner to owner;
    grant usage on schema shop to worker; grant select, update on shop.orders to worker;
    select fenceline.guard('shop.orders', 'shop/orders')`);
  await db.advance("shop/orders", 42);
});
beforeEach(() =>
  db.admin.query(
    "update shop.orders set state = 'new' where id = 7 and (select fenceline.enter('shop/orders', 42))",
  ),
);
afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs `program` as a worker whose token is `token`. */
const run = async (token: string, program: string, args: readonly string[]): Promise<Ended> => {
  const child = spawn(program, args, {
    env: {
      PATH: `${serverPrograms()}:${process.env["PATH"]}`,
      PGHOST: "127.0.0.1",
      PGPORT: String(server.port),
      PGUSER: "worker",
      PGDATABASE: db.name,
      FENCELINE_TOKEN: token,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code: child.exitCode, stdout, stderr };
};

const state = async (): Promise<unknown> =>
  (await db.admin.query("select state from shop.orders where id = 7")).rows[0]?.state;

describe("psql", () => {
  const psql = (token: number, script = recipe("sh", "psql")) => run(String(token), "sh", ["-c", script]);

  test("the granted token writes; a stale one ends the script with 3 and the SQLSTATE", async () => {
    expect(await psql(41)).toMatchObject({
      code: 3,
      stderr: expect.stringContaining("ERROR:  FNC01: stale_fencing_token"),
    });
    expect(await state()).toBe("new");
    expect(await psql(42)).toMatchObject({ code: 0, stderr: "" });
    expect(await state()).toBe("paid");
  });

  test("without ON_ERROR_STOP a refusal looks like success, and writes nothing all the same", async () => {
    const { code } = await psql(41, recipe("sh", "psql").replace("-v ON_ERROR_STOP=1 ", ""));
    expect([code, await state()]).toEqual([0, "new"]);
  });
});

describe("psycopg", () => {
  // Debian's own: that is where its package is.
  const python = (token: number, script = recipe("python", "psycopg")) =>
    run(String(token), "/usr/bin/python3", ["-c", script]);

  test("the granted token writes; a stale one ends the program with 5, one that was never issued with 1", async () => {
    expect(await python(41)).toEqual({ code: 5, stdout: "", stderr: "" });
    expect(await python(43)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("token_never_issued"),
    });
    expect(await state()).toBe("new");
    expect(await python(42)).toEqual({ code: 0, stdout: "", stderr: "" });
    expect(await state()).toBe("paid");
  });

  test("its class of a refusal is that of a lost connection", async () => {
    const telling = recipe("python", "psycopg").replace(
      "as error:\n",
      "as error:\n    print(isinstance(error, psycopg.OperationalError))\n",
    );
    expect((await python(41, telling)).stdout).toBe("True\n");
  });
});
