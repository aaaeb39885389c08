/** Installs the guard of one resource, by a login that owns its tables. Doing it again mends what was changed. */
import type { Database } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { migrate, schemaTrouble } from "../postgres/schema.ts";
import { grantIssuer, isIssuer } from "../postgres/statements/grantissuer.ts";
import { configure, guardTable, type TableName, tableText } from "../postgres/statements/guard.ts";
import type { Installed } from "./port.ts";

/** How a guard is to be. */
export interface Wanted {
  mode: "Hold" | "Once";
  advance: "OnGrant" | "OnFirstWrite";
  tables: readonly TableName[];
}

/** So long writers of a table are waited for. */
const lockMs = 5_000;

export const installGuard = async (
  database: Database,
  { resource, issuer, mode, advance, tables }: Wanted & { resource: string; issuer: string },
  signal?: AbortSignal,
): Promise<Installed> => {
  const options = { lockMs, signal };
  let doing = "the schema fenceline";
  try {
    if ((await schemaTrouble(database)) !== undefined) await migrate(database);
    for (const table of tables) {
      doing = `the guard of ${tableText(table)}`;
      await database.run(guardTable(table, resource), options);
    }
    doing = `mode ${mode}, ${advance}`;
    await database.run(configure(resource, mode, advance), options);
    doing = `role fenceline_issuer for ${issuer}`;
    const [found] = await database.run(isIssuer(issuer), options);
    if (found?.issuer !== true) await database.run(grantIssuer(issuer), options);
    return { outcome: "ok" };
  } catch (error) {
    if (error instanceof DatabaseError) return { outcome: "failed", message: `${doing}: ${error.message}` };
    throw error;
  }
};
