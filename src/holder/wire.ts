/**
 * The coordinator's answers, read by hand: an agent beside every pod has no room for a schema library. Shapes and codes
 * are those of src/api; what is not understood is `undefined`, never an error.
 */
import type { Guarantee } from "../api/names.ts";
import type { ProblemCode } from "../api/problem.ts";
import type { LossReason } from "../core/lease.ts";
import { parseToken, type Token } from "../core/token.ts";

/** A right for one term, which counts from the moment its request was sent. */
export interface Term {
  leaseDurationMs: number;
  renewAfterMs: number;
}

export interface Grant extends Term {
  token: Token;
  /** `pod:<uid>/<attempt>` or `user:<hash>/<attempt>`: as the Lease names it. */
  holder: string;
  guarantee: Guarantee;
  /** Every lower token is refused from now on. */
  advanced: boolean;
}

/** Given back, or why there was nothing to give back. */
export type ReleaseResult = { released: true } | { released: false; reason: LossReason };

export interface ForceResult {
  /** False: nobody held it. */
  released: boolean;
  holder?: string;
  token?: string;
}

/** An error answer. A code that a newer coordinator made up is kept as it came. */
export interface Problem {
  code: ProblemCode | (string & {});
  detail: string;
  holder?: string;
  ahead?: number;
  reason?: LossReason;
  retryAfterMs?: number;
}

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null;
const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
const countOf = (value: unknown): number | undefined =>
  typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;

const reasons: readonly string[] = [
  "deadline",
  "superseded",
  "released",
  "forced",
  "deleted",
] satisfies LossReason[];
export const isReason = (text: string): text is LossReason => reasons.includes(text);
const reasonOf = (value: unknown): LossReason | undefined => {
  const text = textOf(value);
  return text !== undefined && isReason(text) ? text : undefined;
};

const guarantees: readonly string[] = ["Fenced", "Idempotent", "Advisory"] satisfies Guarantee[];
const isGuarantee = (text: string): text is Guarantee => guarantees.includes(text);

const termOf = (body: Fields): Term | undefined => {
  const leaseDurationMs = countOf(body["leaseDurationMs"]);
  const renewAfterMs = countOf(body["renewAfterMs"]);
  return leaseDurationMs === undefined || renewAfterMs === undefined
    ? undefined
    : { leaseDurationMs, renewAfterMs };
};

/** Reads an answer of acquire. A guarantee that is not known is no guarantee: `Advisory`. */
export const readGrant = (body: unknown): Grant | undefined => {
  if (!isFields(body)) return undefined;
  const term = termOf(body);
  const token = parseToken(textOf(body["token"]) ?? "");
  const holder = textOf(body["holder"]);
  if (term === undefined || token === undefined || token === 0n || holder === undefined) return undefined;
  const guarantee = textOf(body["guarantee"]) ?? "";
  return {
    ...term,
    token,
    holder,
    guarantee: isGuarantee(guarantee) ? guarantee : "Advisory",
    advanced: body["advanced"] === true,
  };
};

export const readTerm = (body: unknown): Term | undefined => (isFields(body) ? termOf(body) : undefined);

export const readRelease = (body: unknown): ReleaseResult | undefined => {
  if (!isFields(body)) return undefined;
  if (body["released"] === true) return { released: true };
  if (body["released"] !== false) return undefined;
  return { released: false, reason: reasonOf(body["reason"]) ?? "superseded" };
};

export const readForce = (body: unknown): ForceResult | undefined => {
  if (!isFields(body) || typeof body["released"] !== "boolean") return undefined;
  const holder = textOf(body["holder"]);
  const token = textOf(body["token"]);
  return {
    released: body["released"],
    ...(holder === undefined ? {} : { holder }),
    ...(token === undefined ? {} : { token }),
  };
};

/** Reads `application/problem+json`; undefined for an error of somebody else. */
export const readProblem = (body: unknown): Problem | undefined => {
  if (!isFields(body)) return undefined;
  const code = textOf(body["code"]);
  if (code === undefined || body["type"] !== `urn:fenceline:problem:${code}`) return undefined;
  const holder = textOf(body["holder"]);
  const ahead = countOf(body["aheadOnThisReplica"]);
  const reason = reasonOf(body["reason"]);
  const retryAfterMs = countOf(body["retryAfterMs"]);
  return {
    code,
    detail: textOf(body["detail"]) ?? textOf(body["title"]) ?? code,
    ...(holder === undefined ? {} : { holder }),
    ...(ahead === undefined ? {} : { ahead }),
    ...(reason === undefined ? {} : { reason }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
};
