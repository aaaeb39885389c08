/** `fenceline guard`: the guard in a PostgreSQL database, for whoever looks after that database. */
import { readFileSync } from "node:fs";
import { examine } from "../boundary/verification.ts";
import { type Database, openDatabase } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { migrate, removeSchema } from "../postgres/schema.ts";
import {
  configure,
  guardTable,
  type TableName,
  tableText,
  unguardTable,
} from "../postgres/statements/guard.ts";
import { parseDatabaseUrl } from "../postgres/url.ts";
import type { CliDeps } from "./deps.ts";
import { CliError } from "./errors.ts";
import { guardSql } from "./guardsql.ts";
import { columns, printable } from "./text.ts";

export interface GuardFlags {
  databaseUrlFile?: string;
  caFile?: string;
  table?: string[];
  resource?: string;
  mode: string;
  advance: string;
  output?: string;
  all?: boolean;
}

/** Where the URL is, if no file is named. Arguments can be read by everybody on the machine. */
const urlVariable = "FENCELINE_DATABASE_URL";

const fileText = (flag: string, path: string): string => {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new CliError("usage", `cannot read ${flag} ${path}: ${code}: name a file that can be read`);
  }
};

const withDatabase = async <T>(
  { databaseUrlFile, caFile }: GuardFlags,
  { env, clock }: CliDeps,
  use: (database: Database) => Promise<T>,
): Promise<T> => {
  const url =
    databaseUrlFile === undefined ? env[urlVariable] : fileText("--database-url-file", databaseUrlFile);
  if (url === undefined)
    throw new CliError("usage", `which database? name a file by --database-url-file, or set ${urlVariable}`);
  const ca = caFile === undefined ? undefined : fileText("--ca-file", caFile);
  const parsed = parseDatabaseUrl(url, ca);
  if (!parsed.ok) throw new CliError("usage", parsed.message);
  const database = openDatabase(parsed.address, clock);
  try {
    return await use(database);
  } finally {
    await database.end();
  }
};

const say = ({ stdout }: CliDeps, text: string): unknown => stdout.write(`${printable(text)}\n`);

const part = String.raw`"(?:[^"]|"")+"|[^".\s]+`;
const tablePattern = new RegExp(`^(?:(${part})\\.)?(${part})$`);

/** A name as SQL reads it: in lower case unless it is quoted. */
const identifier = (text: string): string =>
  text.startsWith('"') ? text.slice(1, -1).replaceAll('""', '"') : text.toLowerCase();

const tablesOf = ({ table = [] }: GuardFlags): TableName[] =>
  table.map((text) => {
    const [, schema = "public", name] = tablePattern.exec(text) ?? [];
    if (name === undefined)
      throw new CliError("usage", `--table ${text}: write table or schema.table, as SQL does`);
    return { schema: identifier(schema), name: identifier(name) };
  });

const resourceOf = ({ resource }: GuardFlags): string => {
  if (resource === undefined)
    throw new CliError("usage", "for which resource? name it by --resource ns/name");
  if (!/^[^/\s]+\/[^/\s]+$/.test(resource))
    throw new CliError("usage", `--resource ${resource}: write namespace/name`);
  return resource;
};

const choice = <T extends string>(flag: string, text: string, of: readonly T[]): T => {
  const found = of.find((one) => one.toLowerCase() === text.toLowerCase());
  if (found === undefined) throw new CliError("usage", `${flag} ${text}: choose ${of.join(" or ")}`);
  return found;
};

const workingOf = ({ mode, advance }: GuardFlags) => ({
  mode: choice("--mode", mode, ["Hold", "Once"]),
  advance: choice("--advance", advance, ["OnGrant", "OnFirstWrite"]),
});

/** The SQL of an installation, for people to read and to run by hand. Asks no database. */
export const plan = (flags: GuardFlags, { stdout }: CliDeps): void => {
  const tables = tablesOf(flags);
  const guarded =
    tables.length === 0 ? undefined : { resource: resourceOf(flags), tables, ...workingOf(flags) };
  stdout.write(guardSql(guarded));
};

