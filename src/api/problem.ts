/** Error answers: RFC 9457 `application/problem+json`, with a stable code. */
import { z } from "zod";
import type { LossReason } from "../core/lease.ts";

export const problemType = "application/problem+json";

/** Every code there is: its HTTP status and its meaning in one sentence. */
export const problems = {
  busy: { status: 409, title: "Another attempt holds the resource." },
  lost: { status: 409, title: "This attempt does not hold the resource any more." },
  not_held: { status: 409, title: "The right is not held at this moment." },
  stale_fencing_token: { status: 409, title: "A higher token was granted; this one is refused for good." },
  missing_fencing_token: { status: 428, title: "The operation carries no fencing token." },
  token_never_issued: { status: 409, title: "The token is above everything that was granted." },
  token_already_used: { status: 409, title: "This token has already carried its one effect." },
  tokens_exhausted: { status: 409, title: "The resource has no tokens left." },
  issuer_mismatch: { status: 409, title: "Another cluster issues the tokens of this resource." },
  boundary_closed: {
    status: 503,
    title: "The boundary lost its past and lets nobody in until it is re-opened.",
  },
  unknown_resource: { status: 404, title: "There is no such resource." },
  not_ready: { status: 503, title: "The resource cannot be granted yet." },
  outcome_unknown: {
    status: 503,
    title: "Nobody knows whether it was done; ask again with the same attempt.",
  },
  store_unavailable: { status: 503, title: "The API server or the token store does not answer." },
  overloaded: { status: 429, title: "Too many requests or waiters." },
  unauthenticated: { status: 401, title: "The bearer token is missing, expired or made for somebody else." },
  forbidden: { status: 403, title: "The caller may not do this." },
  invalid_request: { status: 400, title: "The request is malformed." },
  payload_too_large: { status: 413, title: "The request is too large." },
  idempotency_key_missing: { status: 400, title: "The operation carries no idempotency key." },
  idempotency_key_reused: { status: 422, title: "The idempotency key was used for a different request." },
  effect_in_flight: { status: 409, title: "The same effect is on its way." },
  effect_unknown: { status: 502, title: "The effect was sent and nobody knows what became of it." },
} as const satisfies Record<string, { status: number; title: string }>;

export type ProblemCode = keyof typeof problems;

const isProblemCode = (text: string): text is ProblemCode => Object.hasOwn(problems, text);

const codes = Object.keys(problems).filter(isProblemCode);

/** Why an attempt is lost. `deadline` is only ever said by the holder itself. */
export const lossReasons = [
  "deadline",
  "superseded",
  "released",
  "forced",
  "deleted",
] as const satisfies readonly LossReason[];

/** The body. A reader keeps unknown members, as RFC 9457 asks. */
export const problemSchema = z.looseObject({
  type: z.string().describe("`urn:fenceline:problem:<code>`."),
  code: z.enum(codes).describe("What went wrong, stable."),
  title: z.string().describe("The code in one sentence."),
  status: z.int().min(400).max(599).describe("The HTTP status, repeated."),
  detail: z.string().optional().describe("One line: what happened, to what, what to do."),
  resource: z.string().optional().describe("`namespace/name` of the resource."),
  holder: z.string().optional().describe("With `busy`: who holds the resource, as the Lease says it."),
  aheadOnThisReplica: z
    .int()
    .min(0)
    .optional()
    .describe("With `busy`: attempts that wait before this one, on the replica that answered."),
  reason: z
    .string()
    .optional()
    .describe("With `lost`: `superseded`, `released`, `forced` or `deleted`; else a short word."),
  token: z.string().optional().describe("With stale tokens: the highest token that the boundary knows."),
  field: z.string().optional().describe("With `invalid_request`: path of the field, `body` for the whole."),
  condition: z.string().optional().describe("With `not_ready`: the condition that fails, as `Type/Reason`."),
  retryAfterMs: z.int().min(0).optional().describe("Milliseconds after which asking again makes sense."),
});

export type Problem = z.infer<typeof problemSchema>;

/** Members that a problem may carry beside those that its code decides. */
export interface ProblemExtras {
  resource?: string | undefined;
  holder?: string | undefined;
  aheadOnThisReplica?: number | undefined;
  reason?: string | undefined;
  token?: string | undefined;
  field?: string | undefined;
  condition?: string | undefined;
  retryAfterMs?: number | undefined;
}

/** The body for `code`. `detail` is one line for people. */
export const problem = (code: ProblemCode, detail: string, extras: ProblemExtras = {}): Problem => ({
  type: `urn:fenceline:problem:${code}`,
  code,
  ...problems[code],
  detail,
  ...extras,
});

/** Reads an error answer; undefined for a body that is none of ours (a proxy's, an HTML page). */
export const readProblem = (body: unknown): Problem | undefined => problemSchema.safeParse(body).data;
