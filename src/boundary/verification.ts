/** Does the guard of a resource refuse what it must, and is there a way around it? */
import { noToken } from "../core/token.ts";
import type { Database } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { findDoors } from "../postgres/statements/doors.ts";
import { probe, type Probed, refuses } from "../postgres/statements/guard.ts";
import { mark } from "../postgres/statements/mark.ts";
import type { Wanted } from "./install.ts";
import type { Verification } from "./port.ts";

/** The probe waits in line behind an advance, but not for long. */
const lockMs = 1_000;

/** Before the first grant there is no older token: the one below is none at all. */
const proves = (probed: Probed, granted: string): boolean =>
  refuses(probed) ||
  (granted === noToken.toString() &&
    probed.missing === "FNC02" &&
    probed.stale === "FNC02" &&
    probed.current === "00000");

const open = (what: string, closeWith: string, others = 0): Verification => ({
  outcome: "open",
  message: `${what}: ${closeWith}${others > 0 ? ` (and ${others} more: see fenceline guard verify)` : ""}`,
});

const gone = open("the guard is gone", "run fenceline guard install");

export const verifyGuard = async (
  database: Database,
  resource: string,
  { mode, advance, tables }: Wanted,
  signal?: AbortSignal,
): Promise<Verification> => {
  try {
    const [row] = await database.run(mark(resource), { signal });
    if (row === undefined) return gone;
    if (row.mode !== mode || row.advance !== advance)
      return open(
        `the guard works as ${row.mode}, ${row.advance}`,
        `select fenceline.configure('${resource}', '${mode}', '${advance}')`,
      );
    const doors = (await findDoors(database, resource, tables)).filter(({ state }) => state === "open");
    const [first] = doors;
    if (first !== undefined) return open(first.door, first.closeWith, doors.length - 1);
    const weak = (await database.run(probe(resource), { lockMs, signal })).find(
      (probed) => !proves(probed, row.granted),
    );
    if (weak !== undefined)
      return open(
        `${weak.relation} answered the probe with ${weak.missing}, ${weak.stale} and ${weak.current}`,
        `select fenceline.guard('${weak.relation}', '${resource}')`,
      );
    return { outcome: "proven" };
  } catch (error) {
    if (error instanceof DatabaseError && error.sqlstate === "FNC03") return gone;
    if (error instanceof DatabaseError) return { outcome: "unknown", message: error.message };
    throw error;
  }
};
