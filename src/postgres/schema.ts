/** Brings the schema `fenceline` to the version of this program, looks at it, takes it away. */
import { createHash } from "node:crypto";
import type { Database, Session } from "./database.ts";
import { DatabaseError } from "./errors.ts";
import { type Migration, migrations } from "./migrations.ts";
import { createDoorkeeper, dropDoorkeeper } from "./schema/doorkeeper.ts";
import { createRoles, roleNames } from "./schema/roles.ts";
import { gateClass } from "./schema/words.ts";
import { sql } from "./sql.ts";

/** The schema is not one that this program can work with. One line: what, where, what to do. */
export class SchemaError extends DatabaseError {
  constructor(message: string) {
    super("refused", message);
    this.name = "SchemaError";
  }
}

const checksumOf = ({ statements }: Migration): string =>
  createHash("sha256").update(statements.join("\n;\n")).digest("hex");

const createBook = `
create schema if not exists fenceline authorization fenceline_owner;
set local role fenceline_owner;
create table if not exists fenceline.migration (
  version integer primary key,
  name text not null,
  checksum text not null,
  breaking boolean not null,
  applied timestamptz not null default now()
)`;

const note = (migration: Migration): string =>
  sql`insert into fenceline.migration (version, name, checksum, breaking)
    values (${migration.version}, ${migration.name}, ${checksumOf(migration)}, `.concat(
    `${migration.breaking})`,
  );

/** The statements of an installation from nothing, in order, for people to read. */
export const installation = (known: readonly Migration[] = migrations): string[] => [
  createRoles,
  createBook,
  ...known.flatMap((migration) => [...migration.statements, note(migration)]),
  "reset role",
  createDoorkeeper,
];

/** Versions to apply. Throws {@link SchemaError} where the schema is another program's. */
const missing = async (
  session: Session,
  where: string,
  known: readonly Migration[],
): Promise<Migration[]> => {
  const rows = await session("select version, checksum, breaking from fenceline.migration order by version");
  const applied = new Map(rows.map((row) => [Number(row["version"]), row]));
  for (const [version, row] of applied) {
    const own = known.find((migration) => migration.version === version);
    if (own === undefined && row["breaking"] === true)
      throw new SchemaError(
        `${where}: the schema fenceline is at version ${version}, which this program does not know: use a newer one`,
      );
    if (own !== undefined && row["checksum"] !== checksumOf(own))
      throw new SchemaError(
        `${where}: version ${version} of the schema fenceline is not the one of this program: install with the program that made it`,
      );
  }
  return known.filter(({ version }) => !applied.has(version));
};

/**
 * Installs or upgrades, all or nothing; several at once take turns. Returns the versions that were applied. Needs a
 * superuser, or a login with CREATEROLE that may create in the database.
 */
export const migrate = (database: Database, known: readonly Migration[] = migrations): Promise<number[]> =>
  database.session(
    async (session) => {
      await session("begin isolation level read committed");
      await session(`set local lock_timeout = '30s'; select pg_advisory_xact_lock(${gateClass}, 0)`);
      await session(createRoles);
      await session(createBook);
      const applied: number[] = [];
      for (const migration of await missing(session, database.where, known)) {
        for (const statement of migration.statements) await session(statement);
        await session(note(migration));
        applied.push(migration.version);
      }
      await session("reset role");
      await session(createDoorkeeper);
      await session("commit");
      return applied;
    },
    { withinMs: 60_000 },
  );

/** Undefined where the schema fits; else why not, as one line. */
export const schemaTrouble = (
  database: Database,
  known: readonly Migration[] = migrations,
): Promise<string | undefined> =>
  database.session(async (session) => {
    const [found] = await session("select to_regclass('fenceline.migration') is not null as there");
    if (found?.["there"] !== true)
      return `${database.where}: the schema fenceline is missing: run fenceline guard install`;
    try {
      const left = await missing(session, database.where, known);
      return left.length === 0
        ? undefined
        : `${database.where}: the schema fenceline is older than this program: run fenceline guard install`;
    } catch (error) {
      if (error instanceof SchemaError) return error.message;
      throw error;
    }
  });

/**
 * Takes away triggers, schema and, where no other database of the server needs them, roles. The marks are lost: tokens
 * of the past would be believed again.
 */
export const removeSchema = (database: Database): Promise<void> =>
  database.session(
    async (session) => {
      await session("begin");
      await session(`set local lock_timeout = '30s'; select pg_advisory_xact_lock(${gateClass}, 0)`);
      await session(dropDoorkeeper);
      await session(`do $do$
      declare relid oid;
      begin
        if to_regclass('fenceline.guarded') is not null then
          for relid in select g.relid from fenceline.guarded g loop
            perform fenceline.unguard(relid);
          end loop;
        end if;
      end $do$`);
      await session("drop schema if exists fenceline cascade");
      for (const role of roleNames.toReversed())
        await session(`do $do$ begin
        drop role if exists ${role};
      exception when dependent_objects_still_exist then null;
      end $do$`);
      await session("commit");
    },
    { withinMs: 60_000 },
  );
