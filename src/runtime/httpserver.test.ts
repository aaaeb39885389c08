import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom } from "../../test/support/clock.ts";
import { type Certificate, makeCertificate } from "../../test/support/faultproxy/certificate.ts";
import { problem, readProblem } from "../api/problem.ts";
import { certificateFiles } from "./certificate.ts";

const pollMs = certificateFiles("", "").pollMs;
import type { Check } from "./health.ts";
import { makeHttpClient } from "./httpclient.ts";
import {
  type HttpsApp,
  type Limits,
  listen,
  makeApiServer,
  makeOpsServer,
  ProblemError,
} from "./httpserver.ts";
import { makeLogger } from "./logger.ts";
import { makeMetrics } from "./metrics.ts";
import { systemClock } from "./clock.ts";

let folder: string;
let authority: Certificate;
const closers: (() => Promise<unknown> | void)[] = [];
const lines: string[] = [];
const log = makeLogger({ level: "debug", sink: { write: (line) => lines.push(line) } });
const clock = makeFakeClock();
const deps = { clock, random: makeFakeRandom(), log };

const file = (name: string): string => join(folder, name);
const issue = async (commonName: string): Promise<void> => {
  const { cert, key } = makeCertificate({ commonName, names: ["127.0.0.1", "localhost"], issuer: authority });
  await writeFile(file("tls.crt"), cert);
  await writeFile(file("tls.key"), key);
};

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-"));
  authority = makeCertificate({ commonName: "test authority" });
  await writeFile(file("ca.crt"), authority.cert);
  await issue("first");
  lines.length = 0;
});
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
  await rm(folder, { recursive: true });
});

const serve = async (limits: Partial<Limits> = {}): Promise<{ app: HttpsApp; port: number }> => {
  const app = await makeApiServer({
    ...deps,
    limits,
    certificate: certificateFiles(file("tls.crt"), file("tls.key")),
  });
  app.post("/echo", (request, reply) => reply.send({ got: request.body, trace: request.id }));
  app.get("/busy", () => {
    throw new ProblemError(problem("busy", "shop/orders is held", { retryAfterMs: 1500 }));
  });
  app.get("/bug", () => {
    throw new Error("password=canary");
  });
  const port = await listen(app, "127.0.0.1", 0);
  closers.push(() => app.close());
  return { app, port };
};

const clientOf = (port: number) => {
  const client = makeHttpClient({
    server: `https://127.0.0.1:${port}`,
    caFile: file("ca.crt"),
    clock: systemClock,
  });
  closers.push(() => client.close());
  return client;
};

/** Everything the server says on a connection of its own to `text`. */
const raw = (port: number, text: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connectTls({ host: "127.0.0.1", port, ca: authority.cert }, () => socket.write(text));
    let answer = "";
    socket.on("data", (chunk) => (answer += chunk.toString()));
    socket.on("close", () => resolve(answer));
    socket.on("error", reject);
  });

/** Name in the certificate that a new connection is shown. */
const shownName = (port: number): Promise<string | undefined> =>
  new Promise((resolve, reject) => {
    const socket = connectTls({ host: "127.0.0.1", port, ca: authority.cert }, () => {
      const { CN } = socket.getPeerCertificate().subject;
      resolve(Array.isArray(CN) ? CN[0] : CN);
      socket.destroy();
    });
    socket.on("error", reject);
  });

