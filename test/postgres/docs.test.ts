import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, issuerName, stateOf } from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const read = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8");

test("docs/postgres.md: its statements run as they are printed, in their order", async () => {
  await db.admin.query(`create schema shop; create type order_state as enum ('new', 'paid', 'sent');
    create table shop.orders (id int primary key, state text not null); insert into shop.orders values (7, 'new');
    create table shop.stock (id int primary key, left_over int); insert into shop.stock values (7, 3)`);
  const blocks = [...read("postgres.md").matchAll(/```sql\n([^`]+)```/g)].map(([, text = ""]) => text);
  expect(blocks).toHaveLength(6);
  for (const [index, text] of blocks.entries()) {
    // A controller has granted by the time that somebody writes.
    if (index === 2) await db.advance("shop/orders", 42);
    expect([text, await stateOf(db.admin.query(text))]).toEqual([text, "00000"]);
  }
  expect((await db.admin.query("select state from shop.orders where id = 7")).rows).toEqual([
    { state: "paid" },
  ]);
  expect((await db.admin.query("select before, after from fenceline.takeover")).rows).toEqual([
    { before: issuerName, after: "<identity of the new cluster>" },
  ]);
});

test("docs/postgres.md: the refusal looks as it is printed", async () => {
  const { resource } = await db.guarded(42);
  const error: unknown = await db.admin
    .query("select fenceline.enter($1, 41)", [resource])
    .catch((reason: unknown) => reason);
  const { message, detail, hint } = Object(error);
  expect(read("postgres.md")).toContain(
    `ERROR:  ${message}\nDETAIL:  ${String(detail).replace(resource, "shop/orders")}\nHINT:  ${hint}\n`,
  );
});
