/** One database each for all resources that name the same login, so that its few connections are few for all of them. */
import { type Database, openDatabase } from "../postgres/database.ts";
import { makeSlots, type Slots } from "../postgres/slots.ts";
import { parseDatabaseUrl } from "../postgres/url.ts";
import type { Clock } from "../runtime/clock.ts";

export interface Login {
  url: string;
  /** Certificates to trust, PEM. */
  ca: string | undefined;
}

export interface Connection {
  database: Database;
  /** The login's own name. */
  user: string;
  /** Places for advances that wait. */
  waiting: Slots;
}

export interface Connections {
  /** `message` says why the URL cannot be used, and never quotes it. */
  open(login: Login): { ok: true; connection: Connection } | { ok: false; message: string };
  /** Ends all others. */
  keep(connections: ReadonlySet<Connection>): void;
}

const waitingMost = 2;

export const makeConnections = (clock: Pick<Clock, "timer">): Connections => {
  const known = new Map<string, Connection>();
  return {
    open({ url, ca }) {
      const name = `${url}\n${ca ?? ""}`;
      const found = known.get(name);
      if (found !== undefined) return { ok: true, connection: found };
      const parsed = parseDatabaseUrl(url, ca);
      if (!parsed.ok) return parsed;
      const connection = {
        database: openDatabase(parsed.address, clock),
        user: parsed.address.user,
        waiting: makeSlots(waitingMost),
      };
      known.set(name, connection);
      return { ok: true, connection };
    },
    keep(connections) {
      for (const [name, connection] of known)
        if (!connections.has(connection)) {
          known.delete(name);
          void connection.database.end();
        }
    },
  };
};
