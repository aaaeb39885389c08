/**
 * A worker process: for each resource it works on, and on, under the last token it was told of. It never learns of a
 * loss but by being refused, and even then it goes on trying.
 *
 *     node worker.ts PORT DATABASE      orders on stdin, one report a line on stdout
 */
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool, type PoolClient } from "pg";
import { CommitUnknown, type Isolation, withFence } from "../../../src/client/fence.ts";
import { fenceRefusal } from "../../../src/client/refusal.ts";

/** `token` null: the history of this resource is over. */
export interface Order {
  resource: string;
  /** Its tables are TABLE_state and TABLE_log. */
  table: string;
  token: string | null;
  isolation: Isolation;
}

export interface Report {
  resource: string;
  token: string;
  op: string;
  end: "ok" | "unknown" | "failed" | `refused:${string}`;
}

const [, , port = "", database = ""] = process.argv;
const pool = new Pool({ host: "127.0.0.1", port: Number(port), user: "worker", database, max: 24 });
pool.on("error", () => {});

/** What each resource is worked on with; a newer order replaces it. */
const orders = new Map<string, Order>();

/** Reads the state, writes it and the log. `seen`: the token that wrote the state before. */
const effect = async (client: PoolClient, { table, token }: Order, op: string): Promise<void> => {
  const { rows } = await client.query(`select token::text as token from ${table}_state for update`);
  if (Math.random() < 0.3) await sleep(Math.random() * 8);
  await client.query(`insert into ${table}_log (token, op, seen) values ($1, $2, $3)`, [
    token,
    op,
    rows[0].token,
  ]);
  await client.query(`update ${table}_state set token = $1`, [token]);
};

/** Compare and effect in one statement, without a transaction of its own. */
const oneStatement = ({ table, resource, token }: Order, op: string): Promise<unknown> =>
  pool.query(
    `insert into ${table}_log (token, op) select $2, $3 where (select fenceline.enter($1, $2::bigint))`,
    [resource, token, op],
  );

const endOf = async (work: Promise<unknown>, single: boolean): Promise<Report["end"]> => {
  try {
    await work;
    return "ok";
  } catch (error) {
    const refusal = fenceRefusal(error);
    if (refusal !== undefined) return `refused:${refusal.code}`;
    // What a single statement failed with may have happened after its commit.
    const answered =
      error instanceof Error &&
      "severity" in error &&
      !("code" in error && String(error.code).startsWith("57"));
    return error instanceof CommitUnknown || (single && !answered) ? "unknown" : "failed";
  }
};

const work = async (resource: string): Promise<void> => {
  for (;;) {
    const order = orders.get(resource);
    if (order === undefined || order.token === null) return void orders.delete(resource);
    const op = randomUUID();
    const single = Math.random() < 0.5;
    const fence = { resource, token: order.token };
    const done = single
      ? oneStatement(order, op)
      : withFence(pool, fence, (client) => effect(client, order, op), {
          isolation: order.isolation,
          attempts: 3,
        });
    const end = await endOf(done, single);
    process.stdout.write(`${JSON.stringify({ resource, token: order.token, op, end } satisfies Report)}\n`);
    await sleep(end === "ok" ? Math.random() * 4 : 5 + Math.random() * 10);
  }
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const order = JSON.parse(line) as Order;
  const works = orders.has(order.resource);
  orders.set(order.resource, order);
  if (!works) void work(order.resource);
});
