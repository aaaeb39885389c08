/** A database with the guard installed, and the logins that a real one has. */
import type { Client } from "pg";
import { type Database, openDatabase } from "../../../src/postgres/database.ts";
import { migrate } from "../../../src/postgres/schema.ts";
import { parseDatabaseUrl } from "../../../src/postgres/url.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import type { PostgresServer } from "./server.ts";

export const issuerName = "cluster-1";

/** `worker` may enter, `issuer` may advance, `owner` owns the tables and does not log in. */
const createLogins = `do $$ declare name text; begin
  foreach name in array array['worker', 'issuer', 'reader', 'admin'] loop
    if to_regrole(name) is null then execute format('create role %I login', name); end if;
    execute format('grant fenceline_%s to %I', name, name);
  end loop;
  if to_regrole('owner') is null then create role owner nologin; end if;
end $$`;

let databases = 0;
let resources = 0;

export interface Guarded {
  resource: string;
  /** Schema-qualified. */
  table: string;
}

export class FencedDatabase implements AsyncDisposable {
  readonly server: PostgresServer;
  readonly name: string;
  readonly admin: Client;
  #clients: Client[] = [];
  #databases: Database[] = [];

  constructor(server: PostgresServer, name: string, admin: Client) {
    this.server = server;
    this.name = name;
    this.admin = admin;
  }

  /** A connection that ends with this database. */
  async as(user: "worker" | "issuer" | "reader" | "admin" | "postgres", port?: number): Promise<Client> {
    const client = await this.server.connect(this.name, user, port === undefined ? {} : { port });
    this.#clients.push(client);
    return client;
  }

  /** Our own way in, as the program opens it. */
  open(user = "issuer"): Database {
    const database = openServer(this.server, user, this.name);
    this.#databases.push(database);
    return database;
  }

  /** A table of `owner` with the rows 1 to 3, guarded for a resource of its own, which stands at `token`. */
  async guarded(
    token?: number,
    { columns = "id int primary key, v text, last_fencing_token bigint", issued = true } = {},
  ): Promise<Guarded> {
    resources += 1;
    const resource = `shop/orders-${resources}`;
    const table = `public.orders_${resources}`;
    await this.admin.query(`create table ${table} (${columns});
      alter table ${table} owner to owner;
      grant select, insert, update, delete, truncate on ${table} to worker;
      insert into ${table} (id) values (1), (2), (3);
      select fenceline.guard('${table}', '${resource}')`);
    if (token !== undefined && issued) await this.advance(resource, token);
    return { resource, table };
  }

  /** As a coordinator that grants does. */
  readonly advance = async (
    resource: string,
    token: number | bigint,
    attempt = `pod:a/${token}`,
  ): Promise<void> => {
    await this.admin.query("select fenceline.advance($1, $2, $3, $4)", [
      resource,
      String(token),
      attempt,
      issuerName,
    ]);
  };

  async mark(
    resource: string,
  ): Promise<{ granted: string; used: string; refused: string; closing: string | null }> {
    const { rows } = await this.admin.query("select * from fenceline.mark($1)", [resource]);
    return rows[0];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#clients, this.admin].map((client) => client.end().catch(() => undefined)));
    await Promise.all(this.#databases.map((database) => database.end()));
  }
}

export const openServer = (server: PostgresServer, user: string, database: string): Database => {
  const parsed = parseDatabaseUrl(server.url(user, database));
  if (!parsed.ok) throw new Error(parsed.message);
  return openDatabase(parsed.address, systemClock);
};

/** A new database of the server with the guard in it. */
export const fencedDatabase = async (server: PostgresServer): Promise<FencedDatabase> => {
  databases += 1;
  const name = `shop_${process.pid}_${databases}`;
  await server.admin((client) => client.query(`create database ${name}`));
  const installer = openServer(server, "postgres", name);
  await migrate(installer);
  await installer.end();
  const admin = await server.connect(name);
  await admin.query(createLogins);
  return new FencedDatabase(server, name, admin);
};

/** SQLSTATE of a statement, `00000` where it was accepted. */
export const stateOf = async (statement: Promise<unknown>): Promise<string> => {
  try {
    await statement;
    return "00000";
  } catch (error) {
    if (error instanceof Error && "code" in error) return String(error.code);
    throw error;
  }
};

/** Statements in one transaction, with `enter` first where a token is given. SQLSTATE of what failed, else `00000`. */
export const transact = async (
  client: Client,
  { token, resource }: { token?: number | string | undefined; resource: string },
  ...statements: string[]
): Promise<string> => {
  try {
    await client.query("begin");
    if (token !== undefined) await client.query("select fenceline.enter($1, $2)", [resource, String(token)]);
    for (const statement of statements) await client.query(statement);
    await client.query("commit");
    return "00000";
  } catch (error) {
    await client.query("rollback").catch(() => undefined);
    return stateOf(Promise.reject(error));
  }
};
