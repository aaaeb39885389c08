import { z } from "zod";
import type { HolderId } from "../../core/lease.ts";
import type { Token } from "../../core/token.ts";
import { sql, type Statement } from "../sql.ts";

/** Raises the mark, or finds it standing at exactly this. Errors FNC01, FNC03, FNC06, FNC07; 55P03 where it waits. */
export const advance = (
  resource: string,
  token: Token,
  holder: HolderId,
  issuer: string,
): Statement<{ raised: boolean }> => ({
  text: sql`select fenceline.advance(${resource}, ${token}, ${holder}, ${issuer}) as raised`,
  row: z.object({ raised: z.boolean() }),
});
