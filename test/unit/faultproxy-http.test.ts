import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeCertificate } from "../support/faultproxy/certificate.ts";
import { type HttpProxy, startHttpProxy } from "../support/faultproxy/http.ts";
import { admin, authority, event, leases, startStandIn, watch, write } from "./faultproxy-standin.ts";

let upstream: Awaited<ReturnType<typeof startStandIn>>;
let proxy: HttpProxy;
let agent: https.Agent;

beforeEach(async () => {
  upstream = await startStandIn();
  proxy = await startHttpProxy({
    target: upstream.url,
    tls: { ca: authority.cert, cert: admin.cert, key: admin.key },
  });
  agent = new https.Agent({ keepAlive: true, ca: proxy.ca });
});
afterEach(async () => {
  agent.destroy();
  await proxy.close();
  upstream.close();
});

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
  /** The code of the error that ended it, if any. */
  error?: string;
}

/** One request over HTTP/1.1. `started` runs when the head of the answer is there. */
const ask = (
  method: string,
  path: string,
  body = "",
  token = "",
  started: (response: http.IncomingMessage) => void = () => undefined,
) =>
  new Promise<Answer>((resolve) => {
    const result: Answer = { status: 0, headers: {}, text: "" };
    const fail = (error: NodeJS.ErrnoException) => resolve({ ...result, error: error.code ?? error.message });
    const headers = token === "" ? {} : { authorization: `Bearer ${token}` };
    const request = https.request(proxy.url, { method, path, agent, headers }, (response) => {
      result.status = response.statusCode ?? 0;
      result.headers = response.headers;
      response.on("data", (chunk: Buffer) => (result.text += chunk.toString()));
      response.on("error", fail);
      response.on("end", () => resolve(result));
      started(response);
    });
    request.on("error", fail);
    request.end(body);
  });

const put = (name = "orders") => ask("PUT", `${leases}/${name}`, "lease");

const status = async (name: string) => (await put(name)).status;

/** A watch whose text can be looked at while it runs. */
const watching = async () => {
  const state = { text: "", error: "", ended: false };
  const started = Promise.withResolvers<http.IncomingMessage>();
  void ask("GET", `${leases}?watch=true`, "", "", (response) => {
    response.on("data", (chunk: Buffer) => (state.text += chunk.toString()));
    response.on("error", (error: NodeJS.ErrnoException) => (state.error = error.code ?? error.message));
    response.on("end", () => (state.ended = true));
    started.resolve(response);
  });
  return { state, response: await started.promise };
};
/** What a proxy of this seed does to twelve requests of which it spoils half. */
const spoiled = async (seed: number) => {
  await using other = await startHttpProxy({
    target: upstream.url,
    tls: { ca: authority.cert },
    serve: "http",
    seed,
  });
  other.answer({}, { status: 500 }, { chance: 0.5 });
  const statuses: number[] = [];
  for (let i = 0; i < 12; i += 1) statuses.push((await fetch(other.url)).status);
  return statuses;
};

