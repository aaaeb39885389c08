import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { injectPath, reviewMaxBytes } from "../../../src/api/injection.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { makeApiServer } from "../../../src/runtime/httpserver.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import type { RouteDeps } from "../../../src/webhook/route.ts";
import { addInjection } from "../../../src/webhook/route.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { patched } from "../../support/jsonpatch.ts";
import { optedIn, review, settings } from "../../support/pods.ts";

const { cert, key } = makeCertificate({ commonName: "webhook" });
const refused: Parameters<RouteDeps["onRefused"]>[0][] = [];
let observed = 0;

const app = await makeApiServer({
  clock: systemClock,
  random: systemRandom,
  log: silentLogger,
  certificate: {
    name: "test",
    pollMs: 60_000,
    read: async () => ({ cert: Buffer.from(cert), key: Buffer.from(key) }),
  },
});
addInjection(app, {
  settings,
  clock: systemClock,
  duration: { observe: () => (observed += 1) },
  onRefused: (each) => refused.push(each),
});
afterAll(() => app.close());
beforeEach(() => {
  refused.length = 0;
});

const send = async (body: unknown) => {
  const answer = await app.inject({
    method: "POST",
    url: injectPath,
    headers: { "content-type": "application/json" },
    payload: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: answer.statusCode, body: answer.json() };
};

test("a pod that opts in gets a JSON patch under the uid of the review", async () => {
  const pod = optedIn();
  const { status, body } = await send(review(pod));
  expect(status).toBe(200);
  expect(body).toMatchObject({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "uid-1", allowed: true, patchType: "JSONPatch" },
  });
  const patch = JSON.parse(Buffer.from(body.response.patch, "base64").toString());
  const after = patched(pod, patch);
  expect(after.spec.initContainers?.[0]?.name).toBe("fenceline-agent");
  expect((await send(review(after))).body.response).toEqual({ uid: "uid-1", allowed: true });
  expect(observed).toBeGreaterThan(0);
});

test("warnings reach who makes the pod", async () => {
  const { body } = await send(review(optedIn({}, { restartPolicy: "OnFailure" })));
  expect(body.response.warnings).toEqual([expect.stringContaining("restarted in place")]);
});

describe("a refusal", () => {
  test("says what to do, and is told on the resources", async () => {
    const { body } = await send(review(optedIn({ resources: "a,b" }, { hostNetwork: true })));
    expect(body.response).toEqual({
      uid: "uid-1",
      allowed: false,
      status: {
        code: 422,
        reason: "Invalid",
        message:
          "fenceline: the pod uses the host's network, where the ports of two agents would meet: remove hostNetwork, or fenceline.dev/inject",
      },
    });
    expect(refused).toMatchObject([{ namespace: "shop", pod: "worker", resources: ["a", "b"] }]);
  });

  test("of a trial is told to nobody else", async () => {
    await send(review(optedIn({}, { hostNetwork: true }), { dryRun: true }));
    expect(refused).toEqual([]);
  });
});

test.each<[string, Partial<ReturnType<typeof review>["request"]>]>([
  ["another kind", { kind: { group: "coordination.k8s.io", version: "v1", kind: "Lease" } }],
  ["a change of a pod", { operation: "UPDATE" }],
])("%s passes untouched", async (_, more) => {
  const { body } = await send(review(optedIn(), more));
  expect(body.response).toEqual({ uid: "uid-1", allowed: true });
});

test.each<[string, string, number]>([
  ["nothing", "", 400],
  ["no JSON", "{", 400],
  ["no review", "{}", 400],
  ["an older version", JSON.stringify({ ...review({}), apiVersion: "admission.k8s.io/v1beta1" }), 400],
  ["too much", JSON.stringify(review("x".repeat(reviewMaxBytes))), 413],
])("%s is answered by a problem", async (_, body, status) => {
  expect(await send(body)).toMatchObject({ status, body: { status } });
});