/** Without tables: the schema alone, as the store of tokens needs it. */
export const install = async (flags: GuardFlags, deps: CliDeps): Promise<void> => {
  const tables = tablesOf(flags);
  const { mode, advance } = workingOf(flags);
  const resource = tables.length === 0 ? undefined : resourceOf(flags);
  await withDatabase(flags, deps, async (database) => {
    const applied = await migrate(database);
    say(
      deps,
      `${database.where}: the schema fenceline is ${applied.length === 0 ? "up to date" : `at version ${applied.at(-1)}`}`,
    );
    if (resource === undefined) return;
    for (const table of tables) {
      await database.run(guardTable(table, resource), { lockMs: 10_000 });
      say(deps, `${tableText(table)} refuses every write without the token of ${resource}`);
    }
    await database.run(configure(resource, mode, advance));
    say(deps, `${resource}: mode ${mode}, ${advance}; now: fenceline guard verify`);
  });
};

/** Exit code: 1 where a write without the right token can get through. */
export const verify = async (flags: GuardFlags, deps: CliDeps): Promise<number> => {
  const resource = resourceOf(flags);
  const tables = tablesOf(flags);
  if (flags.output !== undefined && flags.output !== "json")
    throw new CliError("usage", `-o ${flags.output}: verify prints a table, or json`);
  const { probed, doors, mode, advance } = await withDatabase(flags, deps, (database) =>
    examine(database, resource, tables).catch((error: unknown) => {
      if (!(error instanceof DatabaseError) || error.sqlstate !== "FNC03") throw error;
      throw new CliError(
        "failed",
        `${database.where}: nothing is guarded for ${resource}: run fenceline guard install`,
      );
    }),
  );
  const unproven = probed
    .filter(({ proven }) => !proven)
    .map(({ relation, missing, stale, current }) => ({
      door: `${relation} accepts what it must refuse, or refuses what it must accept (no token ${missing}, old token ${stale}, right token ${current})`,
      state: "open" as const,
      closeWith: `select fenceline.guard('${relation}', '${resource}')`,
    }));
  const found = [...unproven, ...doors.map(({ door, state, closeWith }) => ({ door, state, closeWith }))];
  const isOpen = found.some(({ state }) => state === "open");
  const refuses = probed.length > 0 && unproven.length === 0;
  const { stdout } = deps;
  if (flags.output === "json") {
    stdout.write(`${JSON.stringify({ resource, mode, advance, refuses, probed, doors: found }, null, 2)}\n`);
    return isOpen || !refuses ? 1 : 0;
  }
  stdout.write(
    columns([
      ["TABLE", "NO TOKEN", "OLD TOKEN", "RIGHT TOKEN"],
      ...probed.map(({ relation, missing, stale, current }) => [
        printable(relation),
        missing,
        stale,
        current,
      ]),
    ]),
  );
  if (found.length > 0)
    stdout.write(
      `\n${columns([
        ["DOOR", "STATE", "CLOSE WITH"],
        ...found.map(({ door, state, closeWith }) => [door, state, closeWith].map(printable)),
      ])}`,
    );
  stdout.write(
    isOpen || !refuses
      ? `\n${resource} is not fenced: a write without the right token can get through\n`
      : `\n${resource} is fenced: each table was seen to refuse (tried in a transaction that was rolled back)\n`,
  );
  return isOpen || !refuses ? 1 : 0;
};

/** The guard of some tables, or with `--all` everything, marks included. */
export const remove = async (flags: GuardFlags, deps: CliDeps): Promise<void> => {
  const tables = tablesOf(flags);
  if ((flags.all === true) === tables.length > 0)
    throw new CliError(
      "usage",
      "remove what? --table for the guard of a table, or --all for the whole schema: then old tokens are believed again",
    );
  await withDatabase(flags, deps, async (database) => {
    if (flags.all === true) {
      await removeSchema(database);
      say(deps, `${database.where}: the schema fenceline is gone; nothing is guarded`);
      return;
    }
    for (const table of tables) {
      await database.run(unguardTable(table), { lockMs: 10_000 });
      say(deps, `${tableText(table)} is not guarded any more; the mark stays`);
    }
  });
};
