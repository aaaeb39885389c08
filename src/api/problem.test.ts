import { expect, test } from "vitest";
import { problem, problems, problemSchema, readProblem } from "./problem.ts";

test("every code has the status that was published", () => {
  const statuses = Object.fromEntries(Object.entries(problems).map(([code, { status }]) => [code, status]));
  expect(statuses).toEqual({
    busy: 409,
    lost: 409,
    stale_fencing_token: 409,
    missing_fencing_token: 428,
    not_held: 409,
    token_never_issued: 409,
    token_already_used: 409,
    tokens_exhausted: 409,
    issuer_mismatch: 409,
    boundary_closed: 503,
    unknown_resource: 404,
    not_ready: 503,
    outcome_unknown: 503,
    store_unavailable: 503,
    overloaded: 429,
    unauthenticated: 401,
    forbidden: 403,
    invalid_request: 400,
    payload_too_large: 413,
    idempotency_key_missing: 400,
    idempotency_key_reused: 422,
    effect_in_flight: 409,
    effect_unknown: 502,
  });
});

test("a body names its code twice and says what its code adds", () => {
  expect(
    problem("busy", "shop/orders is held by worker-a", { holder: "pod:a/1", aheadOnThisReplica: 2 }),
  ).toEqual({
    type: "urn:fenceline:problem:busy",
    code: "busy",
    title: "Another attempt holds the resource.",
    status: 409,
    detail: "shop/orders is held by worker-a",
    holder: "pod:a/1",
    aheadOnThisReplica: 2,
  });
});

test("titles are one line", () => {
  for (const { title } of Object.values(problems)) expect(title).toMatch(/^[A-Z][^\n]*\.$/);
});

test("what is no problem of ours is not read as one", () => {
  for (const body of [undefined, "<html>", { code: "nginx" }, { ...problem("busy", ""), code: "other" }])
    expect(readProblem(body)).toBeUndefined();
  expect(readProblem({ ...problem("busy", "x"), more: 1 })).toMatchObject({ code: "busy", more: 1 });
  expect(problemSchema.parse(problem("lost", "x", { reason: "forced" })).reason).toBe("forced");
});
