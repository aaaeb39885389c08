/** Connections to one database: few, bounded in time, and through any pooler. */
import { Pool, type PoolClient, type QueryResult } from "pg";
import { z } from "zod";
import type { Clock } from "../runtime/clock.ts";
import { DatabaseError, databaseError } from "./errors.ts";
import { makeSlots } from "./slots.ts";
import type { Statement } from "./sql.ts";
import type { DatabaseAddress } from "./url.ts";

export interface RunOptions {
  /** Patience for the whole of it; when it ends the connection is given up. */
  withinMs?: number;
  /** `lock_timeout` of the transaction. */
  lockMs?: number;
  /** May use the connection that is kept for ending those who block the others. */
  urgent?: boolean;
  signal?: AbortSignal | undefined;
}

/** Statements one after the other on one connection. */
export type Session = (text: string) => Promise<Record<string, unknown>[]>;

export interface Database {
  /** For people: `host:port/database`. */
  readonly where: string;
  /** One statement in a transaction of its own at READ COMMITTED, in one round trip. Throws {@link DatabaseError}. */
  run<Row>(statement: Statement<Row>, options?: RunOptions): Promise<Row[]>;
  /** Several statements, with transactions as they say. The connection is not used again. Throws {@link DatabaseError}. */
  session<T>(use: (session: Session) => Promise<T>, options?: RunOptions): Promise<T>;
  end(): Promise<void>;
}

const ignore = () => undefined;

const connectionsMost = 4;
const idleMs = 60_000;
const connectMs = 5_000;
const patienceMs = 10_000;

const tlsOf = ({ sslmode, ca, host }: DatabaseAddress) => {
  if (sslmode === "disable") return false;
  const trusted = ca === undefined ? {} : { ca };
  switch (sslmode) {
    case "require":
      return { rejectUnauthorized: false };
    case "verify-ca":
      return { ...trusted, checkServerIdentity: () => undefined };
    case "verify-full":
      return { ...trusted, servername: host };
    default: {
      const never: never = sslmode;
      return never;
    }
  }
};

const rowsOf = (result: unknown): Record<string, unknown>[] => {
  // A text of several statements has a result for each.
  const results = (Array.isArray(result) ? result : [result]) as QueryResult<Record<string, unknown>>[];
  return results.flatMap(({ rows }) => rows);
};

export const openDatabase = (address: DatabaseAddress, clock: Pick<Clock, "timer">): Database => {
  const where = `${address.host}:${address.port}/${address.database}`;
  const pool = new Pool({
    host: address.host,
    port: address.port,
    database: address.database,
    user: address.user,
    // A function: an empty text would make the driver look into files and the environment.
    password: () => address.password,
    ssl: tlsOf(address),
    application_name: "fenceline",
    max: connectionsMost,
    idleTimeoutMillis: idleMs,
    connectionTimeoutMillis: connectMs,
    allowExitOnIdle: true,
  });
  // An idle connection that breaks is replaced by the next statement.
  pool.on("error", () => undefined);
  const ordinary = makeSlots(connectionsMost - 1);

  /** Runs with a connection and a bound. `sent` says whether anything can have reached the server. */
  const within = async <T>(
    use: (client: PoolClient) => Promise<T>,
    { withinMs = patienceMs, urgent = false, signal }: RunOptions,
    keep: boolean,
  ): Promise<T> => {
    signal?.throwIfAborted();
    const over = new AbortController();
    const late = new DatabaseError("unknown", `${where}: no answer within ${withinMs} ms`);
    const cancel = clock.timer(withinMs, () => over.abort(late));
    const ended = signal === undefined ? over.signal : AbortSignal.any([over.signal, signal]);
    let client: PoolClient | undefined;
    let give: () => void = ignore;
    let sent = false;
    let sound = false;
    const giveUp = Promise.withResolvers<never>();
    giveUp.promise.catch(() => undefined);
    const abort = () => giveUp.reject(ended.reason);
    ended.addEventListener("abort", abort, { once: true });
    try {
      if (!urgent) give = await ordinary.take(ended);
      const connecting = pool.connect();
      // One that arrives after its time is not left lying about.
      connecting.then(
        (arrived) => ended.aborted && client === undefined && arrived.release(true),
        () => undefined,
      );
      client = await Promise.race([connecting, giveUp.promise]);
      client.on("error", ignore);
      sent = true;
      const result = await Promise.race([use(client), giveUp.promise]);
      sound = keep;
      return result;
    } catch (error) {
      if (signal?.aborted && error === signal.reason) throw error;
      const known = databaseError(error, where, sent);
      if (known === late && !sent) throw new DatabaseError("unreachable", late.message);
      // The server answered and the transaction is over: the connection can go on.
      sound = keep && known.kind === "refused";
      throw known;
    } finally {
      cancel();
      ended.removeEventListener("abort", abort);
      client?.off("error", ignore);
      client?.release(!sound);
      give();
    }
  };

  return {
    where,
    async run({ text, row }, options = {}) {
      const lock = options.lockMs === undefined ? "" : `set local lock_timeout = ${options.lockMs};`;
      const rows = await within(
        async (client) => {
          try {
            return rowsOf(
              await client.query(`begin isolation level read committed; ${lock} ${text}; commit`),
            );
          } catch (error) {
            if (databaseError(error, where, true).kind === "refused") await client.query("rollback");
            throw error;
          }
        },
        options,
        true,
      );
      const read = z.array(row).safeParse(rows);
      if (!read.success)
        throw new DatabaseError(
          "refused",
          `${where}: the schema fenceline answers what this version does not know`,
        );
      return read.data;
    },
    session: (use, options = {}) =>
      within((client) => use(async (text) => rowsOf(await client.query(text))), options, false),
    end: () => pool.end(),
  };
};
