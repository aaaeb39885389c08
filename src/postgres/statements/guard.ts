import { escapeIdentifier } from "pg";
import { z } from "zod";
import { sql, type Statement } from "../sql.ts";

export interface TableName {
  schema: string;
  name: string;
}

/** As SQL writes it. */
export const tableText = ({ schema, name }: TableName): string =>
  `${escapeIdentifier(schema)}.${escapeIdentifier(name)}`;

const nothing = z.object({ done: z.unknown() });

/** Guards a table for a resource, or mends the guard that it has. By the owner of the table, with `fenceline_admin`. */
export const guardTable = (table: TableName, resource: string): Statement<{ done?: unknown }> => ({
  text: sql`select fenceline.guard(${tableText(table)}::regclass, ${resource}) as done`,
  row: nothing,
});

/** Takes the guard away; the mark stays. */
export const unguardTable = (table: TableName): Statement<{ done?: unknown }> => ({
  text: sql`select fenceline.unguard(${tableText(table)}::regclass) as done`,
  row: nothing,
});

/** Error FNC03 where no table is guarded for the resource. */
export const configure = (
  resource: string,
  mode: "Hold" | "Once",
  advance: "OnGrant" | "OnFirstWrite",
): Statement<{ done?: unknown }> => ({
  text: sql`select fenceline.configure(${resource}, ${mode}, ${advance}) as done`,
  row: nothing,
});

/** SQLSTATEs: what became of a write without a token, with one below the mark, and with the mark's own. */
export interface Probed {
  relation: string;
  missing: string;
  stale: string;
  current: string;
}

/** Tries each guarded table, in a part of the transaction that is rolled back. Error FNC03 for an unknown resource. */
export const probe = (resource: string): Statement<Probed> => ({
  text: sql`select relation, missing, stale, current from fenceline.probe(${resource})`,
  row: z.object({ relation: z.string(), missing: z.string(), stale: z.string(), current: z.string() }),
});

/** Is the table proved to refuse what it must, and nothing else? */
export const refuses = ({ missing, stale, current }: Probed): boolean =>
  missing === "FNC02" && stale === "FNC01" && current === "00000";
