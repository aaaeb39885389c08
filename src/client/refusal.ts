/**
 * What the guard in PostgreSQL says no with, as classes. Decided by SQLSTATE alone: some drivers file the class FNC
 * under lost connections.
 *
 * | SQLSTATE | code | what to do |
 * | --- | --- | --- |
 * | FNC01 | stale_fencing_token | stop: a higher token was granted. Never tried again |
 * | FNC02 | missing_fencing_token | enter first, in the same transaction |
 * | FNC03 | unknown_resource | nothing is guarded under this name |
 * | FNC04 | token_never_issued | the token is above every one that was granted |
 * | FNC06 | issuer_mismatch | another cluster issues here |
 * | FNC07 | boundary_closed | wait until the controller opens it again |
 * | FNC08 | token_already_used | mode Once: it had its effect, maybe by a commit whose answer was lost |
 */
const codes = {
  FNC01: "stale_fencing_token",
  FNC02: "missing_fencing_token",
  FNC03: "unknown_resource",
  FNC04: "token_never_issued",
  FNC06: "issuer_mismatch",
  FNC07: "boundary_closed",
  FNC08: "token_already_used",
} as const;

export type RefusalCode = (typeof codes)[keyof typeof codes];

/** The guard refused; the transaction was rolled back. */
export class FenceRefusal extends Error {
  override readonly name: string = "FenceRefusal";
  readonly code: RefusalCode;
  /** `namespace/name`, where the guard knows it. */
  readonly resource: string | undefined;
  /** The token that was offered, decimal. */
  readonly offered: string | undefined;
  /** The mark that it was compared with, decimal. */
  readonly accepted: string | undefined;

  constructor(code: RefusalCode, detail: Detail, hint: string, cause: unknown) {
    const { resource, offered, accepted } = detail;
    const tokens = offered === undefined ? "" : `: token ${offered}, the mark stands at ${accepted ?? "?"}`;
    super(`${resource ?? "the database"} refused (${code})${tokens}. ${hint}`.trim(), { cause });
    this.code = code;
    this.resource = resource;
    this.offered = offered;
    this.accepted = accepted;
  }
}

/** A higher token was granted: the work of this one is over, for good. */
export class StaleToken extends FenceRefusal {
  override readonly name = "StaleToken";
}

interface Detail {
  resource?: string;
  offered?: string;
  accepted?: string;
}

/** A text field of something that was thrown. */
export const fieldOf = (thrown: unknown, name: string): string | undefined => {
  if (typeof thrown !== "object" || thrown === null || !(name in thrown)) return undefined;
  const value: unknown = Reflect.get(thrown, name);
  return typeof value === "string" ? value : undefined;
};

const isOurs = (sqlstate: string | undefined): sqlstate is keyof typeof codes =>
  sqlstate !== undefined && sqlstate in codes;

const detailOf = (thrown: unknown): Detail => {
  try {
    const found: unknown = JSON.parse(fieldOf(thrown, "detail") ?? "{}");
    const text = (name: string) => fieldOf(found, name);
    const [resource, offered, accepted] = [text("resource"), text("offered"), text("accepted")];
    return {
      ...(resource === undefined ? {} : { resource }),
      ...(offered === undefined ? {} : { offered }),
      ...(accepted === undefined ? {} : { accepted }),
    };
  } catch {
    return {};
  }
};

/** What the guard said, of an error that `pg` threw; undefined where it was somebody else's. */
export const fenceRefusal = (thrown: unknown): FenceRefusal | undefined => {
  if (thrown instanceof FenceRefusal) return thrown;
  const sqlstate = fieldOf(thrown, "code");
  if (!isOurs(sqlstate)) return undefined;
  const args = [codes[sqlstate], detailOf(thrown), fieldOf(thrown, "hint") ?? "", thrown] as const;
  return sqlstate === "FNC01" ? new StaleToken(...args) : new FenceRefusal(...args);
};
