import { describe, expect, it } from "vitest";
import { makeKubeClient } from "./client.ts";
import { TransportError } from "./errors.ts";
import { leaseKind } from "./kinds.ts";
import type { HttpAnswer, HttpRequest, Transport } from "./types.ts";

const metadata = { name: "orders", namespace: "shop", uid: "u", resourceVersion: "7" };
const lease = { metadata, spec: { holderIdentity: "user:a/1" } };
const ref = { namespace: "shop", name: "orders" };

const against = (answer: HttpAnswer | Error | ((request: HttpRequest) => HttpAnswer)) => {
  const requests: HttpRequest[] = [];
  const transport: Transport = {
    source: "kubeconfig F, context C",
    async request(request) {
      requests.push(request);
      if (answer instanceof Error) throw answer;
      return typeof answer === "function" ? answer(request) : answer;
    },
    open: () => Promise.reject(new Error("no watch here")),
  };
  return { client: makeKubeClient(transport), requests };
};

const json = (status: number, body: unknown, headers: Record<string, string> = {}): HttpAnswer => ({
  status,
  headers,
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const status = (code: number, reason: string, headers: Record<string, string> = {}) =>
  json(code, { kind: "Status", code, reason, message: `${reason} happened` }, headers);

describe("what became of a write", () => {
  it.each([
    ["200", json(200, lease), { outcome: "ok" }],
    ["201", json(201, lease), { outcome: "ok" }],
    ["400", status(400, "BadRequest"), { outcome: "refused", status: 400 }],
    ["401", status(401, "Unauthorized"), { outcome: "refused", status: 401 }],
    ["403", status(403, "Forbidden"), { outcome: "refused", status: 403 }],
    ["404", status(404, "NotFound"), { outcome: "gone" }],
    ["404 of a stranger", json(404, "<html>"), { outcome: "refused", status: 404 }],
    ["409 Conflict", status(409, "Conflict"), { outcome: "conflict" }],
    ["409 AlreadyExists", status(409, "AlreadyExists"), { outcome: "exists" }],
    ["409 of a stranger", json(409, "no"), { outcome: "refused", status: 409 }],
    ["410", status(410, "Gone"), { outcome: "gone" }],
    ["413", json(413, ""), { outcome: "refused", status: 413 }],
    ["422", status(422, "Invalid"), { outcome: "refused", status: 422 }],
    [
      "429",
      status(429, "TooManyRequests", { "retry-after": "2" }),
      { outcome: "unavailable", retryAfterMs: 2000 },
    ],
    ["500", status(500, "InternalError"), { outcome: "unknown" }],
    ["503", status(503, "ServiceUnavailable"), { outcome: "unknown" }],
    ["504", status(504, "Timeout"), { outcome: "unknown" }],
    ["302", json(302, ""), { outcome: "unknown" }],
    ["200 with half an answer", json(200, '{"metadata":{"na'), { outcome: "unknown" }],
    ["200 with something else", json(200, { metadata: {} }), { outcome: "unknown" }],
    ["a lost answer", new TransportError(true, "unreachable", "reset"), { outcome: "unknown" }],
    ["no connection", new TransportError(false, "unreachable", "refused"), { outcome: "unavailable" }],
  ])("%s", async (_name, answer, expected) => {
    const { client, requests } = against(answer);
    for (const write of [
      () => client.create(leaseKind, lease),
      () => client.update(leaseKind, lease),
      () => client.updateStatus(leaseKind, lease),
      () => client.patch(leaseKind, ref, {}),
    ])
      expect(await write()).toMatchObject(expected);
    expect(requests).toHaveLength(4);
  });

  it("throws what no later try can mend", async () => {
    const { client } = against(new TransportError(false, "bad_config", "check the CA"));
    await expect(client.update(leaseKind, lease)).rejects.toMatchObject({ code: "bad_config" });
  });

  it.each(["uid", "resourceVersion"])("sends no update without %s", async (field) => {
    const { client, requests } = against(json(200, lease));
    const bare = { metadata: { ...metadata, [field]: undefined }, spec: {} };
    for (const update of [() => client.update(leaseKind, bare), () => client.updateStatus(leaseKind, bare)])
      expect(await update()).toMatchObject({ outcome: "refused", status: 400 });
    expect(requests).toEqual([]);
  });

  it("carries uid and resourceVersion in the body, encodes names, and says of what kind it is", async () => {
    const { client, requests } = against(json(200, lease));
    await client.update(leaseKind, { ...lease, metadata: { ...metadata, name: "a/../b?c" } });
    expect(requests[0]).toMatchObject({
      method: "PUT",
      path: "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a%2F..%2Fb%3Fc",
      verb: "update",
      resource: "leases",
    });
    expect(JSON.parse(requests[0]?.body ?? "")).toMatchObject({
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { uid: "u", resourceVersion: "7" },
    });
  });

  it("asks for preconditions when it removes", async () => {
    const { client, requests } = against(json(200, { kind: "Status", status: "Success" }));
    expect(await client.remove(leaseKind, ref, { uid: "u" })).toMatchObject({ outcome: "ok" });
    expect(JSON.parse(requests[0]?.body ?? "")).toMatchObject({ preconditions: { uid: "u" } });
  });
});

describe("what a read says", () => {
  it("finds, or knows that it is absent", async () => {
    expect(await against(json(200, lease)).client.get(leaseKind, ref)).toEqual({
      outcome: "found",
      object: lease,
    });
    expect(await against(status(404, "NotFound")).client.get(leaseKind, ref)).toEqual({ outcome: "absent" });
  });

  it.each([
    [
      status(401, "Unauthorized"),
      { code: "unauthorized", message: expect.stringContaining("kubeconfig F, context C") },
    ],
    [status(403, "Forbidden"), { code: "forbidden", message: expect.stringContaining("Forbidden happened") }],
    [status(429, "TooManyRequests", { "retry-after": "3" }), { code: "unreachable", retryAfterMs: 3000 }],
    [status(429, "TooManyRequests", { "retry-after": "99999" }), { retryAfterMs: 60_000 }],
    [status(429, "TooManyRequests", { "retry-after": "soon" }), { retryAfterMs: undefined }],
    [status(500, "InternalError"), { code: "unreachable", status: 500 }],
    [status(410, "Expired"), { code: "bad_answer", status: 410, reason: "Expired" }],
    [
      json(404, "<html>not here</html>"),
      { code: "bad_answer", message: expect.stringContaining("Kubernetes API server") },
    ],
    [json(200, "<html>"), { code: "bad_answer" }],
    [
      json(200, { metadata: { ...metadata, uid: "" } }),
      { code: "bad_answer", message: expect.stringContaining("uid") },
    ],
    [new TransportError(false, "bad_config", "check the CA"), { code: "bad_config" }],
  ])("throws one line with a code", async (answer, expected) => {
    const { client } = against(answer);
    const error = await client.get(leaseKind, ref).then(
      () => expect.unreachable("it was read"),
      (error: Error) => error,
    );
    expect(error).toMatchObject(expected);
    expect(error.message).not.toContain("\n");
  });

  it("throws the caller's own reason when the caller gives up", async () => {
    const { client } = against(new TransportError(true, "unreachable", "the caller gave up"));
    const reason = new Error("shutting down");
    await expect(client.get(leaseKind, ref, AbortSignal.abort(reason))).rejects.toBe(reason);
    expect(await client.update(leaseKind, lease, AbortSignal.abort(reason))).toMatchObject({
      outcome: "unknown",
    });
  });
});
