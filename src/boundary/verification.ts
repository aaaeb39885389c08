/** Does the guard of a resource refuse what it must, and is there a way around it? */
import { noToken } from "../core/token.ts";
import type { Database } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { type Door, findDoors } from "../postgres/statements/doors.ts";
import { probe, type Probed, refuses, type TableName } from "../postgres/statements/guard.ts";
import { mark } from "../postgres/statements/mark.ts";
import type { Wanted } from "./install.ts";
import type { Verification } from "./port.ts";

/** The probe waits in line behind an advance, but not for long. */
const lockMs = 1_000;

export interface Examination {
  /** What each guarded table answered: SQLSTATEs. */
  probed: readonly (Probed & { proven: boolean })[];
  doors: readonly Door[];
  mode: string;
  advance: string;
}

/** Before the first grant there is no older token: the one below is none at all. */
const proves = (probed: Probed, granted: string): boolean =>
  refuses(probed) ||
  (granted === noToken.toString() &&
    probed.missing === "FNC02" &&
    probed.stale === "FNC02" &&
    probed.current === "00000");

/** Tries every guarded table in a transaction that is rolled back. Throws a DatabaseError: FNC03 for an unknown resource. */
export const examine = async (
  database: Database,
  resource: string,
  tables: readonly TableName[],
  signal?: AbortSignal,
): Promise<Examination> => {
  const [row] = await database.run(mark(resource), { signal });
  const doors = await findDoors(database, resource, tables);
  const probed = await database.run(probe(resource), { lockMs, signal });
  return {
    probed: probed.map((one) => ({ ...one, proven: proves(one, row?.granted ?? "") })),
    doors,
    mode: row?.mode ?? "",
    advance: row?.advance ?? "",
  };
};

const open = (what: string, closeWith: string, others = 0): Verification => ({
  outcome: "open",
  message: `${what}: ${closeWith}${others > 0 ? ` (and ${others} more: see fenceline guard verify)` : ""}`,
});

export const verifyGuard = async (
  database: Database,
  resource: string,
  wanted: Wanted,
  signal?: AbortSignal,
): Promise<Verification> => {
  try {
    const { probed, doors, mode, advance } = await examine(database, resource, wanted.tables, signal);
    if (mode !== wanted.mode || advance !== wanted.advance)
      return open(
        `the guard works as ${mode}, ${advance}`,
        `select fenceline.configure('${resource}', '${wanted.mode}', '${wanted.advance}')`,
      );
    const [first, ...others] = doors.filter(({ state }) => state === "open");
    if (first !== undefined) return open(first.door, first.closeWith, others.length);
    const weak = probed.find(({ proven }) => !proven);
    if (weak === undefined) return { outcome: "proven" };
    return open(
      `${weak.relation} answered the probe with ${weak.missing}, ${weak.stale} and ${weak.current}`,
      `select fenceline.guard('${weak.relation}', '${resource}')`,
    );
  } catch (error) {
    if (!(error instanceof DatabaseError)) throw error;
    return error.sqlstate === "FNC03"
      ? open("the guard is gone", "run fenceline guard install")
      : { outcome: "unknown", message: error.message };
  }
};
