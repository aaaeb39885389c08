/** Who is it, and may they: the two virtual resources that the API server answers such questions by. */
import { z } from "zod";

export const tokenReviewPath = "/apis/authentication.k8s.io/v1/tokenreviews";
export const accessReviewPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const user = z.object({
  username: z.string().default(""),
  uid: z.string().default(""),
  groups: z.array(z.string()).default([]),
  extra: z.record(z.string(), z.array(z.string())).default({}),
});
export type ReviewedUser = z.infer<typeof user>;

/** `status` of a TokenReview. */
export const tokenReview = z.object({
  status: z.object({
    authenticated: z.boolean().default(false),
    user: user.optional(),
    audiences: z.array(z.string()).default([]),
    error: z.string().optional(),
  }),
});

/** `status` of a SubjectAccessReview. */
export const accessReview = z.object({
  status: z.object({ allowed: z.boolean(), reason: z.string().optional() }),
});

/** What a signed token claims of itself; nothing of it is proved. */
export const tokenClaims = z.object({
  aud: z.union([z.string(), z.array(z.string())]).optional(),
  /** Seconds since the epoch. */
  exp: z.number().optional(),
});
