import http2 from "node:http2";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type HttpProxy, startHttpProxy } from "../support/faultproxy/http.ts";
import { admin, authority, event, leases, startStandIn, watch, write } from "./faultproxy-standin.ts";

describe("HTTP proxy over HTTP/2", () => {
  let upstream: Awaited<ReturnType<typeof startStandIn>>;
  let proxy: HttpProxy;
  let session: http2.ClientHttp2Session;

  beforeEach(async () => {
    upstream = await startStandIn();
    proxy = await startHttpProxy({
      target: upstream.url,
      tls: { ca: authority.cert, cert: admin.cert, key: admin.key },
    });
    session = http2.connect(proxy.url, { ca: proxy.ca });
    session.on("error", () => undefined);
  });
  afterEach(async () => {
    session.destroy();
    await proxy.close();
    upstream.close();
  });

  const stream = (method: string, path: string, body = "") => {
    const state = { status: 0, text: "", code: 0, closed: false };
    const request = session.request({ ":method": method, ":path": path, authorization: "Bearer two" });
    request.on("response", (headers) => (state.status = headers[":status"] ?? 0));
    request.on("data", (chunk: Buffer) => (state.text += chunk.toString()));
    request.on("error", () => undefined);
    request.on("close", () => Object.assign(state, { code: request.rstCode, closed: true }));
    if (body === "") request.end();
    else request.end(body);
    return { state, request };
  };
  const closed = async (one: ReturnType<typeof stream>) => {
    await expect.poll(() => one.state.closed).toBe(true);
    return one.state;
  };

  it("forwards, counts and streams", async () => {
    expect(await closed(stream("PUT", `${leases}/orders`, "body"))).toMatchObject({
      status: 200,
      text: "answer 1\n",
    });
    expect(upstream.seen[0]).toMatchObject({ body: "body", user: "Bearer two" });
    const running = stream("GET", `${leases}?watch=true`);
    await expect.poll(() => running.state.status).toBe(200);
    upstream.emit(event(1));
    await expect.poll(() => running.state.text).toBe(event(1));
    expect(proxy.counts()).toEqual({ "update leases": 1, "watch leases": 1 });
    running.request.close(http2.constants.NGHTTP2_CANCEL);
    await expect.poll(() => upstream.watches()).toBe(0);
  });

  it("resets one stream, not its neighbours; a cut ends them all", async () => {
    const running = stream("GET", `${leases}?watch=true`);
    await expect.poll(() => running.state.status).toBe(200);
    proxy.loseAnswer(write, { times: 1 });
    expect(await closed(stream("PUT", `${leases}/orders`))).toMatchObject({
      status: 0,
      code: http2.constants.NGHTTP2_INTERNAL_ERROR,
    });
    expect(upstream.seen).toHaveLength(2);
    expect(running.state.closed).toBe(false);
    proxy.wire.cut();
    await closed(running);
  });

  it("truncates a stream in the middle of a line", async () => {
    proxy.truncate(watch, { afterLines: 1 });
    const running = stream("GET", `${leases}?watch=true`);
    await expect.poll(() => running.state.status).toBe(200);
    upstream.emit(event(1) + event(2));
    const { text, code } = await closed(running);
    expect(code).toBe(http2.constants.NGHTTP2_INTERNAL_ERROR);
    expect(text.startsWith(event(1))).toBe(true);
    expect(text.length).toBeGreaterThan(event(1).length);
    expect(text.at(-1)).not.toBe("\n");
  });
});
