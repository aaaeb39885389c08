/**
 * What can go wrong with a database. The driver's own words are never passed on: they may hold what a tenant wrote.
 *
 * | kind | means |
 * | --- | --- |
 * | unreachable | nothing was sent, or the server said "not now": surely not applied |
 * | refused | the server said no, with `sqlstate`; the transaction is rolled back |
 * | unknown | the connection or the patience ended before an answer: it may have been applied |
 */
export type DatabaseErrorKind = "unreachable" | "refused" | "unknown";

/** One line for people: what, where, what to do. */
export class DatabaseError extends Error {
  readonly kind: DatabaseErrorKind;
  /** Set where the server answered. */
  readonly sqlstate: string | undefined;
  /** The JSON object of our own refusals (SQLSTATE FNC..). */
  readonly detail: Readonly<Record<string, unknown>>;

  constructor(
    kind: DatabaseErrorKind,
    message: string,
    sqlstate?: string,
    detail: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
    this.name = "DatabaseError";
    this.kind = kind;
    this.sqlstate = sqlstate;
    this.detail = detail;
  }
}

/** SQLSTATEs, and what a person can do about each. */
const known: Record<string, string> = {
  "28P01": "the password is refused",
  "28000": "the login is refused: see pg_hba.conf and the role's LOGIN",
  "3D000": "there is no such database",
  "3F000": "the schema fenceline is missing: run fenceline guard install",
  "42P01": "the schema fenceline is missing or older: run fenceline guard install",
  "42883": "the schema fenceline is missing or older: run fenceline guard install",
  "42501": "this login may not do that: grant it the role that docs/guard.md names",
  "25006": "the server is a standby or read only: use the primary",
  "53300": "it has no connection left",
  "57P01": "the session was ended by an administrator",
  "57P03": "it is starting or stopping",
  "55P03": "a lock was not given in time",
  "57014": "the statement was cancelled",
  "40001": "other transactions got in between: try again",
  "40P01": "other transactions got in between: try again",
  "08P01": "the pooler or server refused the connection",
};

/** Classes that say "not now": connection, resources, operator, system. */
const passing = /^(08|53|57P0[123]|58)/;

const network: Record<string, string> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "the host name is not known",
  EAI_AGAIN: "the host name is not known now",
  EHOSTUNREACH: "there is no way to the host",
  ENETUNREACH: "there is no way to the host",
  ETIMEDOUT: "no answer",
  ECONNRESET: "the connection was cut",
  EPIPE: "the connection was cut",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate is not trusted: give its CA",
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is not trusted: give its CA",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "its certificate is not trusted: give its CA",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "its certificate is not trusted: give its CA",
  CERT_HAS_EXPIRED: "its certificate has expired",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another name",
};

const textOf = (value: unknown, name: string): string | undefined => {
  if (typeof value !== "object" || value === null || !(name in value)) return undefined;
  const found: unknown = Reflect.get(value, name);
  return typeof found === "string" ? found : undefined;
};

const detailOf = (error: unknown): Record<string, unknown> => {
  try {
    const found: unknown = JSON.parse(textOf(error, "detail") ?? "{}");
    return typeof found === "object" && found !== null ? { ...found } : {};
  } catch {
    return {};
  }
};

/** The driver's error in our words. `sent`: the statement had left when it happened. */
export const databaseError = (error: unknown, where: string, sent: boolean): DatabaseError => {
  if (error instanceof DatabaseError) return error;
  const code = textOf(error, "code") ?? "";
  if (/^[0-9A-Z]{5}$/.test(code) && textOf(error, "severity") !== undefined) {
    const fence = code.startsWith("FNC");
    const what = fence ? textOf(error, "message") : known[code];
    const message = `${where}: ${what ?? "the statement was refused"} (SQLSTATE ${code})`;
    // A session that is ended from outside may have been ended while it committed.
    const kind = !passing.test(code) ? "refused" : sent ? "unknown" : "unreachable";
    return new DatabaseError(kind, message, code, fence ? detailOf(error) : {});
  }
  const tls = textOf(error, "message") === "The server does not support SSL connections";
  const what = tls
    ? "it speaks no TLS: add ?sslmode=disable if the way there is trusted"
    : (network[code] ?? "no answer");
  return new DatabaseError(sent ? "unknown" : "unreachable", `${where}: ${what}`);
};
