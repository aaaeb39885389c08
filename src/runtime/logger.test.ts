import { describe, expect, it } from "vitest";
import { type LogLevel, makeLogger } from "./logger.ts";
import type { LogFields } from "./redact.ts";

const capture = (level: LogLevel = "debug") => {
  const lines: string[] = [];
  const log = makeLogger({ level, sink: { write: (line) => lines.push(line) } });
  return { log, lines, last: (): Record<string, unknown> => JSON.parse(lines.at(-1) ?? "{}") };
};

describe("log lines", () => {
  it("S1-57 carry resource, holder, token and trace id as fields beside a constant message", () => {
    const { log, last } = capture();
    log.info(
      { resource: "shop/orders", holder: "pod:1/2", token: 9223372036854775807n, attempt: "a", traceId: "t" },
      "granted",
    );
    expect(last()).toMatchObject({
      level: "info",
      msg: "granted",
      resource: "shop/orders",
      holder: "pod:1/2",
      token: "9223372036854775807",
      attempt: "a",
      traceId: "t",
    });
    expect(last()["time"]).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
  });

  it("are written from their level on", () => {
    const { log, lines } = capture("warn");
    log.debug({}, "a");
    log.info({}, "b");
    expect(lines).toEqual([]);
    log.warn({}, "c");
    log.error({}, "d");
    expect(lines).toHaveLength(2);
  });

  it("show an error with its code, stack and cause", () => {
    const { log, last } = capture();
    log.error(
      { error: Object.assign(new Error("no", { cause: new Error("why") }), { code: "ENO" }) },
      "failed",
    );
    expect(last()["error"]).toMatchObject({ name: "Error", message: "no", code: "ENO", cause: "Error: why" });
  });

  it("are one line each, whatever a text holds", () => {
    const { log, lines } = capture();
    log.info({ label: "a\nb\u001b[31m", long: "x".repeat(10_000) }, "said");
    expect(lines).toHaveLength(1);
    expect(lines[0]?.trimEnd()).not.toMatch(/\p{Cc}/u);
    expect(lines[0]?.length).toBeLessThan(3000);
  });
});

const canary = "canary-4711-do-not-print";
const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl";

describe("S1-58 no secret is printed", () => {
  const fields: LogFields[] = [
    ...[
      "authorization",
      "Authorization",
      "bearer",
      "bearerToken",
      "accessToken",
      "serviceAccountToken",
      "password",
      "passwd",
      "dbPassword",
      "clientSecret",
      "cookie",
      "apiKey",
      "privateKey",
      "credentials",
      "token",
    ].map((name) => ({ [name]: canary })),
    { token: jwt },
    { url: `postgres://issuer:${canary}@db.example/orders` },
    { text: `Authorization: Bearer ${canary}` },
    { text: `{"password":"${canary}"}` },
    { text: `host=db password=${canary} user=x` },
    { text: `token: ${canary}` },
    { list: [`Bearer ${canary}`] },
    { error: new Error(`connect postgres://u:${canary}@h/db`) },
    { error: new Error("outer", { cause: new Error(`Bearer ${canary}`) }) },
    { key: `-----BEGIN RSA PRIVATE KEY-----\n${canary}\n-----END RSA PRIVATE KEY-----` },
    { note: `the answer held ${jwt}` },
  ];

  it.each(fields)("%j", (given) => {
    const { log, lines } = capture();
    log.info(given, "request");
    log.error(given, "request failed");
    expect(lines).toHaveLength(2);
    expect(lines.join("")).not.toContain(canary);
    expect(lines.join("")).not.toContain("c2lnbmF0dXJl");
  });

  it("not even in a message", () => {
    const { log, lines } = capture();
    log.warn({}, `Bearer ${canary}`);
    expect(lines.join("")).not.toContain(canary);
  });

  it("nor in an object that got past the types", () => {
    const { log, lines } = capture();
    const fields = JSON.parse(`{"request":{"headers":{"x":"${canary}"}}}`);
    log.info(fields, "request");
    expect(lines.join("")).not.toContain(canary);
  });

  it("while fencing tokens and plain words stay readable", () => {
    const { log, last } = capture();
    log.info({ token: "42", text: "offered token: 41, accepted token: 42" }, "stale");
    expect(last()).toMatchObject({ token: "42", text: "offered token: 41, accepted token: 42" });
  });
});
