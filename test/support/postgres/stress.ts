/**
 * Writers with the token that stands and with the ones before, while the mark moves on. What must hold: once an advance
 * has returned, the number of rows with a lower token never grows.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "pg";
import { migrations } from "../../../src/postgres/migrations.ts";
import { ownFunctions } from "../../../src/postgres/schema/functions.ts";
import { type FencedDatabase, type Guarded, issuerName, stateOf } from "./world.ts";

export const isolationLevels = ["read committed", "repeatable read", "serializable"] as const;
export type Isolation = (typeof isolationLevels)[number];

export interface Stressed {
  advances: number;
  commits: number;
  /** SQLSTATEs of what was refused. */
  refusals: Record<string, number>;
  /** Advances after which a row with a lower token still appeared. */
  violations: number;
}

export interface StressOptions {
  isolation: Isolation;
  /** Ends after so long, or with the first violation where one is looked for. */
  forMs: number;
  untilViolated?: boolean;
  writers?: number;
  /** How the mark is moved: as the issuer does, or with an UPDATE typed by an administrator. */
  byHand?: boolean;
}

const pauseMs = 8;

export const stress = async (
  db: FencedDatabase,
  { table, resource }: Guarded,
  { isolation, forMs, untilViolated = false, writers = 8, byHand = false }: StressOptions,
): Promise<Stressed> => {
  const result: Stressed = { advances: 0, commits: 0, refusals: {}, violations: 0 };
  const run = { token: 10, over: false };
  await db.advance(resource, run.token);

  const write = async (client: Client): Promise<string> => {
    const offered = run.token - Math.floor(Math.random() * 3);
    await client.query(`begin isolation level ${isolation}`);
    try {
      // A snapshot that is older than the lock, every other time.
      if (Math.random() < 0.5) {
        await client.query(`select from ${table}_log limit 1`);
        await sleep(Math.random() * pauseMs);
      }
      await client.query("select fenceline.enter($1, $2)", [resource, offered]);
      await client.query(`insert into ${table}_log values ($1)`, [offered]);
      await sleep(Math.random() * pauseMs);
      await client.query("commit");
      result.commits += 1;
      return "00000";
    } catch (error) {
      await client.query("rollback");
      return stateOf(Promise.reject(error));
    }
  };

  const writer = async (): Promise<void> => {
    const client = await db.as("worker");
    while (!run.over) {
      const state = await write(client);
      if (state !== "00000") result.refusals[state] = (result.refusals[state] ?? 0) + 1;
    }
  };

  const issuer = async (): Promise<void> => {
    const client = await db.as("postgres");
    const below = async () =>
      Number(
        (await client.query(`select count(*) as n from ${table}_log where token < $1`, [run.token])).rows[0]
          .n,
      );
    const end = performance.now() + forMs;
    while (!run.over) {
      const next = run.token + 1;
      if (byHand)
        await client.query("update fenceline.mark set granted = $2, attempt = 'x' where resource = $1", [
          resource,
          next,
        ]);
      else
        await client.query("select fenceline.advance($1, $2, 'pod:x/1', $3)", [resource, next, issuerName]);
      run.token = next;
      result.advances += 1;
      const then = await below();
      await sleep(2 * pauseMs + Math.random() * pauseMs);
      if ((await below()) !== then) result.violations += 1;
      run.over = performance.now() > end || (untilViolated && result.violations > 0);
    }
  };

  try {
    await Promise.all([issuer(), ...Array.from({ length: writers }, writer)]);
  } finally {
    run.over = true;
  }
  return result;
};

/** A guarded table with a log beside it, which is guarded too. */
export const stressed = async (db: FencedDatabase): Promise<Guarded> => {
  const guarded = await db.guarded(9);
  await db.admin.query(`create table ${guarded.table}_log (token bigint);
    grant select, insert on ${guarded.table}_log to worker;
    select fenceline.guard('${guarded.table}_log', '${guarded.resource}')`);
  return guarded;
};

/** Takes a rule out of our own functions: each text must be there to be replaced. */
export const without = async (
  db: FencedDatabase,
  changes: Readonly<Record<string, readonly (readonly [RegExp, string])[]>>,
): Promise<void> => {
  const sources = new Map(ownFunctions(migrations).map(({ name, source }) => [name, source]));
  for (const [name, replacements] of Object.entries(changes)) {
    let source = sources.get(name) ?? "";
    for (const [text, instead] of replacements) {
      if (!text.test(source)) throw new Error(`${name} has no ${String(text)}`);
      source = source.replaceAll(new RegExp(text, "g"), instead);
    }
    await db.admin.query(source);
  }
};
