/**
 * Histories of real worker processes that are killed, stopped and cut off while grants move on. One history is one
 * resource; many run at once. Judged by what the database keeps, never by what anybody logged.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "pg";
import type { Isolation } from "../../../src/client/fence.ts";
import { holderId } from "../../../src/core/lease.ts";
import type { Token } from "../../../src/core/token.ts";
import type { Database } from "../../../src/postgres/database.ts";
import { advance } from "../../../src/postgres/statements/advance.ts";
import { evict } from "../../../src/postgres/statements/evict.ts";
import { childEnvironment } from "../../support/cluster/config.ts";
import { seeded } from "../../support/faultproxy/fault.ts";
import { startTcpProxy, type TcpProxy } from "../../support/faultproxy/tcp.ts";
import { isolationLevels } from "../../support/postgres/stress.ts";
import { type FencedDatabase, issuerName } from "../../support/postgres/world.ts";
import type { Order, Report } from "./worker.ts";

export interface History {
  resource: string;
  isolation: Isolation;
  operations: number;
  /** How the operations ended, by outcome. */
  ends: Record<string, number>;
  grants: number;
  /** What must not be; empty where all is well. */
  violations: string[];
}

export interface HistoryOptions {
  /** How many histories at once. */
  resources: number;
  /** At least so many operations in each. */
  operations: number;
  seed: number;
}

/** A worker process behind a proxy of its own. */
class Worker implements AsyncDisposable {
  readonly proxy: TcpProxy;
  readonly #database: string;
  readonly #report: (report: Report) => void;
  readonly #orders = new Map<string, Order>();
  #child: ChildProcess;

  constructor(proxy: TcpProxy, database: string, report: (report: Report) => void) {
    this.proxy = proxy;
    this.#database = database;
    this.#report = report;
    this.#child = this.#start();
  }

  #start(): ChildProcess {
    const script = path.join(import.meta.dirname, "worker.ts");
    const child = spawn(process.execPath, [script, String(this.proxy.port), this.#database], {
      stdio: ["pipe", "pipe", "inherit"],
      env: childEnvironment(),
    });
    child.stdin.on("error", () => {});
    createInterface({ input: child.stdout }).on("line", (line) => this.#report(JSON.parse(line) as Report));
    return child;
  }

  tell(order: Order): void {
    this.#orders.set(order.resource, order);
    this.#child.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  stop(): void {
    this.#child.kill("SIGSTOP");
  }

  go(): void {
    this.#child.kill("SIGCONT");
  }

  async #end(): Promise<void> {
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }

  /** As a crash. Another one takes its place, with the same, by now old, tokens. */
  async crash(): Promise<void> {
    await this.#end();
    this.#child = this.#start();
    for (const order of this.#orders.values()) this.tell(order);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    await this.proxy[Symbol.asyncDispose]();
  }
}

/** Moves the mark as the issuer does: those who hold it up are ended after a while. */
const grantBy =
  (database: Database) =>
  async (resource: string, token: bigint): Promise<void> => {
    const done = new AbortController();
    const watch = async () => {
      while (!done.signal.aborted) {
        await sleep(150);
        if (!done.signal.aborted) await database.run(evict(resource), { urgent: true });
      }
    };
    const watching = watch();
    try {
      const holder = holderId("pod:x", String(token));
      await database.run(advance(resource, token as Token, holder, issuerName), {
        lockMs: 8000,
        withinMs: 9000,
      });
    } finally {
      done.abort();
      await watching;
    }
  };

interface Line extends History {
  table: string;
  token: bigint;
  /** After each advance: how many rows there were below its token. */
  below: { token: bigint; rows: number }[];
  ended: Map<string, Report["end"]>;
}

/** Two guarded tables: what each operation did, and the state that all of them change. */
const begin = async (db: FencedDatabase, isolation: Isolation): Promise<Line> => {
  const { table, resource } = await db.guarded(1);
  await db.admin.query(`
    create table ${table}_log (id bigint generated always as identity, token bigint, op text, seen bigint);
    create table ${table}_state (token bigint);
    insert into ${table}_state values (0);
    grant select, insert, update on ${table}_log, ${table}_state to worker;
    select fenceline.guard('${table}_log', '${resource}'), fenceline.guard('${table}_state', '${resource}')`);
  return {
    table,
    resource,
    isolation,
    token: 1n,
    below: [],
    ended: new Map(),
    ends: {},
    operations: 0,
    grants: 0,
    violations: [],
  };
};

