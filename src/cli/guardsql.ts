/** An installation as a script that a database administrator reads, and runs with psql. */
import { installation } from "../postgres/schema.ts";
import { configure, guardTable, type TableName, tableText } from "../postgres/statements/guard.ts";

export interface PlannedGuard {
  resource: string;
  tables: readonly TableName[];
  mode: "Hold" | "Once";
  advance: "OnGrant" | "OnFirstWrite";
}

/** As lines of an SQL comment. */
const comment = (text: string): string =>
  text
    .trim()
    .split("\n")
    .map((line) => `-- ${line.trim()}`.trimEnd())
    .join("\n");

const head = comment(`
Fenceline: a guard that refuses writes without the token of the current holder.
Run it as a superuser, or as a role with CREATEROLE that may create in this database and owns the tables:
psql -v ON_ERROR_STOP=1 -f this-file
All of it is one transaction. Nothing outside the schema fenceline changes but the triggers on the guarded tables.`);

const roles = comment(`
Who may do what, once it is installed. Grant each to a login of its own:
grant fenceline_issuer to <login of the controller>;   -- raises the mark
grant fenceline_worker to <login of the workers>;      -- calls fenceline.enter before it writes
The owner of a guarded table can switch the guard off. Give tables to a role that does not log in.`);

const workers = (resource: string): string =>
  comment(`
A worker then writes in a transaction that begins with
select fenceline.enter('${resource.replaceAll("'", "''")}', <its token>);
Take a guard away again with: fenceline guard remove`);

export const guardSql = (guard: PlannedGuard | undefined): string => {
  const statements = installation().map((statement) => statement.trim().replace(/;$/, ""));
  const parts = [
    head,
    "begin;",
    "-- 1. Roles, and the schema fenceline",
    ...statements.map((text) => `${text};`),
  ];
  if (guard !== undefined) {
    const { resource, tables, mode, advance } = guard;
    parts.push(
      ...tables.flatMap((table, index) => [
        `-- ${index + 2}. ${tableText(table)} refuses every write without the token of ${resource}`,
        `${guardTable(table, resource).text};`,
      ]),
      `${configure(resource, mode, advance).text};`,
    );
  }
  parts.push("commit;", roles);
  if (guard !== undefined) parts.push(workers(guard.resource));
  return `${parts.join("\n\n")}\n`;
};
