import { z } from "zod";
import { sql, type Statement } from "../sql.ts";

const count = z.string();

const row = z.object({
  resource: z.string(),
  granted: count,
  used: count,
  /** All refusals; of them, those of stale and of missing tokens. */
  refused: count,
  stale: count,
  missing: count,
  closing: z.string().nullable(),
  issuer: z.string().nullable(),
  mode: z.string(),
  advance: z.string(),
});

/** Numbers as text: a JavaScript number would round them. */
export type MarkRow = z.infer<typeof row>;

const look = `select k.resource, m.granted::text, m.used::text, m.refused::text, m.stale::text, m.missing::text, m.closing,
  k.issuer, k.mode, k.advance from fenceline.mark k, fenceline.mark(k.resource) m`;

/** No row where the resource is not known. */
export const mark = (resource: string): Statement<MarkRow> => ({
  text: `${look} where ${sql`k.resource = ${resource}`}`,
  row,
});

/** Those of several resources in one question. */
export const marks = (resources: readonly string[]): Statement<MarkRow> => ({
  text: `${look} where k.resource in (${resources.map((resource) => sql`${resource}`).join(", ")})`,
  row,
});
