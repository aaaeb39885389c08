/**
 * Work in PostgreSQL under a fencing token: begin, enter, the work, commit.
 *
 * | what happened | what follows |
 * | --- | --- |
 * | the guard refused (FNC..) | rolled back; FenceRefusal, a stale token as StaleToken: never tried again |
 * | 40001, 40P01; session ended or connection lost before COMMIT | surely not applied: again in a new transaction, bounded |
 * | COMMIT without an answer, or the session ended during it | CommitUnknown: look before doing it again |
 * | anything else | rolled back and thrown on as it is |
 */
import type { Pool, PoolClient } from "pg";
import { parseToken, type Token } from "../core/token.ts";
import { systemClock, systemRandom } from "../runtime/clock.ts";
import { fenceRefusal, FenceRefusal, fieldOf } from "./refusal.ts";

/** A right, as `acquire` gives it, or as read from an agent's files. */
export interface Fence {
  /** `namespace/name`. */
  resource: string;
  /** 1 … 9223372036854775807; text is decimal digits. A JavaScript number would lose some. */
  token: bigint | string;
  /** Aborted when the holder knows that the right is lost: then nothing new is begun. */
  lost?: AbortSignal;
}

export type Isolation = "read committed" | "repeatable read" | "serializable";

export interface FenceOptions {
  isolation?: Isolation;
  /** How often the work is tried at most. Default 5. */
  attempts?: number;
}

/** COMMIT was sent and nobody knows what became of it: the work may have been stored, or not. */
export class CommitUnknown extends Error {
  override readonly name = "CommitUnknown";
}

/** The transaction failed and the work went on: what a statement refused was swallowed. Nothing was stored. */
export class RolledBack extends Error {
  override readonly name = "RolledBack";
}

/** Not applied, by whatever may pass by itself. */
const passing = /^(40001|40P01|57P0[123]|08...|53...)$/;

/** Of the driver or the network, with no word of the server. */
const isSevered = (thrown: unknown): boolean =>
  thrown instanceof Error &&
  fieldOf(thrown, "severity") === undefined &&
  (/^Connection terminated|^Client has encountered a connection error|^timeout exceeded when trying to connect/.test(
    thrown.message,
  ) ||
    /^E[A-Z]+$/.test(fieldOf(thrown, "code") ?? ""));

/** `broken`: the connection of the transaction is. Else an error of the network is that of the work's own errands. */
const isPassing = (thrown: unknown, broken: boolean): boolean =>
  fieldOf(thrown, "severity") === undefined
    ? broken && isSevered(thrown)
    : passing.test(fieldOf(thrown, "code") ?? "");

/** The server refused to commit, in so many words; else it may have committed. */
const isRefusedCommit = (thrown: unknown): boolean =>
  fieldOf(thrown, "severity") !== undefined && !/^(57P0|08|58|XX)/.test(fieldOf(thrown, "code") ?? "");

const checked = (fence: Fence): { resource: string; token: Token } => {
  const token = typeof fence.token === "bigint" ? parseToken(String(fence.token)) : parseToken(fence.token);
  if (token === undefined || token < 1n)
    throw new TypeError(
      `the token of ${fence.resource} is ${JSON.stringify(String(fence.token))}: it must be decimal digits, 1 to 9223372036854775807`,
    );
  return { resource: fence.resource, token };
};

/** Before try number `tries` + 1, in milliseconds. */
const pauseMs = (tries: number): number => 20 * 2 ** tries * (1 + systemRandom.float());

/**
 * Runs `work` in one transaction under the tokens of `fences`, and commits it. `work` gets the connection, with the
 * transaction open and entered; it must be fit to run again, and neither commit nor roll back.
 *
 * Rejects with StaleToken (stop working), another FenceRefusal, CommitUnknown, RolledBack, the reason of a `lost` signal,
 * a TypeError for a token that is none, or what `work` or the server threw.
 */
export const withFence = async <Result>(
  pool: Pool,
  fences: Fence | readonly Fence[],
  work: (client: PoolClient) => Promise<Result>,
  { isolation = "read committed", attempts = 5 }: FenceOptions = {},
): Promise<Result> => {
  const all: readonly Fence[] = "resource" in fences ? [fences] : fences;
  const entries = all.map(checked);
  for (let tries = 1; ; tries += 1) {
    for (const { lost } of all) lost?.throwIfAborted();
    try {
      return await once(pool, entries, work, isolation);
    } catch (error) {
      if (!(error instanceof Passing)) throw error;
      if (tries >= attempts) throw error.cause;
      await systemClock.sleep(pauseMs(tries));
    }
  }
};

/** Rolled back, and worth another try. */
class Passing extends Error {}

const once = async <Result>(
  pool: Pool,
  entries: readonly { resource: string; token: Token }[],
  work: (client: PoolClient) => Promise<Result>,
  isolation: Isolation,
): Promise<Result> => {
  const client = await pool.connect().catch((error: unknown) => {
    throw isPassing(error, true) ? new Passing("no connection", { cause: error }) : error;
  });
  // A session that is ended between two statements says so by an event, which unheard would end the process.
  let severed: Error | undefined;
  const sever = (error: Error): void => {
    severed ??= error;
  };
  client.on("error", sever);
  let broken = false;
  try {
    let result: Result;
    try {
      await client.query(`begin isolation level ${isolation}`);
      for (const { resource, token } of entries)
        await client.query("select fenceline.enter($1, $2)", [resource, String(token)]);
      result = await work(client);
    } catch (error) {
      broken = !(await rolledBack(client));
      throw judged(error, broken);
    }
    broken = severed !== undefined;
    if (broken) throw new Passing("not applied", { cause: severed });
    try {
      const { command } = await client.query("commit");
      if (command !== "COMMIT")
        throw new RolledBack(
          "nothing was stored: a statement of this transaction failed, and the work went on",
        );
      return result;
    } catch (error) {
      if (error instanceof RolledBack || isRefusedCommit(error)) throw judged(error, false);
      broken = true;
      throw new CommitUnknown(
        "COMMIT got no answer: the work may have been stored, look before doing it again",
        {
          cause: error,
        },
      );
    }
  } finally {
    client.off("error", sever);
    client.release(broken);
  }
};

const judged = (error: unknown, broken: boolean): unknown => {
  const refusal = fenceRefusal(error);
  if (refusal instanceof FenceRefusal) return refusal;
  return isPassing(error, broken) ? new Passing("not applied", { cause: error }) : error;
};

const rolledBack = (client: PoolClient): Promise<boolean> =>
  client.query("rollback").then(
    () => true,
    () => false,
  );
