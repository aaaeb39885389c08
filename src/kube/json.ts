/**
 * JSON that does not round. An integer beyond 2^53 is read as a `bigint` and written back as the same digits, so that
 * a schema which expects a number refuses it aloud instead of taking a neighbour of it.
 */

/** The cheap question first: reading with a reviver costs several times as much, and such numbers are rare. */
const perhapsBig = /[:[,\s]-?\d{16,}/;

type Reviver = (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown;

const keepDigits: Reviver = (_key, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source ?? "")
    ? BigInt(context.source ?? "")
    : value;

/** Throws a SyntaxError. */
export const parseJson = (text: string): unknown =>
  perhapsBig.test(text)
    ? (JSON.parse as (text: string, reviver: Reviver) => unknown)(text, keepDigits)
    : JSON.parse(text);

const { rawJSON } = JSON as typeof JSON & { rawJSON: (text: string) => unknown };

export const formatJson = (value: unknown): string =>
  JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "bigint" ? rawJSON(inner.toString()) : inner,
  );
