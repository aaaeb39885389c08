import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Token } from "../core/token.ts";
import {
  acquireAnswer,
  acquireRequest,
  forceReleaseRequest,
  renewalsRequest,
  renewRequest,
  stateAnswer,
} from "./http.ts";
import { parse } from "./text.ts";

const attempt = "0f8fad5b-d9cb-469f-a165-70867728950e";
const refused = (schema: z.ZodType, body: unknown) => {
  const result = parse(schema, body);
  return result.ok ? undefined : result.refusal;
};

describe("requests", () => {
  test("an acquire needs only its attempt", () => {
    expect(parse(acquireRequest, { attempt })).toEqual({ ok: true, value: { attempt, waitMs: 0 } });
  });

  test("an attempt is one in upper and in lower case", () => {
    const result = parse(acquireRequest, { attempt: attempt.toUpperCase() });
    expect(result).toMatchObject({ value: { attempt } });
  });

  test("S1-25 no caller proposes a token", () => {
    expect(refused(acquireRequest, { attempt, token: "42" })).toEqual({
      field: "token",
      message: "unknown field token: remove it",
    });
  });

  test.each<[unknown, string, string]>([
    [undefined, "body", "body: give a JSON object"],
    [null, "body", "body: give a JSON object"],
    [[], "body", "body: give a JSON object"],
    ["x", "body", "body: give a JSON object"],
    [{}, "attempt", "attempt: give a UUID, as in 0f8fad5b-d9cb-469f-a165-70867728950e"],
    [{ attempt: 1 }, "attempt", "attempt: give a UUID, as in 0f8fad5b-d9cb-469f-a165-70867728950e"],
    [{ attempt, waitMs: 30_001 }, "waitMs", "waitMs: give a whole number from 0 to 30000"],
    [{ attempt, waitMs: -1 }, "waitMs", "waitMs: give a whole number from 0 to 30000"],
    [{ attempt, waitMs: 0.5 }, "waitMs", "waitMs: give a whole number from 0 to 30000"],
    [{ attempt, waitMs: "5" }, "waitMs", "waitMs: give a whole number from 0 to 30000"],
    [{ attempt, waitMs: 1e300 }, "waitMs", "waitMs: give a whole number from 0 to 30000"],
    [{ attempt, label: "" }, "label", "label: give 1 to 128 printable characters"],
    [{ attempt, label: 5 }, "label", "label: give 1 to 128 printable characters"],
  ])("an acquire of %j is refused at %s", (body, field, message) => {
    expect(refused(acquireRequest, body)).toEqual({ field, message });
  });

  test.each([
    ["an escape", "a\u001b[31mb"],
    ["a line break", "a\nb"],
    ["NUL", "a\u0000b"],
    ["a C1 control", "a\u009bb"],
    ["a mark that turns the direction of writing", "a\u202eb"],
    ["a line separator", "a\u2028b"],
    ["half a character", "a\ud800b"],
    ["129 characters", "a".repeat(129)],
  ])("a label or reason with %s", (_, text) => {
    expect(refused(acquireRequest, { attempt, label: text })?.field).toBe("label");
    expect(refused(forceReleaseRequest, { reason: text })?.field).toBe("reason");
  });

  test.each(["worker-a", "Jürgen's laptop", "作業員 1", "😀", "a".repeat(128), "😀".repeat(128)])(
    "a label of %j is fine",
    (label) => {
      expect(refused(acquireRequest, { attempt, label })).toBeUndefined();
    },
  );

  test.each(["1", "9007199254740993", "9223372036854775807"])("FM-38 the token %s is exact", (token) => {
    expect(parse(renewRequest, { attempt, token })).toEqual({
      ok: true,
      value: { attempt, token: BigInt(token) },
    });
  });

  test.each([
    "0",
    "-1",
    "042",
    "1e3",
    "9223372036854775808",
    "",
    " 1",
    "1 ",
    "+1",
    "0x1",
    42,
    null,
    undefined,
  ])("FM-38 %j is no token", (token) => {
    expect(refused(renewRequest, { attempt, token })).toEqual({
      field: "token",
      message: "token: give a decimal string from 1 to 9223372036854775807, without sign or leading zero",
    });
  });

  test("the path of a field in a list is named", () => {
    const good = { resource: "shop/orders", attempt, token: "1" };
    expect(refused(renewalsRequest, { renewals: [good, { ...good, token: "x" }] })?.field).toBe(
      "renewals[1].token",
    );
    expect(refused(renewalsRequest, { renewals: [{ ...good, more: 1 }] })?.message).toBe(
      "unknown field renewals[0].more: remove it",
    );
    for (const resource of ["orders", "/orders", "shop/", "Shop/orders", "shop/a/b", "shop/..", 5])
      expect(refused(renewalsRequest, { renewals: [{ ...good, resource }] })?.field).toBe(
        "renewals[0].resource",
      );
    for (const renewals of [[], "x", Array.from({ length: 65 }, () => good)])
      expect(refused(renewalsRequest, { renewals })?.field).toBe("renewals");
  });

  test("a name that a caller invents is shown short, on one line and harmless", () => {
    const message = refused(acquireRequest, { attempt, [`a\u001b\n${"x".repeat(500)}`]: 1 })?.message ?? "";
    expect(message).toMatch(/^unknown field a\?\?x+…: remove it$/);
    expect(message.length).toBeLessThan(100);
  });
});

describe("answers", () => {
  const answer = {
    resource: "shop/orders" as const,
    token: 9_007_199_254_740_993n as Token,
    attempt,
    holder: `pod:a/${attempt}`,
    leaseDurationMs: 15_000,
    renewAfterMs: 5_000,
    guarantee: "Fenced" as const,
    advanced: true,
  };

  test("FM-38 a token goes out as text and comes back exact", () => {
    const wire: unknown = JSON.parse(JSON.stringify(z.encode(acquireAnswer, answer)));
    expect(wire).toMatchObject({ token: "9007199254740993" });
    expect(acquireAnswer.parse(wire)).toEqual(answer);
  });

  test("what a newer coordinator adds is passed over", () => {
    expect(acquireAnswer.parse({ ...z.encode(acquireAnswer, answer), more: 1 })).toEqual(answer);
  });

  test("S1-21 the state has the five items of the record", () => {
    expect(Object.keys(stateAnswer.shape)).toEqual(
      expect.arrayContaining(["resource", "highestToken", "holder", "leaseExpiry", "updated"]),
    );
  });
});