describe("HTTP proxy, passing on", () => {
  it("forwards method, path, body and answer, and keeps connections alive", async () => {
    const first = await ask("PUT", `${leases}/orders?fieldManager=me`, "the lease");
    expect(first).toMatchObject({ status: 200, text: "answer 1\n" });
    expect(upstream.seen[0]).toMatchObject({
      method: "PUT",
      path: `${leases}/orders?fieldManager=me`,
      body: "the lease",
    });
    await put();
    expect(proxy.wire.accepted()).toBe(1);
  });

  it("presents its client certificate, but lets a bearer speak for itself", async () => {
    await put();
    await ask("PUT", `${leases}/orders`, "", "mine");
    expect(upstream.seen.map(({ user }) => user)).toEqual(["cert:admin", "Bearer mine"]);
  });

  it("counts by verb and resource, as the audit log names them", async () => {
    const group = "/apis/fenceline.dev/v1alpha1";
    await ask("GET", `${group}/namespaces/shop/fencedresources`);
    await ask("GET", `${group}/fencedresources?limit=5`);
    await ask("GET", `${group}/namespaces/shop/fencedresources/orders`);
    await ask("PUT", `${group}/namespaces/shop/fencedresources/orders/status`);
    await ask("PATCH", `${group}/fencedsequences/abc`);
    await ask("DELETE", "/api/v1/namespaces/shop");
    await ask("DELETE", "/api/v1/namespaces/shop/pods");
    await ask("PUT", "/api/v1/namespaces/shop/finalize");
    await ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews");
    await ask("POST", "/api/v1/namespaces/shop/serviceaccounts/me/token");
    await ask("POST", "/v1/namespaces/shop/resources/orders/acquire");
    await ask("GET", "/version");
    await put();
    await put();
    expect(proxy.counts()).toEqual({
      "list fencedresources": 2,
      "get fencedresources": 1,
      "update fencedresources/status": 1,
      "patch fencedsequences": 1,
      "delete namespaces": 1,
      "deletecollection pods": 1,
      "update namespaces/finalize": 1,
      "create tokenreviews": 1,
      "create serviceaccounts/token": 1,
      "post /v1/namespaces/shop/resources/orders/acquire": 1,
      "get /version": 1,
      "update leases": 2,
    });
    expect(proxy.writes()).toEqual({
      "update fencedresources/status": 1,
      "patch fencedsequences": 1,
      "delete namespaces": 1,
      "deletecollection pods": 1,
      "update namespaces/finalize": 1,
      "update leases": 2,
    });
    expect(proxy.total()).toBe(14);
    expect(proxy.total({ resource: "fencedresources" })).toBe(3);
    proxy.reset();
    expect(proxy.counts()).toEqual({});
  });

  it("streams a watch as it comes, and ends it upstream when the client leaves", async () => {
    const { state, response } = await watching();
    upstream.emit(event(1));
    await expect.poll(() => state.text).toBe(event(1));
    upstream.emit(event(2));
    await expect.poll(() => state.text).toBe(event(1) + event(2));
    expect(proxy.counts()).toEqual({ "watch leases": 1 });
    response.destroy();
    await expect.poll(() => upstream.watches()).toBe(0);
  });

  it("resets the client when the server cannot be reached or breaks off", async () => {
    const { state } = await watching();
    upstream.emit(event(1));
    await expect.poll(() => state.text).toBe(event(1));
    upstream.breakOff();
    await expect.poll(() => state.error).toBe("ECONNRESET");
    upstream.close();
    expect(await put()).toMatchObject({ status: 0, error: "ECONNRESET" });
  });

  it("gives a kubeconfig that leads to it", () => {
    const config = JSON.parse(proxy.kubeconfig({ token: "mine", namespace: "shop" }));
    expect(config.clusters[0].cluster.server).toBe(proxy.url.origin);
    expect(Buffer.from(config.clusters[0].cluster["certificate-authority-data"], "base64").toString()).toBe(
      proxy.ca,
    );
    expect(config.users[0].user).toEqual({ token: "mine" });
    expect(config.contexts[0].context.namespace).toBe("shop");
  });

  it("serves and forwards plain HTTP too", async () => {
    const server = http.createServer((_request, response) => response.end("plain"));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    await using plain = await startHttpProxy({
      target: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      serve: "http",
    });
    expect(await (await fetch(plain.url)).text()).toBe("plain");
    server.closeAllConnections();
    server.close();
  });
});

