/** TokenReview and SubjectAccessReview, answered by tables. */
import { z } from "zod";

export interface ReviewUser {
  username: string;
  uid: string;
  groups?: string[];
  extra?: Record<string, string[]>;
  /** What the bearer is for; the audience of this project where it is left out. */
  audiences?: string[];
}

const tokenSpec = z.object({
  spec: z.object({ token: z.string(), audiences: z.array(z.string()).default([]) }),
});
const accessSpec = z.object({
  spec: z.object({
    user: z.string(),
    resourceAttributes: z.object({
      verb: z.string(),
      namespace: z.string().optional(),
      name: z.string().optional(),
    }),
  }),
});

export const makeReviews = () => {
  const users = new Map<string, ReviewUser>();
  const rights = new Set<string>();

  return {
    /** From now on `bearer` proves `user`. */
    login: (bearer: string, user: ReviewUser) => void users.set(bearer, user),
    logout: (bearer: string) => void users.delete(bearer),
    /** `username` may do `verb` on `namespace/name` of our resources, or on `*`. */
    allow: (username: string, verb: string, on: string) => void rights.add(`${username} ${verb} ${on}`),
    forbid: (username: string, verb: string, on: string) => void rights.delete(`${username} ${verb} ${on}`),

    answer(plural: string, body: Record<string, unknown>): unknown {
      if (plural === "tokenreviews") {
        const { spec } = tokenSpec.parse(body);
        const known = users.get(spec.token);
        const audiences = spec.audiences.filter((one) => (known?.audiences ?? ["fenceline"]).includes(one));
        if (known === undefined || audiences.length === 0)
          return { ...body, status: { authenticated: false, error: "invalid bearer token" } };
        const { username, uid, groups = [], extra = {} } = known;
        return {
          ...body,
          status: { authenticated: true, user: { username, uid, groups, extra }, audiences },
        };
      }
      const { user, resourceAttributes } = accessSpec.parse(body).spec;
      const { verb, namespace, name } = resourceAttributes;
      const allowed = [`${namespace}/${name}`, "*"].some((on) => rights.has(`${user} ${verb} ${on}`));
      return { ...body, status: { allowed } };
    },
  };
};
