import { escapeIdentifier } from "pg";
import { z } from "zod";
import { sql, type Statement } from "../sql.ts";

/** May this login advance marks? Error 42704 where there is no such role. */
export const isIssuer = (login: string): Statement<{ issuer: boolean }> => ({
  text: sql`select pg_has_role(${login}, 'fenceline_issuer', 'MEMBER') as issuer`,
  row: z.object({ issuer: z.boolean() }),
});

/** Lets a login advance marks. */
export const grantIssuer = (login: string): Statement<object> => ({
  text: `grant fenceline_issuer to ${escapeIdentifier(login)}`,
  row: z.object({}),
});
