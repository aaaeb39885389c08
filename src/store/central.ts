/** The installation's own database. Its URL is read again now and then, so that a new password needs no restart. */
import { elapsed, type MonoTime } from "../core/time.ts";
import { type Database, openDatabase } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { parseDatabaseUrl } from "../postgres/url.ts";
import type { Clock } from "../runtime/clock.ts";

/** What leads to the database, or why it cannot be read, in one line. */
export type CentralLogin = { ok: true; url: string; ca: string | undefined } | { ok: false; message: string };

export interface Central extends Pick<Database, "run"> {
  end(): Promise<void>;
}

const readEveryMs = 60_000;

interface Opened {
  ok: true;
  database: Database;
  url: string;
  ca: string | undefined;
}

const opened = (
  { url, ca }: Extract<CentralLogin, { ok: true }>,
  clock: Clock,
): Opened | { ok: false; message: string } => {
  const parsed = parseDatabaseUrl(url, ca);
  return parsed.ok ? { ok: true, database: openDatabase(parsed.address, clock), url, ca } : parsed;
};

export const makeCentral = (read: () => Promise<CentralLogin>, clock: Clock): Central => {
  let open: Opened | undefined;
  let readAt: MonoTime | undefined;

  const reach = async (): Promise<Database> => {
    const now = clock.mono();
    if (open !== undefined && readAt !== undefined && elapsed(readAt, now) < readEveryMs)
      return open.database;
    const login = await read();
    readAt = now;
    if (login.ok && open?.url === login.url && open.ca === login.ca) return open.database;
    const made = login.ok ? opened(login, clock) : login;
    if (made.ok) {
      void open?.database.end();
      open = made;
    }
    // What can be read no more may still be good.
    if (open === undefined) throw new DatabaseError("unreachable", made.ok ? "" : made.message);
    return open.database;
  };

  return {
    run: async (statement, options) => (await reach()).run(statement, options),
    async end() {
      await open?.database.end();
    },
  };
};
