import { describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import { problem } from "../api/problem.ts";
import type { Token } from "../core/token.ts";
import { type HttpClient, type JsonRequest, NoAnswer } from "../runtime/httpclient.ts";
import { makeCoordinatorClient } from "./client.ts";

const attempt = "0f8fad5b-d9cb-469f-a165-70867728950e";

/** A client whose requests are all answered by `status` and `body`, or end in `error`. */
const answering = (answer: { status: number; body?: unknown } | Error) => {
  const sent: JsonRequest[] = [];
  const http: HttpClient = {
    send: (request) => {
      sent.push(request);
      return answer instanceof Error
        ? Promise.reject(answer)
        : Promise.resolve({ headers: {}, body: undefined, ...answer });
    },
    close: () => {},
  };
  return { sent, client: makeCoordinatorClient({ http, clock: makeFakeClock() }) };
};

const grant = {
  resource: "shop/orders",
  token: "9223372036854775807",
  attempt,
  holder: `user:abc/${attempt}`,
  leaseDurationMs: 15_000,
  renewAfterMs: 5000,
  guarantee: "Fenced",
  advanced: true,
};

const acquire = (answer: { status: number; body?: unknown } | Error) =>
  answering(answer).client.acquire("shop/orders", { attempt, waitMs: 0 }, 1000);

const held = { attempt, token: 42n as Token };

const renewLost = (reason: string) =>
  answering({ status: 409, body: problem("lost", "gone", { reason }) }).client.renew(
    "shop/orders",
    held,
    1000,
  );

const release = (body: unknown) => answering({ status: 200, body }).client.release("shop/orders", held, 2000);

const failed = (message: string, code: string) =>
  new NoAnswer(message, { cause: Object.assign(new Error(message), { code }) });

describe("requests", () => {
  it("go where the contract says, with tokens as decimal strings", async () => {
    const { client, sent } = answering({ status: 200, body: grant });
    await client.acquire("shop/orders", { attempt, waitMs: 30_000, label: "a" }, 40_000);
    await client.renew("shop/orders", { attempt, token: 9_007_199_254_740_993n as Token }, 1000);
    await client.release("shop/orders", held, 2000);
    await client.force("shop/orders", "maintenance", 3000);
    const at = "/v1/namespaces/shop/resources/orders";
    expect(sent).toEqual([
      {
        method: "POST",
        path: `${at}/acquire`,
        body: { attempt, waitMs: 30_000, label: "a" },
        timeoutMs: 40_000,
      },
      {
        method: "POST",
        path: `${at}/renew`,
        body: { attempt, token: "9007199254740993" },
        timeoutMs: 1000,
      },
      { method: "POST", path: `${at}/release`, body: { attempt, token: "42" }, timeoutMs: 2000 },
      { method: "POST", path: `${at}/force-release`, body: { reason: "maintenance" }, timeoutMs: 3000 },
    ]);
  });
});

describe("answers", () => {
  it("a grant is read with all its digits", async () => {
    expect(await acquire({ status: 200, body: grant })).toMatchObject({
      kind: "ok",
      sentAt: 0,
      value: { token: 9_223_372_036_854_775_807n, guarantee: "Fenced", leaseDurationMs: 15_000 },
    });
  });

  it("a guarantee that is not known is none", async () => {
    const body = { ...grant, guarantee: "Quantum" };
    expect(await acquire({ status: 200, body })).toMatchObject({ value: { guarantee: "Advisory" } });
  });

  it.each([
    ["no body", undefined],
    ["null", null],
    ["a text", "granted"],
    ["a list", []],
    ["token 0", { ...grant, token: "0" }],
    ["a token as a number", { ...grant, token: 42 }],
    ["a token too large", { ...grant, token: "9223372036854775808" }],
    ["no term", { ...grant, leaseDurationMs: undefined }],
    ["a negative term", { ...grant, leaseDurationMs: -1 }],
    ["an endless term", { ...grant, leaseDurationMs: Infinity }],
    ["a term as text", { ...grant, renewAfterMs: "5000" }],
  ])("a grant with %s grants nothing", async (_, body) => {
    expect(await acquire({ status: 200, body })).toMatchObject({ kind: "silent" });
  });

  it("problems are read with what they carry", async () => {
    const body = problem("busy", "shop/orders is held", {
      holder: "user:abc/other",
      aheadOnThisReplica: 3,
      retryAfterMs: 1000,
    });
    expect(await acquire({ status: 409, body })).toEqual({
      kind: "refused",
      problem: {
        code: "busy",
        detail: "shop/orders is held",
        holder: "user:abc/other",
        ahead: 3,
        retryAfterMs: 1000,
      },
    });
  });

  it("a loss keeps its reason, and takes no other for one", async () => {
    expect(await renewLost("forced")).toMatchObject({ problem: { code: "lost", reason: "forced" } });
    expect(await renewLost("boredom")).toEqual({
      kind: "refused",
      problem: { code: "lost", detail: "gone" },
    });
  });

  it.each([
    [404, { kind: "Status", code: 404 }, true],
    [200, { hello: "world" }, true],
    [502, { error: "bad gateway" }, false],
    [429, undefined, false],
    [503, { type: "urn:other:problem:busy", code: "busy" }, false],
  ])("status %i of somebody else says nothing about the right", async (status, body, lasting) => {
    expect(await acquire({ status, body })).toMatchObject({ kind: "silent", lasting });
  });

  it("a release says whether there was something to give back", async () => {
    expect(await release({ released: true })).toMatchObject({ value: { released: true } });
    expect(await release({ released: false, reason: "forced" })).toMatchObject({
      value: { released: false, reason: "forced" },
    });
    expect(await release({})).toMatchObject({ kind: "silent" });
  });
});

describe("no answer", () => {
  it.each([
    ["ECONNREFUSED", false],
    ["ECONNRESET", false],
    ["ENOTFOUND", false],
    ["DEPTH_ZERO_SELF_SIGNED_CERT", true],
    ["ERR_TLS_CERT_ALTNAME_INVALID", true],
    ["CERT_HAS_EXPIRED", true],
    ["ERR_SSL_WRONG_VERSION_NUMBER", true],
  ])("%s: does waiting help?", async (code, lasting) => {
    expect(await acquire(failed("the line", code))).toMatchObject({ kind: "silent", lasting });
  });

  it("is one line, without the words of a library where a server speaks plain HTTP", async () => {
    const said =
      "127.0.0.1:80: write EPROTO 40:error:0A:SSL routines:\nwrong version number:tlsany_meth.c:77:";
    expect(await acquire(failed(said, "EPROTO"))).toMatchObject({
      message: "127.0.0.1:80: this server does not speak TLS: check its address",
    });
    expect(await acquire(failed("two\nlines", "ECONNRESET"))).toMatchObject({ message: "two lines" });
  });

  it("a bug of ours is thrown, not taken for silence", async () => {
    await expect(acquire(new TypeError("from the test"))).rejects.toThrow(TypeError);
  });
});
