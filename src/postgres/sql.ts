/** Statements as values: a text that is ready to be sent, and the shape of its rows. */
import { escapeLiteral } from "pg";
import type { z } from "zod";

export interface Statement<Row> {
  text: string;
  row: z.ZodType<Row>;
}

/**
 * Puts values into a statement as literals. One simple query can then open a transaction at an isolation level, do its
 * work and commit in a single round trip, through any pooler; bound parameters cannot.
 */
export const sql = (
  parts: TemplateStringsArray,
  ...values: readonly (string | bigint | number | undefined)[]
): string => parts.reduce((text, part, index) => `${text}${literal(values[index - 1])}${part}`);

const literal = (value: string | bigint | number | undefined): string => {
  switch (typeof value) {
    case "string":
      return escapeLiteral(value);
    case "undefined":
      return "null";
    default:
      return value.toString();
  }
};