describe("the API server", () => {
  it("carries the caller's trace id, or one of its own", async () => {
    const client = clientOf((await serve()).port);
    const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    const send = (traceparent: string) =>
      client.send({ method: "POST", path: "/echo", body: {}, headers: { traceparent }, timeoutMs: 5000 });
    expect((await send(`00-${trace}-00f067aa0ba902b7-01`)).body).toMatchObject({ trace });
    expect((await send("nonsense")).body).toMatchObject({ trace: expect.stringMatching(/^[\da-f]{32}$/) });
  });

  it("answers problems as RFC 9457 says, with Retry-After", async () => {
    const answer = await clientOf((await serve()).port).send({
      method: "GET",
      path: "/busy",
      timeoutMs: 5000,
    });
    expect(answer.status).toBe(409);
    expect(answer.headers["content-type"]).toContain("application/problem+json");
    expect(answer.headers["retry-after"]).toBe("2");
    expect(readProblem(answer.body)).toMatchObject({ type: "urn:fenceline:problem:busy", code: "busy" });
  });

  it("says that the outcome is unknown where a handler fails, and tells nobody why but the log", async () => {
    const answer = await clientOf((await serve()).port).send({
      method: "GET",
      path: "/bug",
      timeoutMs: 5000,
    });
    expect(readProblem(answer.body)?.code).toBe("outcome_unknown");
    expect(JSON.stringify(answer.body)).not.toContain("canary");
    expect(lines.join("")).toContain("request failed unexpectedly");
    expect(lines.join("")).not.toContain("canary");
  });

  it.each([
    [
      "a body that is too large",
      { "content-type": "application/json" },
      `"${"x".repeat(2000)}"`,
      "payload_too_large",
    ],
    ["a body that is no JSON", { "content-type": "application/json" }, "{", "invalid_request"],
    ["an empty body", { "content-type": "application/json" }, "", "invalid_request"],
    ["a wrong content type", { "content-type": "text/xml" }, "<a/>", "invalid_request"],
    [
      "a poisoned prototype",
      { "content-type": "application/json" },
      '{"__proto__":{"a":1}}',
      "invalid_request",
    ],
  ])("refuses %s", async (_name, headers, payload, code) => {
    const { app } = await serve({ body: 1000 });
    const answer = await app.inject({ method: "POST", url: "/echo", headers, payload });
    expect(readProblem(answer.json())?.code).toBe(code);
    expect(answer.statusCode).toBe(answer.json().status);
  });

  it("refuses an unknown path by name", async () => {
    const { app } = await serve();
    const answer = await app.inject({ method: "GET", url: "/v2/nothing?token=x" });
    expect(answer.json()).toMatchObject({ code: "invalid_request", detail: "there is no GET /v2/nothing" });
  });

  it("refuses headers that are too large, and what is no HTTP", async () => {
    const { port } = await serve({ headers: 2048 });
    const large = await raw(port, `GET /busy HTTP/1.1\r\nHost: x\r\nX: ${"y".repeat(3000)}\r\n\r\n`);
    expect(large).toContain("payload_too_large");
    expect(await raw(port, "hello\r\n\r\n")).toMatch(/^HTTP\/1\.1 400[\s\S]*invalid_request/);
  });

  it("hangs up on a request that does not arrive in time", async () => {
    const { app, port } = await serve({ requestMs: 50 });
    expect(app.server.requestTimeout).toBe(50);
    const answer = await raw(port, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    expect(answer).toMatch(/^(HTTP\/1\.1 400|$)/);
  });

  it("takes no more connections than its limit", async () => {
    const { port } = await serve({ connections: 1 });
    const first = connectTcp(port, "127.0.0.1");
    await new Promise((resolve) => first.once("connect", resolve));
    closers.push(() => void first.destroy());
    await expect(raw(port, "GET /busy HTTP/1.1\r\n\r\n")).rejects.toThrow(/ECONNRESET|disconnected|hang up/);
    expect(lines.join("")).toContain("connection refused: too many");
  });

  it("names the address that it cannot have", async () => {
    const { port } = await serve();
    const second = await makeApiServer({
      ...deps,
      certificate: certificateFiles(file("tls.crt"), file("tls.key")),
    });
    closers.push(() => second.close());
    await expect(listen(second, "127.0.0.1", port)).rejects.toThrow(`cannot listen on 127.0.0.1:${port}`);
  });
});

describe("the certificate", () => {
  it("is taken up from the files without a restart; a damaged one is logged once and changes nothing", async () => {
    const { port } = await serve();
    expect(await shownName(port)).toBe("first");

    await writeFile(file("tls.crt"), "-----BEGIN CERTIFICATE-----\nhalf");
    for (let round = 0; round < 3; round++) {
      await clock.advance(pollMs);
      await expect.poll(() => clock.pending()).toBe(1);
    }
    expect(await shownName(port)).toBe("first");
    expect(lines.filter((line) => line.includes("the old one stays"))).toHaveLength(1);

    await issue("second");
    await clock.advance(pollMs);
    await expect.poll(() => shownName(port)).toBe("second");
    expect(lines.join("")).toContain("certificate reloaded");
  });

  it("and key must fit: a key of another certificate is refused with both names", async () => {
    await writeFile(file("tls.key"), makeCertificate({ commonName: "other" }).key);
    await expect(serve()).rejects.toThrow(/tls\.crt and .*tls\.key are no certificate and key that fit/);
  });

  it("that is missing is named", async () => {
    await rm(file("tls.key"));
    await expect(serve()).rejects.toThrow(/cannot read .*tls\.key/);
  });
});

const ops = () => {
  const ready: Check[] = [];
  const app = makeOpsServer({
    ...deps,
    ops: { metrics: [makeMetrics({ perResource: false }).registry], live: [], ready },
  });
  closers.push(() => app.close());
  return { app, ready };
};

describe("metrics and health", () => {
  it("serves the metrics", async () => {
    const answer = await ops().app.inject("/metrics");
    expect(answer.headers["content-type"]).toContain("text/plain");
    expect(answer.body).toContain('fenceline_acquire_total{outcome="granted"} 0');
  });

  it("is ready only while every check says so, and names those that fail", async () => {
    const { app, ready } = ops();
    let fault: string | undefined = "nothing heard for 12 s";
    ready.push(
      { name: "coordinator", fault: () => undefined },
      { name: "watch of leases", fault: () => fault },
    );
    const bad = await app.inject("/readyz");
    expect(bad.statusCode).toBe(503);
    expect(bad.body).toBe("[-] watch of leases: nothing heard for 12 s\n[+] coordinator\nnot ok\n");
    expect((await app.inject("/livez")).statusCode).toBe(200);
    fault = undefined;
    expect((await app.inject("/readyz")).statusCode).toBe(200);
  });

  it("takes a check that fails to answer for a failure", async () => {
    const { app, ready } = ops();
    ready.push({
      name: "odd",
      fault: () => {
        throw new Error("no idea");
      },
    });
    const answer = await app.inject("/readyz");
    expect(answer.statusCode).toBe(503);
    expect(answer.body).toContain("[-] odd: the check itself failed: no idea");
  });
});