/** Breaks one worker after the other until told to stop. */
const breakThem = async (
  workers: readonly Worker[],
  random: () => number,
  over: () => boolean,
): Promise<void> => {
  while (!over()) {
    const worker = workers[Math.floor(random() * workers.length)];
    if (worker === undefined) return;
    const forMs = 50 + random() * 250;
    const luck = random();
    if (luck < 0.4) {
      worker.stop();
      await sleep(forMs);
      worker.go();
    } else if (luck < 0.75) {
      worker.proxy.halfOpen(luck < 0.5 ? "up" : luck < 0.6 ? "down" : "both");
      await sleep(forMs);
      // What was sent into the hole arrives late, or never.
      if (random() < 0.5) worker.proxy.cut();
      worker.proxy.heal();
    } else if (luck < 0.9) worker.proxy.cut();
    else await worker.crash();
    await sleep(random() * 100);
  }
};

/** Runs histories side by side, at all isolation levels, and judges each. */
export const histories = async (
  db: FencedDatabase,
  { resources, operations, seed }: HistoryOptions,
): Promise<History[]> => {
  const random = seeded(seed);
  const grant = grantBy(db.open());
  const lines: Line[] = [];
  for (let index = 0; index < resources; index += 1)
    lines.push(await begin(db, isolationLevels[index % isolationLevels.length] ?? "read committed"));
  const byName = new Map(lines.map((line) => [line.resource, line]));
  const report = ({ resource, op, end }: Report) => {
    const line = byName.get(resource);
    if (line === undefined) return;
    line.operations += 1;
    line.ends[end] = (line.ends[end] ?? 0) + 1;
    line.ended.set(op, end);
  };
  await using stack = new AsyncDisposableStack();
  const reader = new Pool({
    host: "127.0.0.1",
    port: db.server.port,
    user: "postgres",
    database: db.name,
    max: 4,
  });
  stack.defer(() => reader.end());
  const workers: Worker[] = [];
  for (let index = 0; index < 3; index += 1) {
    const proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: db.server.port } });
    workers.push(stack.use(new Worker(proxy, db.name, report)));
  }

  const over = () => lines.every((line) => line.operations >= operations);
  const run = async (line: Line): Promise<void> => {
    const lineRandom = seeded(seed + line.token.toString().length + lines.indexOf(line) * 7919);
    while (line.operations < operations) {
      line.token += 1n;
      await grant(line.resource, line.token);
      line.grants += 1;
      const { rows } = await reader.query(
        `select count(*)::int as n from ${line.table}_log where token < $1`,
        [line.token],
      );
      line.below.push({ token: line.token, rows: rows[0].n });
      const { table, resource, isolation, token } = line;
      workers[Math.floor(lineRandom() * workers.length)]?.tell({
        table,
        resource,
        isolation,
        token: String(token),
      });
      await sleep(100 + lineRandom() * 300);
    }
  };
  const breaking = breakThem(workers, random, over);
  await Promise.all(lines.map(run));
  await breaking;
  for (const { proxy } of workers) proxy.heal();
  await stack.disposeAsync();
  for (const line of lines) await judge(db, line);
  return lines;
};

/** What the database keeps, against what was granted and answered. */
const judge = async (db: FencedDatabase, line: Line): Promise<void> => {
  const { rows } = await db.admin.query(
    `select token::text as token, op, seen::text as seen from ${line.table}_log order by id`,
  );
  const log = rows as { token: string; op: string; seen: string | null }[];
  for (const { token, rows: then } of line.below) {
    const now = log.filter((row) => BigInt(row.token) < token).length;
    if (now !== then) line.violations.push(`${now - then} effects below ${token} after its grant`);
  }
  for (const { token, seen } of log)
    if (seen !== null && BigInt(seen) > BigInt(token))
      line.violations.push(`token ${token} wrote over what ${seen} had written`);
  const stored = new Map<string, number>();
  for (const { op } of log) stored.set(op, (stored.get(op) ?? 0) + 1);
  for (const [op, end] of line.ended) {
    const times = stored.get(op) ?? 0;
    const wrong = end === "ok" ? times !== 1 : end === "unknown" ? times > 1 : times !== 0;
    if (wrong) line.violations.push(`an operation that ended "${end}" is stored ${times} times`);
  }
};
