import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { stateOf } from "../support/postgres/world.ts";
import { cli } from "../unit/cli/inprocess.ts";

let server: PostgresServer;
let folder: string;
let databases = 0;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  await server.admin((client) => client.query("create role app login; create role keeper nologin"));
  folder = await mkdtemp(join(tmpdir(), "fenceline-guardcli-"));
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await server[Symbol.asyncDispose]();
});

/** A database with one table, and the command line on it. */
const database = async () => {
  databases += 1;
  const name = `books_${databases}`;
  await server.admin((client) => client.query(`create database ${name}`));
  await server.admin(
    (client) =>
      client.query(`create table orders (id int primary key); insert into orders values (1);
        alter table orders owner to keeper; grant select, insert, update, delete on orders to app`),
    name,
  );
  const file = join(folder, `${name}.url`);
  await writeFile(file, `${server.url("postgres", name)}\n`, { mode: 0o600 });
  return {
    guard: (...args: string[]) => cli(["guard", ...args, "--database-url-file", file]),
    admin: (text: string) => server.admin((client) => client.query(text), name),
    url: server.url("postgres", name),
    state: (text: string, user = "app") =>
      server.connect(name, user).then(async (client) => {
        const state = await stateOf(client.query(text));
        await client.end();
        return state;
      }),
  };
};

const orders = ["--table", "orders", "--resource", "shop/orders"];

describe("fenceline guard", () => {
  test("S1-41 install, verify and remove", async () => {
    const { guard, admin, state } = await database();
    expect(await guard("verify", "--resource", "shop/orders")).toMatchObject({ code: 1 });
    expect(await guard("install", ...orders)).toMatchObject({ code: 0, stderr: "" });
    await admin("grant fenceline_worker to app");
    expect(await state("insert into orders values (2)")).toBe("FNC02");
    const verified = await guard("verify", ...orders);
    expect(verified).toMatchObject({ code: 0, stderr: "" });
    expect(verified.stdout).toContain("shop/orders is fenced");
    // What was tried left nothing behind, and was not counted.
    const { rows } = await admin("select refused::text, granted::text from fenceline.mark('shop/orders')");
    expect(rows).toEqual([{ refused: "1", granted: "0" }]);
    expect(await guard("remove", ...orders)).toMatchObject({ code: 0 });
    expect(await state("insert into orders values (2)")).toBe("00000");
    expect(await guard("remove", "--all")).toMatchObject({ code: 0 });
    expect((await admin("select to_regnamespace('fenceline') as left")).rows).toEqual([{ left: null }]);
  });

  test("verify lists what is open with what closes it, and says so by its code", async () => {
    const { guard, admin } = await database();
    await guard("install", ...orders);
    await admin("grant fenceline_worker to app; grant keeper to app");
    const { code, stdout } = await guard("verify", ...orders, "-o", "json");
    expect(code).toBe(1);
    const { doors, refuses } = JSON.parse(stdout) as { doors: Record<string, string>[]; refuses: boolean };
    expect(refuses).toBe(true);
    expect(doors).toContainEqual({
      door: "worker app can act as the owner of public.orders",
      state: "open",
      closeWith: "revoke keeper from app",
    });
    await admin("revoke keeper from app");
    expect(await guard("verify", ...orders)).toMatchObject({ code: 0 });
  });

  test("the plan does what install does", async () => {
    const { guard, admin, state } = await database();
    const planned = await cli(["guard", "plan", ...orders, "--mode", "Once"]);
    expect(planned).toMatchObject({ code: 0, stderr: "" });
    await admin(planned.stdout);
    await admin("grant fenceline_worker to app");
    expect(await guard("verify", ...orders)).toMatchObject({ code: 0 });
    expect(await state("delete from orders")).toBe("FNC02");
    const { rows } = await admin("select mode, advance from fenceline.mark");
    expect(rows).toEqual([{ mode: "Once", advance: "OnGrant" }]);
    // What was run by hand is what the program knows.
    expect(await guard("install", ...orders, "--mode", "Once")).toMatchObject({ code: 0, stderr: "" });
  });

  test("the schema alone, for a central database", async () => {
    const { guard, admin } = await database();
    expect(await guard("install")).toMatchObject({ code: 0 });
    expect((await admin("select count(*)::int as n from fenceline.guarded")).rows).toEqual([{ n: 0 }]);
  });

  test("what cannot work is one line, with no word of the URL", async () => {
    const { url } = await database();
    const secret = "postgres://app:hunter2@127.0.0.1:1/books?sslmode=disable";
    const env = { HOME: "/nonexistent", FENCELINE_DATABASE_URL: secret };
    const away = await cli(["guard", "verify", ...orders], { env });
    expect(away).toMatchObject({ code: 6, stdout: "" });
    expect(away.stderr).toMatch(/^fenceline: 127\.0\.0\.1:1\/books: nothing listens there\n$/);
    const wrong = { ...env, FENCELINE_DATABASE_URL: "mysql://app:hunter2@h/d" };
    for (const [args, environment] of [
      [["verify", ...orders], {}],
      [["verify", ...orders], wrong],
      [["install", "--table", "a.b.c", "--resource", "shop/orders"], { ...env, FENCELINE_DATABASE_URL: url }],
      [["install", "--table", "orders"], { ...env, FENCELINE_DATABASE_URL: url }],
      [["install", ...orders, "--mode", "Sometimes"], { ...env, FENCELINE_DATABASE_URL: url }],
      [["remove"], { ...env, FENCELINE_DATABASE_URL: url }],
      [["verify", ...orders, "--database-url-file", "/nonexistent"], env],
    ] as const) {
      const { code, stderr } = await cli(["guard", ...args], { env: environment });
      expect(code).toBe(2);
      expect(stderr).toMatch(/^fenceline: [^\n]+\n$/);
      expect(stderr).not.toContain("hunter2");
    }
  });
});
