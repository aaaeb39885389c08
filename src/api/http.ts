/**
 * The coordinator's API: bodies of requests and answers.
 *
 * Requests are strict: an unknown field is refused by its path. Answers are read leniently, so that a newer
 * coordinator can add to them. Tokens are decimal strings on the wire and {@link Token} in memory: read with
 * {@link parse} or `schema.parse`, write with `z.encode(schema, answer)`.
 */
import { z } from "zod";
import { guarantees } from "./names.ts";
import { lossReasons, problemSchema } from "./problem.ts";
import { attemptText, peopleText, resourceText, tokenCodec } from "./text.ts";

/** Longest that an acquire waits for the resource in one call, in milliseconds. */
const waitMaxMs = 30_000;
/** Most renewals in one call. */
const renewalsMax = 64;
/** Largest request body, in bytes. */
export const bodyMaxBytes = 32_768;

const wholeNumber = (min: number, max: number) =>
  z
    .int({ error: `give a whole number from ${min} to ${max}` })
    .min(min, { error: `give a whole number from ${min} to ${max}` })
    .max(max, { error: `give a whole number from ${min} to ${max}` });

const objectError = (issue: { code?: string | undefined }): string | undefined =>
  issue.code === "invalid_type" ? "give a JSON object" : undefined;

const request = <T extends z.core.$ZodLooseShape>(shape: T) => z.strictObject(shape, { error: objectError });

const ms = z.int().min(0);

const attempt = attemptText.describe("UUID of this acquisition, chosen by the caller and new for each one.");
const token = tokenCodec.describe("The token that this attempt was granted: a decimal string.");
const resource = resourceText.describe("`namespace/name`.");
const term = {
  leaseDurationMs: ms.describe(
    "The term, in milliseconds from the moment the request was sent; it ends the earlier promise.",
  ),
  renewAfterMs: ms.describe(
    "Renew this many milliseconds after the request was sent: at most a third of the term.",
  ),
};

export const acquireRequest = request({
  attempt,
  waitMs: wholeNumber(0, waitMaxMs)
    .default(0)
    .describe(
      `Milliseconds to wait while the resource is busy: 0 … ${waitMaxMs}, default 0. Ask again to wait longer.`,
    ),
  label: peopleText
    .optional()
    .describe("What people see as the holder's name: 1 … 128 printable characters."),
});
export type AcquireRequest = z.infer<typeof acquireRequest>;

export const acquireAnswer = z.object({
  resource,
  token: token.describe("The fencing token: higher than every one granted before."),
  attempt: z.string().describe("The attempt, repeated."),
  holder: z.string().describe("`pod:<uid>/<attempt>` or `user:<hash>/<attempt>`: as the Lease names it."),
  ...term,
  guarantee: z.enum(guarantees).describe("What the boundary makes true of this token."),
  advanced: z
    .boolean()
    .describe("Every lower token is refused from now on. False with `OnFirstWrite` and without a boundary."),
});
export type AcquireAnswer = z.infer<typeof acquireAnswer>;

export const renewRequest = request({ attempt, token });
export type RenewRequest = z.infer<typeof renewRequest>;

export const renewAnswer = z.object(term);
export type RenewAnswer = z.infer<typeof renewAnswer>;

export const releaseRequest = request({ attempt, token });
export type ReleaseRequest = z.infer<typeof releaseRequest>;

export const releaseAnswer = z.object({
  released: z
    .boolean()
    .describe("False: this attempt did not hold the resource (any more); nothing was changed."),
  reason: z.enum(lossReasons).optional().describe("Why it did not."),
});
export type ReleaseAnswer = z.infer<typeof releaseAnswer>;

export const forceReleaseRequest = request({
  reason: peopleText.describe("Why it is taken away, for the record: 1 … 128 printable characters."),
});
export type ForceReleaseRequest = z.infer<typeof forceReleaseRequest>;

export const forceReleaseAnswer = z.object({
  released: z.boolean().describe("False: nobody held it."),
  holder: z.string().optional().describe("Whom it was taken from."),
  token: token.optional().describe("The token that was taken away."),
});
export type ForceReleaseAnswer = z.infer<typeof forceReleaseAnswer>;

export const renewalsRequest = request({
  renewals: z
    .array(request({ resource, attempt, token }), { error: "give a list" })
    .min(1, { error: `give 1 to ${renewalsMax} renewals` })
    .max(renewalsMax, { error: `give 1 to ${renewalsMax} renewals` })
    .describe(`1 … ${renewalsMax} renewals.`),
});
export type RenewalsRequest = z.infer<typeof renewalsRequest>;

export const renewalsAnswer = z.object({
  results: z
    .array(
      z.object({
        resource,
        attempt: z.string().describe("The attempt, repeated."),
        renewed: renewAnswer.optional().describe("The new term; left out where a problem is given."),
        problem: problemSchema.optional().describe("Why it was not renewed."),
      }),
    )
    .describe("One result per renewal, in the same order."),
});
export type RenewalsAnswer = z.infer<typeof renewalsAnswer>;

/**
 * What is known of a resource, for people and scripts: answered by the coordinator and printed by
 * `fenceline get -o json`. It decides nothing.
 */
export const stateAnswer = z.object({
  resource: resource.describe("Id of the resource: `namespace/name`."),
  highestToken: z
    .string()
    .describe(
      "Highest token granted, a decimal string; `0` before the first. From the Lease, else from the sequence.",
    ),
  holder: z
    .string()
    .nullable()
    .describe("Id of the owner, `pod:<uid>/<attempt>` or `user:<hash>/<attempt>`; null if free."),
  holderPod: z.string().nullable().describe("Name of the owner's pod, where there is one."),
  holderLabel: z.string().nullable().describe("The owner's own words about itself."),
  acquired: z.string().nullable().describe("When the owner got it: RFC 3339."),
  leaseExpiry: z
    .string()
    .nullable()
    .describe(
      "When the lease ends unless renewed: RFC 3339, by the clocks of others, for people only. Null if free.",
    ),
  expired: z.boolean().describe("The lease has run out and nobody has taken it yet."),
  updated: z.string().nullable().describe("When the record last changed: RFC 3339."),
  transitions: z
    .int()
    .describe("How often the Lease changed hands since it was made. Not a token: it restarts."),
  waiters: z.int().describe("Attempts that wait: on this replica, or as last reported by all."),
  guarantee: z.enum(guarantees).describe("What the boundary makes true."),
  ready: z.boolean().describe("Tokens are granted."),
  condition: z.string().nullable().describe("Where not ready: the condition that fails, as `Type/Reason`."),
  suspended: z.boolean().describe("`spec.suspend`."),
  durationSeconds: z.int().describe("Length of a term in seconds."),
  store: z.string().describe("Where the sequence is kept: `Status` or `PostgreSQL`."),
  boundary: z.string().describe("Type of the boundary."),
});
export type StateAnswer = z.infer<typeof stateAnswer>;

/** Paths of the API. `namespace` and `name` are put in as they are: both are safe in a path. */
export const paths = {
  resource: (namespace: string, name: string) => `/v1/namespaces/${namespace}/resources/${name}`,
  renewals: "/v1/renewals",
} as const;
