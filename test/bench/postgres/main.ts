/**
 * What the guard costs: the same statement on a guarded and on an unguarded table, in turns, as pgbench runs it against
 * one server; and how long an advance takes while eight holders of the old token write. Read the ratios, not the figures.
 *
 *     node test/bench/postgres/main.ts [--pairs 9] [--seconds 1] [--durable] [--only single,transaction,rows,advance]
 */
import { execFile } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs, promisify } from "node:util";
import { makeLab, serverEnvironment, serverPrograms } from "../../support/postgres/lab.ts";
import { startServer } from "../../support/postgres/server.ts";
import { fencedDatabase, issuerName } from "../../support/postgres/world.ts";
import { quantile, table } from "../support.ts";

const { values } = parseArgs({
  options: {
    pairs: { type: "string", default: "9" },
    seconds: { type: "string", default: "1" },
    durable: { type: "boolean", default: false },
    only: { type: "string", default: "single,transaction,rows,advance" },
  },
});
const pairs = Number(values.pairs);
const only = values.only.split(",");

await using lab = await makeLab();
await using server = await startServer(lab, {
  durable: values.durable,
  settings: { shared_buffers: "256MB", autovacuum: "off", max_wal_size: "4GB" },
});
await using db = await fencedDatabase(server);

const run = promisify(execFile);
const resource = "shop/bench";
const token = 42;

await db.admin.query(`
  create table guarded (id int primary key, v int not null default 0) with (fillfactor = 50);
  insert into guarded select generate_series(1, 100000);
  create table plain (like guarded including all);
  insert into plain select * from guarded;
  grant select, insert, update, delete on guarded, plain to worker;
  select fenceline.guard('guarded', '${resource}')`);
await db.advance(resource, token);

/** Transactions a second of one script. */
const rate = async (name: string, script: string, clients: number): Promise<number> => {
  const file = path.join(lab.folder, `${name}.sql`);
  writeFileSync(file, script);
  chmodSync(file, 0o644);
  const args = ["-n", "-M", "prepared", "-h", "127.0.0.1", "-p", String(server.port), "-U", "worker"];
  const load = ["-c", String(clients), "-j", "1", "-T", values.seconds, "-f", file, db.name];
  const { stdout } = await run(path.join(serverPrograms(), "pgbench"), [...args, ...load], {
    env: serverEnvironment(),
  });
  return Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
};

const enter = `fenceline.enter('${resource}', ${token})`;
const forms = {
  single: {
    title: "one statement",
    clients: [1, 4, 8],
    plain: "\\set id random(1, 100000)\nupdate plain set v = v + 1 where id = :id;\n",
    guarded: `\\set id random(1, 100000)\nupdate guarded set v = v + 1 where id = :id and (select ${enter});\n`,
  },
  transaction: {
    title: "BEGIN, enter, UPDATE, COMMIT",
    clients: [1, 4, 8],
    plain:
      "\\set id random(1, 100000)\nbegin;\nselect 1;\nupdate plain set v = v + 1 where id = :id;\ncommit;\n",
    guarded: `\\set id random(1, 100000)\nbegin;\nselect ${enter};\nupdate guarded set v = v + 1 where id = :id;\ncommit;\n`,
  },
  rows: {
    title: "1,000 rows in one statement",
    clients: [1],
    plain: "\\set id random(1, 99000)\nupdate plain set v = v + 1 where id between :id and :id + 999;\n",
    guarded: `\\set id random(1, 99000)\nupdate guarded set v = v + 1 where id between :id and :id + 999 and (select ${enter});\n`,
  },
} as const;

const pairsOf = async (name: keyof typeof forms): Promise<string[][]> => {
  const { title, clients, plain, guarded } = forms[name];
  const lines: string[][] = [];
  for (const count of clients) {
    const ratios: number[] = [];
    const micros: number[] = [];
    for (let pair = 0; pair < pairs; pair += 1) {
      for (const name of ["guarded", "plain", "fenceline.mark"]) await db.admin.query(`vacuum ${name}`);
      const sides = pair % 2 === 0 ? ["plain", "guarded"] : ["guarded", "plain"];
      const rates = new Map<string, number>();
      for (const side of sides)
        rates.set(side, await rate(`${name}-${side}`, side === "plain" ? plain : guarded, count));
      const [a = Number.NaN, b = Number.NaN] = [rates.get("plain"), rates.get("guarded")];
      ratios.push(a / b);
      micros.push((1 / b - 1 / a) * 1e6 * count);
    }
    const show = (part: number) => quantile(ratios, part).toFixed(2);
    lines.push([
      title,
      String(count),
      show(0.5),
      `${show(0)} – ${show(1)}`,
      `${quantile(micros, 0.5).toFixed(0)} µs`,
    ]);
  }
  return lines;
};

/** Milliseconds of each advance while eight holders of the token before write, pausing inside their transactions. */
const advances = async (pauseMs: number): Promise<number[]> => {
  const took: number[] = [];
  let granted = token + 1_000_000 * (pauseMs + 1);
  await db.advance(resource, granted);
  const state = { over: false };
  const writer = async (index: number) => {
    const client = await db.as("worker");
    while (!state.over)
      try {
        await client.query("begin");
        await client.query("select fenceline.enter($1, $2)", [resource, granted]);
        await client.query("update guarded set v = v + 1 where id = $1", [index + 1]);
        if (pauseMs > 0) await sleep(pauseMs);
        await client.query("commit");
      } catch {
        await client.query("rollback");
      }
  };
  const writers = Array.from({ length: 8 }, (_, index) => writer(index));
  const issuer = await db.as("issuer");
  for (let round = 0; round < 4 * pairs; round += 1) {
    await sleep(2 * pauseMs + 50);
    const sent = performance.now();
    await issuer.query("select fenceline.advance($1, $2, 'pod:x/1', $3)", [
      resource,
      granted + 1,
      issuerName,
    ]);
    took.push(performance.now() - sent);
    // Only now do the writers take the new token: until then all of them carried the old one.
    granted += 1;
  }
  state.over = true;
  await Promise.all(writers);
  return took;
};

console.log(
  `${pairs} pairs of ${values.seconds} s, fsync ${values.durable ? "on" : "off"}; ratio of the time a transaction takes, guarded to unguarded`,
);
const lines: string[][] = [];
for (const name of ["single", "transaction", "rows"] as const)
  if (only.includes(name)) lines.push(...(await pairsOf(name)));
if (lines.length > 0) table(["form", "clients", "ratio", "range", "more"], lines);

if (only.includes("advance")) {
  const rows: string[][] = [];
  for (const pauseMs of [0, 5, 50]) {
    const took = await advances(pauseMs);
    const ms = (part: number) => `${quantile(took, part).toFixed(1)} ms`;
    rows.push([`${pauseMs} ms`, String(took.length), ms(0.5), ms(0), ms(1)]);
  }
  console.log("\nadvance, with 8 holders of the old token writing");
  table(["pause inside", "advances", "median", "least", "most"], rows);
}
