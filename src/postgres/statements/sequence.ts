import { z } from "zod";
import type { Token } from "../../core/token.ts";
import { sql, type Statement } from "../sql.ts";

/** No row: nothing was reserved, and {@link sequenceState} says why. */
export const reserve = (
  resource: string,
  count: bigint,
  atLeast: Token,
  issuer: string,
): Statement<{ base: string; ceiling: string }> => ({
  text: sql`select base::text, ceiling::text from fenceline.reserve(${resource}, ${count}, ${atLeast}, ${issuer})`,
  row: z.object({ base: z.string(), ceiling: z.string() }),
});

export interface SequenceRow {
  base: string;
  ceiling: string;
  sealed: boolean;
  issuer: string;
  copied: boolean;
}

const sequenceRow = z.object({
  base: z.string(),
  ceiling: z.string(),
  sealed: z.boolean(),
  issuer: z.string(),
  copied: z.boolean(),
});

export const sequenceState = (resource: string): Statement<SequenceRow> => ({
  text: sql`select base::text, ceiling::text, sealed, issuer, copied from fenceline.sequence_state(${resource})`,
  row: sequenceRow,
});

/** Opens it where it is missing or a copy, and shows it as it is then. */
export const sequenceOpen = (resource: string, at: Token, issuer: string): Statement<SequenceRow> => ({
  text: sql`select base::text, ceiling::text, sealed, issuer, copied
    from fenceline.sequence_open(${resource}, ${at}, ${issuer})`,
  row: sequenceRow,
});
