import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { type Door, doors, findDoors } from "../../src/postgres/statements/doors.ts";
import { dropDoorkeeper } from "../../src/postgres/schema/doorkeeper.ts";
import { runProgram } from "../support/postgres/lab.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, stateOf } from "../support/postgres/world.ts";
import {
  type Names,
  type OwnerWay,
  ownerWays,
  type WorkerWay,
  workerWays,
} from "../support/postgres/ways.ts";

let server: PostgresServer;
/** Installed by a superuser, and by another login, which can make no event trigger. */
let db: FencedDatabase;
let plain: FencedDatabase;

beforeAll(async () => {
  server = await startServer(inject("postgres"), { settings: { max_prepared_transactions: "5" } });
  db = await fencedDatabase(server);
  plain = await fencedDatabase(server);
  await plain.admin.query(dropDoorkeeper);
  for (const { admin } of [db, plain]) await admin.query("grant create on schema public to owner");
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await plain[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

/** psql as people use it: SQLSTATE of the first error, `00000` where there was none. */
const psql = (user: string, script: string): string => {
  const url = server.url(user, db.name);
  const quiet = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=sqlstate", "-o", "/dev/null"];
  try {
    runProgram("psql", [...quiet, url], script);
    return "00000";
  } catch (error) {
    const said = error instanceof Error && "stderr" in error ? String(error.stderr) : String(error);
    return /ERROR: {2}(\w{5})/.exec(said)?.[1] ?? said;
  }
};

let tries = 0;

const prepare = async (
  way: Pick<WorkerWay, "shape" | "before" | "after"> = {},
  { admin, advance }: Pick<FencedDatabase, "admin" | "advance"> = db,
): Promise<Names> => {
  tries += 1;
  const names = {
    table: `public.way_${tries}`,
    other: `public.other_${tries}`,
    resource: `shop/way-${tries}`,
  };
  const shape =
    way.shape?.(names) ??
    `create table ${names.table} (id int primary key, v text, last_fencing_token bigint)`;
  await admin.query(`${shape}; insert into ${names.table} values (1, 'a'), (2, 'a'), (3, 'a')`);
  await admin.query(way.before?.(names) ?? "");
  await admin.query(`do $$ declare t regclass; begin
      for t in select c.oid from pg_class c where c.relkind in ('r', 'p') and c.relname like 'way\\_${tries}%' loop
        execute format('alter table %s owner to owner', t);
        execute format('grant select, insert, update, delete, truncate on %s to worker', t);
      end loop;
    end $$;
    select fenceline.guard('${names.table}', '${names.resource}')`);
  await advance(names.resource, 42);
  await admin.query(way.after?.(names) ?? "");
  return names;
};

const contents = async ({ table }: Names) =>
  (await db.admin.query(`select t::text from ${table} t order by 1`)).rows;

const tokens = [undefined, 41, 42] as const;

/** SQLSTATE without a token, with an old one, and with the one that stands. */
const attempt = async (way: WorkerWay): Promise<string[]> => {
  const seen: string[] = [];
  for (const token of tokens) {
    const names = await prepare(way);
    const before = await contents(names);
    const enter = token === undefined ? "" : `select fenceline.enter('${names.resource}', ${token});`;
    const rows = way.copy === undefined ? "" : `\n${way.copy}\\.\n`;
    const state = psql(way.as ?? "worker", `begin;\n${enter}\n${way.write(names)};${rows}\ncommit;`);
    const after = await contents(names);
    if (token !== 42 || way.idle === true) expect(after).toEqual(before);
    else expect(after).not.toEqual(before);
    seen.push(state);
  }
  return seen;
};

const once = <T, R>(run: (way: T) => Promise<R>): ((way: T) => Promise<R>) => {
  const known = new Map<T, Promise<R>>();
  return (way) => {
    const found = known.get(way) ?? run(way);
    known.set(way, found);
    return found;
  };
};

const attempted = once(attempt);

test.for(workerWays)("S1-30 FM-07 $way is refused", async (way) => {
  expect(await attempted(way)).toEqual(["FNC02", "FNC01", "00000"]);
});

/** What an owner does is rolled back, and looked at before that. */
const openedIn = async (fenced: FencedDatabase, way: OwnerWay): Promise<Door[] | string> => {
  const names = await prepare(way, fenced);
  await fenced.admin.query("begin");
  try {
    if (way.who === "owner") await fenced.admin.query("set local role owner");
    const state = await stateOf(fenced.admin.query(way.open(names)));
    if (state !== "00000") return state;
    await fenced.admin.query("reset role");
    return (await fenced.admin.query<Door>(doors(names.resource).text)).rows;
  } finally {
    await fenced.admin.query("rollback");
  }
};

const opened = once(async (way: OwnerWay) => ({
  kept: await openedIn(db, way),
  plain: await openedIn(plain, way),
}));

const open = (found: Door[] | string): string[] =>
  typeof found === "string"
    ? [found]
    : [...new Set(found.filter(({ state }) => state === "open").map(({ kind }) => kind))];

test.for(ownerWays)("S1-30 FM-07 $way is found, or refused by the doorkeeper", async (way) => {
  const found = await opened(way);
  expect(open(found.plain)).toEqual(way.doors);
  expect(found.plain).toContainEqual(expect.objectContaining({ kind: "ddl", state: "warning" }));
  expect(open(found.kept)).toEqual(way.kept ? ["42501"] : way.doors);
});

test("nothing is open in a database as it should be", async () => {
  const names = await prepare();
  const database = db.open();
  expect(await findDoors(database, names.resource)).toEqual([
    expect.objectContaining({ kind: "prepared", state: "warning" }),
    expect.objectContaining({ kind: "storage", door: expect.stringContaining("fsync") }),
    expect.objectContaining({ kind: "storage", door: expect.stringContaining("full_page_writes") }),
  ]);
});

/** As a reader sees it: without the numbers of this run. */
const plainNames = (text: string): string =>
  text
    .replaceAll(/public\.way_\d+/g, "public.orders")
    .replaceAll(/way_\d+/g, "orders")
    .replaceAll(/shop\/way-\d+/g, "shop/orders");

const answer = (state: string | undefined): string => (state === "00000" ? "written" : `\`${state}\``);

const closing = (found: Door[] | string): string => {
  if (typeof found === "string") return answer(found);
  const door = found.find(({ state }) => state === "open") ?? found.find(({ kind }) => kind === "ddl");
  if (door === undefined) return "nothing";
  const statement =
    door.kind === "function" ? "the statement that puts it back" : `\`${plainNames(door.closeWith)}\``;
  return `found: ${door.kind}, ${door.state}. Close with ${statement}`;
};

test("S1-30 docs/guard-bypass.md is what was seen", async () => {
  const written = await Promise.all(
    workerWays.map(async (way) => {
      const [none, old, own] = await attempted(way);
      return `| ${way.way}${way.as === undefined ? "" : " (superuser)"} | ${answer(none)} | ${answer(old)} | ${answer(own)} |`;
    }),
  );
  const found: string[] = [];
  for (const way of ownerWays) {
    const seen = await opened(way);
    found.push(`| ${way.way} | ${way.who} | ${closing(seen.kept)} | ${closing(seen.plain)} |`);
  }
  await expect(`# Ways past the PostgreSQL guard

Generated by \`test/postgres/bypass.test.ts\` from what it saw on a real server; do not edit. Write it anew with
\`npx vitest run --project postgres bypass -u\`.

## What a worker can run

The mark stands at 42. Each way is tried in a transaction without a token, with 41, and with 42. \`FNC02\` is a missing
token, \`FNC01\` an old one. After a refusal the table is what it was.

| way | no token | 41 | 42 |
| --- | --- | --- | --- |
${written.join("\n")}

## What an owner or an administrator can open

No trigger can hold the owner of its table. Where a superuser installed the guard, a doorkeeper (three event triggers)
refuses with \`42501\` what would open it; to do it all the same, put \`fenceline.unguard\`, the command and
\`fenceline.guard\` into one transaction. Everything else is found by \`fenceline guard verify\`, and by the controller
within its interval, with the statement that closes it. *ddl, warning* means that nothing remains to be found: it tells
beforehand that owners can do this.

| way | by | with the doorkeeper | without it |
| --- | --- | --- | --- |
${found.join("\n")}
`).toMatchFileSnapshot("../../docs/guard-bypass.md");
});
