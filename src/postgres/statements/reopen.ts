import { z } from "zod";
import type { HolderId } from "../../core/lease.ts";
import type { Token } from "../../core/token.ts";
import { sql, type Statement } from "../sql.ts";

/**
 * Opens what is closed by exactly `closing`, or, without one, what no cluster issued for yet. `opened` is false where it
 * is open, or closed by another id.
 */
export const reopen = (
  resource: string,
  token: Token,
  holder: HolderId | undefined,
  closing: string | undefined,
  issuer: string,
): Statement<{ opened: boolean }> => ({
  text: sql`select fenceline.reopen(${resource}, ${token}, ${holder}, ${closing}, ${issuer}) as opened`,
  row: z.object({ opened: z.boolean() }),
});
