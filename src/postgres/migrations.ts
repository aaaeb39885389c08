import { createAdvance } from "./schema/advance.ts";
import { createKeeping } from "./schema/doorkeeper.ts";
import { createEnter } from "./schema/enter.ts";
import { createGuard } from "./schema/guard.ts";
import { createIdentity } from "./schema/identity.ts";
import { createJudge } from "./schema/judge.ts";
import { createRefuse } from "./schema/refuse.ts";
import { grantRights } from "./schema/rights.ts";
import { createSequence } from "./schema/sequence.ts";
import { createTables } from "./schema/tables.ts";

export interface Migration {
  version: number;
  name: string;
  /** Code that does not know this version must not work with the schema. */
  breaking: boolean;
  statements: readonly string[];
}

/** In order, without gaps. One that was released never changes: its checksum is kept in the database. */
export const migrations: readonly Migration[] = [
  {
    version: 1,
    name: "guard",
    breaking: true,
    statements: [
      createTables,
      createIdentity,
      createRefuse,
      createEnter,
      createJudge,
      createAdvance,
      createSequence,
      createGuard,
      createKeeping,
      grantRights,
    ],
  },
];
