/** The webhook's face: an AdmissionReview in, its answer out. Nothing is asked of anybody meanwhile. */
import type { AdmissionRequest } from "../api/injection.ts";
import { admissionReview, injectPath, reviewMaxBytes } from "../api/injection.ts";
import { problem } from "../api/problem.ts";
import { parse } from "../api/text.ts";
import { elapsed } from "../core/time.ts";
import type { Clock } from "../runtime/clock.ts";
import { type HttpsApp, ProblemError } from "../runtime/httpserver.ts";
import { inject, type Injection, type InjectionSettings } from "./inject.ts";

export interface RouteDeps {
  settings: InjectionSettings;
  clock: Clock;
  /** Told the seconds of every answer. */
  duration: { observe(seconds: number): void };
  /** Hears of a pod that was refused, unless it was only a trial. Returns at once. */
  onRefused: (refused: {
    namespace: string;
    pod: string;
    message: string;
    resources: readonly string[];
  }) => void;
}

/** `response` of the AdmissionReview. */
const answerOf = (uid: string, injection: Injection) => {
  switch (injection.outcome) {
    case "nothing":
      return { uid, allowed: true };
    case "patch": {
      const { patch, warnings } = injection;
      return {
        uid,
        allowed: true,
        ...(patch.length === 0
          ? {}
          : { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") }),
        ...(warnings.length === 0 ? {} : { warnings }),
      };
    }
    case "refused":
      return {
        uid,
        allowed: false,
        status: { code: 422, reason: "Invalid", message: `fenceline: ${injection.message}` },
      };
    default: {
      const never: never = injection;
      return never;
    }
  }
};

const isNewPod = ({ kind, operation }: AdmissionRequest): boolean =>
  operation === "CREATE" && kind.group === "" && kind.version === "v1" && kind.kind === "Pod";

/** Adds the route of the webhook to the server of the API. */
export const addInjection = (app: HttpsApp, { settings, clock, duration, onRefused }: RouteDeps): void => {
  app.post(injectPath, { bodyLimit: reviewMaxBytes }, async (request) => {
    const started = clock.mono();
    const read = parse(admissionReview, request.body);
    if (!read.ok)
      throw new ProblemError(problem("invalid_request", read.refusal.message, { field: read.refusal.field }));
    const asked = read.value.request;
    const injection: Injection = isNewPod(asked) ? inject(asked.object, settings) : { outcome: "nothing" };
    if (injection.outcome === "refused" && asked.dryRun !== true) {
      const { message, resources } = injection;
      onRefused({ namespace: asked.namespace, pod: asked.name, message, resources });
    }
    duration.observe(elapsed(started, clock.mono()) / 1000);
    return {
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: answerOf(asked.uid, injection),
    };
  });
};
