/** Texts that arrive from outside: tokens, attempts, names, and what people write. */
import { z } from "zod";
import { parseToken, type Token } from "../core/token.ts";

/** Digits only, so that a schema without code (CRD, policy, OpenAPI) can say it too. The end of the range is checked apart. */
export const tokenPattern = "^(0|[1-9][0-9]{0,18})$";

const tokenMessage = "give a decimal string from 1 to 9223372036854775807, without sign or leading zero";

/** A token 1 … 2^63−1: a decimal string on the wire, a bigint in memory. */
export const tokenCodec = z.codec(
  z.string({ error: tokenMessage }),
  z.custom<Token>((value) => typeof value === "bigint"),
  {
    decode: (text, context) => {
      const token = parseToken(text);
      if (token !== undefined && token > 0n) return token;
      context.issues.push({ code: "custom", message: tokenMessage, input: text });
      return z.NEVER;
    },
    encode: (token) => token.toString(),
  },
);

const uuidMessage = "give a UUID, as in 0f8fad5b-d9cb-469f-a165-70867728950e";

/** A UUID chosen by the caller for one acquisition. Kept in lower case: it is compared as text. */
export const attemptText = z.uuid({ error: uuidMessage }).overwrite((text) => text.toLowerCase());

/** Longest text that people give, in characters. */
export const textMax = 128;

const textMessage = `give 1 to ${textMax} printable characters`;

/**
 * What people write of themselves: 1 … 128 characters, none of them a control, a format or a line break, so that it
 * can be shown on any terminal and in any log.
 */
export const peopleText = z
  .string({ error: textMessage })
  .regex(/^[^\p{C}\p{Zl}\p{Zp}]{1,128}$/u, { error: textMessage });

const nameMessage = "give a Kubernetes name: lower-case letters, digits, dots and dashes, at most 253";

/** Name of an object: an RFC 1123 subdomain. */
export const nameText = z
  .string({ error: nameMessage })
  .max(253, { error: nameMessage })
  .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/, { error: nameMessage });

const namespaceMessage = "give a Kubernetes namespace: lower-case letters, digits and dashes, at most 63";

/** Name of a namespace: an RFC 1123 label. */
export const namespaceText = z
  .string({ error: namespaceMessage })
  .max(63, { error: namespaceMessage })
  .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, { error: namespaceMessage });

const resourceMessage = "give a resource as namespace/name";

/** A resource, written `namespace/name`. */
export const resourceText = z.custom<`${string}/${string}`>(
  (value) => {
    if (typeof value !== "string") return false;
    const [namespace, name, ...more] = value.split("/");
    return (
      more.length === 0 && namespaceText.safeParse(namespace).success && nameText.safeParse(name).success
    );
  },
  { error: resourceMessage },
);

/** What is wrong with a value that came from outside. */
export interface Refusal {
  /** `renewals[0].token`; `body` for the value as a whole. */
  field: string;
  /** One line that says what to give. */
  message: string;
}

export type Parsed<T> = { ok: true; value: T } | { ok: false; refusal: Refusal };

const fieldOf = (path: readonly PropertyKey[]): string =>
  path.reduce<string>((text, key) => {
    if (typeof key === "number") return `${text}[${key}]`;
    return text === "" ? String(key) : `${text}.${String(key)}`;
  }, "") || "body";

/** A name of the caller's own, shortened and without anything that a terminal would obey. */
export const shown = (text: string, max = 64): string => {
  const plain = text.slice(0, max + 1).replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, "?");
  return plain.length <= max ? plain : `${plain.slice(0, max - 1)}…`;
};

/** Reads `value` by `schema`, or says in one line what is wrong with its first bad field. */
export const parse = <T>(schema: z.ZodType<T>, value: unknown): Parsed<T> => {
  const result = schema.safeParse(value);
  if (result.success) return { ok: true, value: result.data };
  const issue = result.error.issues[0];
  if (issue?.code === "unrecognized_keys") {
    const field = shown(fieldOf([...issue.path, issue.keys[0] ?? ""]));
    return { ok: false, refusal: { field, message: `unknown field ${field}: remove it` } };
  }
  const field = shown(fieldOf(issue?.path ?? []));
  return { ok: false, refusal: { field, message: `${field}: ${issue?.message ?? "not valid"}` } };
};