describe("HTTP proxy, faults", () => {
  it.each([
    [410, "Expired"],
    [429, "TooManyRequests"],
    [500, "InternalError"],
  ])("answers %i with a Status and never asks the server", async (status, reason) => {
    using _ = proxy.answer({ verb: "list", resource: "leases" }, { status });
    const answer = await ask("GET", leases);
    expect(answer.status).toBe(status);
    expect(JSON.parse(answer.text)).toMatchObject({ kind: "Status", code: status, reason });
    expect(answer.headers["retry-after"]).toBe(status === 429 ? "1" : undefined);
    expect(upstream.seen).toEqual([]);
    expect((await put()).status).toBe(200);
  });

  it("answers a watch with 200 and an ERROR event", async () => {
    using _ = proxy.errorEvent(watch, { status: 410 });
    const answer = await ask("GET", `${leases}?watch=true`);
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.text)).toMatchObject({
      type: "ERROR",
      object: { code: 410, reason: "Expired" },
    });
  });

  it("puts an ERROR event into a running watch, and ends it", async () => {
    using _ = proxy.errorEvent(watch, { status: 500, afterLines: 1 });
    const { state } = await watching();
    upstream.emit(event(1));
    await expect.poll(() => state.ended).toBe(true);
    const [first, second] = state.text.trimEnd().split("\n");
    expect(`${first}\n`).toBe(event(1));
    expect(JSON.parse(second ?? "")).toMatchObject({ type: "ERROR", object: { code: 500 } });
    await expect.poll(() => upstream.watches()).toBe(0);
  });

  it.each(["reset", "clean"] as const)("truncates a watch in the middle of a line (%s)", async (end) => {
    using _ = proxy.truncate(watch, { afterLines: 2, end });
    const { state } = await watching();
    upstream.emit(event(1).slice(0, 9));
    upstream.emit(event(1).slice(9) + event(2));
    await expect.poll(() => state.text).toBe(event(1) + event(2));
    upstream.emit(event(3));
    await expect
      .poll(() => (end === "clean" ? state.ended : state.error))
      .toBe(end === "clean" ? true : "ECONNRESET");
    expect(state.text.startsWith(event(1) + event(2))).toBe(true);
    expect(event(3).startsWith(state.text.slice(event(1).length + event(2).length))).toBe(true);
    expect(state.text.at(-1)).not.toBe("\n");
  });

  it("truncates an answer with a length", async () => {
    using _ = proxy.truncate({ verb: "list" });
    expect(await ask("GET", leases)).toMatchObject({ status: 200, text: "answ", error: "ECONNRESET" });
  });

  it("drops before forwarding: surely not applied", async () => {
    const fault = proxy.drop(write, { times: 1 });
    expect(await put()).toMatchObject({ status: 0, error: "ECONNRESET" });
    expect(upstream.seen).toEqual([]);
    expect(fault.hits).toBe(1);
    expect((await put()).status).toBe(200);
  });

  it("applies the write and loses the answer", async () => {
    using _ = proxy.loseAnswer(write, { times: 1 });
    expect(await put()).toMatchObject({ status: 0, error: "ECONNRESET" });
    expect(upstream.seen).toHaveLength(1);
    expect(await put()).toMatchObject({ status: 200, text: "answer 2\n" });
  });

  it("holds requests at a barrier until released", async () => {
    const gate = proxy.hold(write);
    const both = Promise.all([put("a"), put("b")]);
    await gate.arrived(2);
    expect(upstream.seen).toEqual([]);
    gate.release();
    expect((await both).map(({ status }) => status)).toEqual([200, 200]);
    const third = put("c");
    await gate.arrived();
    gate.heal();
    expect((await third).status).toBe(200);
    expect((await put("d")).status).toBe(200);
    expect(gate.hits).toBe(3);
  });

  it("holds the answer of a write that is applied", async () => {
    using gate = proxy.hold(write, { at: "answer" });
    const answer = put();
    await gate.arrived();
    expect(upstream.seen).toHaveLength(1);
    gate.release();
    expect((await answer).status).toBe(200);
  });

  it("delivers a held write late, after its client gave up", async () => {
    using gate = proxy.hold(write);
    const answer = put();
    await gate.arrived();
    proxy.wire.cut();
    expect((await answer).error).toBe("ECONNRESET");
    gate.release();
    await expect.poll(() => upstream.seen.length).toBe(1);
  });

  it("duplicates a request", async () => {
    using _ = proxy.duplicate(write, { times: 1 });
    expect(await put()).toMatchObject({ status: 200, text: "answer 2\n" });
    expect(upstream.seen).toHaveLength(2);
    expect(proxy.counts()).toEqual({ "update leases": 1 });
  });

  it("delays before and after", async () => {
    using _ = proxy.delay(write, { beforeMs: 30, afterMs: 30 });
    const start = performance.now();
    await put();
    expect(performance.now() - start).toBeGreaterThanOrEqual(55);
  });

  it("composes: the first fault is outermost", async () => {
    proxy.loseAnswer(write, { times: 1 });
    proxy.duplicate(write, { times: 1 });
    using inner = proxy.hold(write, { times: 1 });
    const answer = put();
    await inner.arrived();
    inner.release();
    await expect.poll(() => upstream.seen.length).toBe(1);
    await inner.arrived();
    inner.release();
    expect((await answer).error).toBe("ECONNRESET");
    expect(upstream.seen).toHaveLength(2);
  });

  it("chooses by name, pattern, predicate, skip and times", async () => {
    proxy.answer({ name: "a" }, { status: 409 });
    proxy.answer({ path: /leases\/b$/, method: "PUT" }, { status: 500 });
    proxy.answer({ when: (call) => call.name === "c" && call.body.toString() === "lease" }, { status: 503 });
    proxy.answer(
      { name: "d", namespace: "shop", verb: ["update", "patch"] },
      { status: 400 },
      { skip: 1, times: 1 },
    );
    expect(await status("a")).toBe(409);
    expect(await status("b")).toBe(500);
    expect(await status("c")).toBe(503);
    expect([await status("d"), await status("d"), await status("d")]).toEqual([200, 400, 200]);
    proxy.heal();
    expect([await status("a"), await status("b"), await status("c")]).toEqual([200, 200, 200]);
  });

  it("hits by chance, the same ones for the same seed", async () => {
    const first = await spoiled(7);
    expect(new Set(first)).toEqual(new Set([200, 500]));
    expect(await spoiled(7)).toEqual(first);
    expect(await spoiled(8)).not.toEqual(first);
  });

  it("breaks its clients' connections too, and heals them with everything else", async () => {
    const { state } = await watching();
    // On a connection that is there: none can be made into a hole.
    await put();
    proxy.wire.halfOpen("down");
    upstream.emit(event(1));
    const answer = put();
    await expect.poll(() => upstream.seen.length).toBe(3);
    expect(state.text).toBe("");
    proxy.heal();
    expect((await answer).status).toBe(200);
    await expect.poll(() => state.text).toBe(event(1));
  });
});

describe("certificates", () => {
  it("are refused when out of date", async () => {
    const old = makeCertificate({
      commonName: "old",
      names: ["127.0.0.1"],
      validFrom: new Date("2001-01-01T00:00:00Z"),
      validTo: new Date("2001-01-02T00:00:00Z"),
    });
    await using expired = await startHttpProxy({ target: "http://127.0.0.1:9", serve: old });
    const code = await new Promise((resolve) => {
      https
        .get(expired.url, { ca: expired.ca })
        .on("error", (error: NodeJS.ErrnoException) => resolve(error.code));
    });
    expect(code).toBe("CERT_HAS_EXPIRED");
  });
});
