/** The coordinator's face: who calls, may they, is it well-formed; then one call and its answer. */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import * as api from "../api/http.ts";
import type { Verb } from "../api/names.ts";
import { type Problem, problem } from "../api/problem.ts";
import { nameText, namespaceText, parse } from "../api/text.ts";
import { KubeError } from "../kube/errors.ts";
import type { ResourceName } from "../kube/leases.ts";
import { type HttpsApp, ProblemError } from "../runtime/httpserver.ts";
import type { Granted, Refusal, Released, Renewed } from "./answers.ts";
import type { Auth, Principal } from "./auth.ts";
import type { Coordinator } from "./coordinator.ts";

export interface FaceDeps {
  coordinator: Coordinator;
  auth: Auth;
  /** What is known of a resource now; undefined where there is none. */
  state: (resource: ResourceName) => Promise<api.StateAnswer | undefined>;
}

const problemOf = ({ code, detail, extras }: Refusal): Problem => problem(code, detail, extras);

const answered = <A extends Granted | Renewed | Released>(answer: A | Refusal): A => {
  if (answer.outcome === "refused") throw new ProblemError(problemOf(answer));
  return answer;
};

const bodyOf = <T>(schema: z.ZodType<T>, request: FastifyRequest): T => {
  const parsed = parse(schema, request.body);
  if (parsed.ok) return parsed.value;
  throw new ProblemError(problem("invalid_request", parsed.refusal.message, { field: parsed.refusal.field }));
};

const resourceOf = (request: FastifyRequest): ResourceName => {
  const { namespace, name } = request.params as Record<string, unknown>;
  for (const [schema, value, field] of [
    [namespaceText, namespace, "namespace"],
    [nameText, name, "name"],
  ] as const) {
    const parsed = parse(schema, value);
    if (!parsed.ok)
      throw new ProblemError(
        problem("invalid_request", parsed.refusal.message.replace("body", field), { field }),
      );
  }
  return { namespace: String(namespace), name: String(name) };
};

/** Aborted when the caller goes away before its answer is sent. */
const goneSignal = (reply: FastifyReply): AbortSignal => {
  const gone = new AbortController();
  reply.raw.once("close", () => {
    if (!reply.raw.writableEnded) gone.abort();
  });
  return gone.signal;
};

const termOf = ({ leaseDurationMs, renewAfterMs }: Granted | Renewed) => ({ leaseDurationMs, renewAfterMs });

const lossReasonOf = (reason: string): api.ReleaseAnswer["reason"] =>
  api.releaseAnswer.shape.reason.safeParse(reason).data;

/** Nobody can tell who calls or what they may: that is no answer, and not a no. */
const unknownIsNoAnswer = (error: unknown): never => {
  if (error instanceof KubeError)
    throw new ProblemError(
      problem("store_unavailable", `the API server does not answer: ${error.message}`, {
        retryAfterMs: 1000,
      }),
    );
  throw error;
};

/** Adds the routes of the API to `app`. */
export const addRoutes = (app: HttpsApp, { coordinator, auth, state }: FaceDeps): void => {
  const caller = async (request: FastifyRequest): Promise<Principal> => {
    const who = await auth.authenticate(request.headers.authorization).catch(unknownIsNoAnswer);
    if ("code" in who) throw new ProblemError(who);
    return who;
  };

  const refusedBy = (
    who: Principal,
    verb: Verb | "get",
    resource: ResourceName,
  ): Promise<Problem | undefined> => auth.authorize(who, verb, resource).catch(unknownIsNoAnswer);

  const allowed = async (request: FastifyRequest, verb: Verb | "get") => {
    const who = await caller(request);
    const resource = resourceOf(request);
    const refused = await refusedBy(who, verb, resource);
    if (refused !== undefined) throw new ProblemError(refused);
    return { who, resource };
  };

  const path = api.paths.resource(":namespace", ":name");

  app.post(`${path}/acquire`, async (request, reply) => {
    const gone = goneSignal(reply);
    const { who, resource } = await allowed(request, "acquire");
    const { attempt, waitMs, label } = bodyOf(api.acquireRequest, request);
    const granted = answered<Granted>(
      await coordinator.acquire(
        {
          resource,
          caller: { identity: who.identity, attempt },
          note: who.pod === undefined && label === undefined ? undefined : { pod: who.pod, label },
          waitMs,
        },
        gone,
      ),
    );
    return api.acquireAnswer.encode({
      resource: `${resource.namespace}/${resource.name}`,
      attempt,
      token: granted.token,
      holder: granted.holder,
      ...termOf(granted),
      guarantee: granted.guarantee,
      advanced: granted.advanced,
    });
  });

  app.post(`${path}/renew`, async (request) => {
    const { who, resource } = await allowed(request, "acquire");
    const { attempt, token } = bodyOf(api.renewRequest, request);
    return termOf(
      answered<Renewed>(await coordinator.renew(resource, { identity: who.identity, attempt }, token)),
    );
  });

  app.post(`${path}/release`, async (request) => {
    const { who, resource } = await allowed(request, "acquire");
    const { attempt, token } = bodyOf(api.releaseRequest, request);
    const released = answered<Released>(
      await coordinator.release(resource, { identity: who.identity, attempt }, token),
    );
    return released.outcome === "released"
      ? { released: true }
      : { released: false, reason: lossReasonOf(released.reason) };
  });

  app.post(`${path}/force-release`, async (request) => {
    const { who, resource } = await allowed(request, "force");
    const { reason } = bodyOf(api.forceReleaseRequest, request);
    const forced = await coordinator.force(resource, who.user.username, reason);
    if (forced.outcome === "refused") throw new ProblemError(problemOf(forced));
    if (forced.outcome === "unchanged") return { released: false };
    return api.forceReleaseAnswer.encode({ released: true, holder: forced.holder, token: forced.token });
  });

  app.get(path, async (request) => {
    const { resource } = await allowed(request, "get");
    const found = await state(resource).catch(unknownIsNoAnswer);
    if (found === undefined)
      throw new ProblemError(
        problem("unknown_resource", `there is no FencedResource ${resource.namespace}/${resource.name}`),
      );
    return found;
  });

  app.post(api.paths.renewals, async (request) => {
    const who = await caller(request);
    const { renewals } = bodyOf(api.renewalsRequest, request);
    const one = async ({ resource: key, attempt, token }: (typeof renewals)[number]) => {
      const [namespace = "", name = ""] = key.split("/");
      const resource = { namespace, name };
      const refused = await refusedBy(who, "acquire", resource);
      if (refused !== undefined) return { resource: key, attempt, problem: refused };
      const answer = await coordinator.renew(resource, { identity: who.identity, attempt }, token);
      return answer.outcome === "refused"
        ? { resource: key, attempt, problem: problemOf(answer) }
        : { resource: key, attempt, renewed: termOf(answer) };
    };
    return { results: await Promise.all(renewals.map(one)) };
  });
};
