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

const look = `select k.resource, m.granted::text, m.used::text, m.refused::text, r.stale::text, r.missing::text, m.closing,
  k.issuer, k.mode, k.advance from`;

/** Error FNC03 where the resource is not known. */
export const mark = (resource: string): Statement<MarkRow> => ({
  text: `${look} ${sql`fenceline.mark(${resource}) m left join fenceline.mark k on k.resource = ${resource},
    fenceline.refusals(${resource}) r`}`,
  row,
});

/** Those of several resources that are known, in one question. */
export const marks = (resources: readonly string[]): Statement<MarkRow> => ({
  text: `${look} fenceline.mark k, fenceline.mark(k.resource) m, fenceline.refusals(k.resource) r
    where k.resource in (${resources.map((resource) => sql`${resource}`).join(", ")})`,
  row,
});
