/** Who calls, proved by TokenReview, and whether they may, by SubjectAccessReview. Both remembered for a moment. */
import { createHash } from "node:crypto";
import { audience, group, type Verb } from "../api/names.ts";
import { problem, type Problem } from "../api/problem.ts";
import {
  accessReview,
  accessReviewPath,
  type ReviewedUser,
  tokenClaims,
  tokenReview,
  tokenReviewPath,
} from "../api/review.ts";
import { keyOf, type ResourceName } from "../kube/leases.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import { makeVerdicts } from "./verdicts.ts";

/** A caller that proved who it is. */
export interface Principal {
  /** `pod:<uid>` where the token is bound to a pod, else `user:<hash>`: what an attempt belongs to. */
  identity: string;
  user: ReviewedUser;
  /** Name of the pod, where there is one. */
  pod: string | undefined;
}

export interface Auth {
  /** The caller behind an Authorization header, or the answer to give. Throws a KubeError where nobody can tell. */
  authenticate(header: string | undefined): Promise<Principal | Problem>;
  /** Undefined where the caller may; else the answer to give. */
  authorize(who: Principal, verb: Verb | "get", resource: ResourceName): Promise<Problem | undefined>;
}

const yesMs = 60_000;
const noMs = 5_000;
const remembered = 10_000;

/** Longest bearer that is looked at. Projected tokens have under 2,000 characters. */
const bearerMax = 8192;

/** What the clocks of issuer and coordinator may differ by before a token counts as expired here. */
const skewSeconds = 60n;

const digest = (...parts: readonly string[]): string =>
  createHash("sha256").update(JSON.stringify(parts)).digest("hex");

const unauthenticated = (detail: string): Problem => problem("unauthenticated", detail);

const claimsOf = (bearer: string) => {
  const payload = bearer.split(".")[1];
  if (payload === undefined) return undefined;
  try {
    return tokenClaims.safeParse(JSON.parse(Buffer.from(payload, "base64url").toString("utf8"))).data;
  } catch {
    return undefined;
  }
};

/** What a bearer itself admits, so that nobody has to be asked. */
const refusedUnasked = (bearer: string, clock: Clock): Problem | undefined => {
  if (bearer.length > bearerMax)
    return unauthenticated(`the bearer token is longer than ${bearerMax} characters`);
  const claims = claimsOf(bearer);
  if (claims?.aud !== undefined && ![claims.aud].flat().includes(audience))
    return unauthenticated(`the bearer token is not for the audience ${audience}: ask for one that is`);
  const now = clock.wall() / 1_000_000n;
  if (claims?.exp !== undefined && BigInt(Math.floor(claims.exp)) + skewSeconds < now)
    return unauthenticated("the bearer token has expired: read the file again, or ask for a new one");
  return undefined;
};

const podClaim = (user: ReviewedUser, name: string) =>
  user.extra[`authentication.kubernetes.io/${name}`]?.[0];

const principalOf = (user: ReviewedUser): Principal => {
  const uid = podClaim(user, "pod-uid");
  return {
    identity: uid === undefined ? `user:${digest(user.username, user.uid).slice(0, 32)}` : `pod:${uid}`,
    user,
    pod: podClaim(user, "pod-name"),
  };
};

const isProblem = (verdict: Principal | Problem): verdict is Problem => "code" in verdict;

export const makeAuth = ({ client, clock }: { client: KubeClient; clock: Clock }): Auth => {
  const callers = makeVerdicts<Principal | Problem>(clock, remembered, (verdict) =>
    isProblem(verdict) ? noMs : yesMs,
  );
  const rights = makeVerdicts<boolean>(clock, remembered, (allowed) => (allowed ? yesMs : noMs));

  const review = async (token: string): Promise<Principal | Problem> => {
    const answer = await client.post(tokenReviewPath, {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenReview",
      spec: { token, audiences: [audience] },
    });
    const { status } = tokenReview.parse(answer);
    if (!status.authenticated || status.user === undefined)
      return unauthenticated(
        `the API server does not accept the bearer token: ${status.error ?? "it is not valid"}`,
      );
    // An authenticator that knows no audiences answers none: what it accepts may be meant for anybody.
    if (!status.audiences.includes(audience))
      return unauthenticated(`the bearer token is not for the audience ${audience}: ask for one that is`);
    return principalOf(status.user);
  };

  const ask = async (
    { user }: Principal,
    verb: string,
    { namespace, name }: ResourceName,
  ): Promise<boolean> => {
    const answer = await client.post(accessReviewPath, {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        resourceAttributes: { group, resource: "fencedresources", verb, namespace, name },
      },
    });
    return accessReview.parse(answer).status.allowed;
  };

  return {
    async authenticate(header) {
      const bearer = /^bearer +(\S+) *$/i.exec(header ?? "")?.[1];
      if (bearer === undefined) return unauthenticated("send the header Authorization: Bearer <token>");
      return refusedUnasked(bearer, clock) ?? (await callers.get(digest(bearer), () => review(bearer)));
    },

    async authorize(who, verb, resource) {
      const key = digest(
        who.user.username,
        who.user.uid,
        ...who.user.groups,
        who.pod ?? "",
        verb,
        keyOf(resource),
      );
      if (await rights.get(key, () => ask(who, verb, resource))) return undefined;
      return problem(
        "forbidden",
        `${who.user.username} may not ${verb} fencedresources.${group} ${keyOf(resource)}: grant the verb by a Role`,
        { resource: keyOf(resource) },
      );
    },
  };
};
