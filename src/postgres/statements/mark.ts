import { z } from "zod";
import { sql, type Statement } from "../sql.ts";

/** Numbers as text: a JavaScript number would round them. */
export interface MarkRow {
  granted: string;
  used: string;
  refused: string;
  closing: string | null;
}

/** Error FNC03 where the resource is not known. */
export const mark = (resource: string): Statement<MarkRow> => ({
  text: sql`select granted::text, used::text, refused::text, closing from fenceline.mark(${resource})`,
  row: z.object({
    granted: z.string(),
    used: z.string(),
    refused: z.string(),
    closing: z.string().nullable(),
  }),
});
