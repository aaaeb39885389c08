import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import { makeCertificate } from "../../test/support/faultproxy/certificate.ts";
import { systemClock } from "./clock.ts";
import { makeHttpClient, NoAnswer } from "./httpclient.ts";

let folder: string;
const closers: (() => void)[] = [];
const file = (name: string): string => join(folder, name);

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-"));
});
afterEach(async () => {
  for (const close of closers.splice(0)) close();
  await rm(folder, { recursive: true });
});

/** An HTTPS server under an authority of its own, whose certificate stands in `ca.crt`. */
const serve = async (listener: RequestListener) => {
  const authority = makeCertificate({ commonName: "authority" });
  const { cert, key } = makeCertificate({ commonName: "server", names: ["127.0.0.1"], issuer: authority });
  await writeFile(file("ca.new"), authority.cert);
  await rename(file("ca.new"), file("ca.crt"));
  const sockets = new Set<Socket>();
  const server = createServer({ cert, key }, listener);
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as AddressInfo).port, sockets };
};

const clientOf = (port: number, more: { bearerFile?: string; clock?: typeof systemClock } = {}) => {
  const client = makeHttpClient({
    server: `https://127.0.0.1:${port}`,
    caFile: file("ca.crt"),
    clock: systemClock,
    ...more,
  });
  closers.push(() => client.close());
  return client;
};

const get = { method: "GET", path: "/x", timeoutMs: 5000 } as const;

const failure = async (sending: Promise<unknown>): Promise<NoAnswer> => {
  const error = await sending.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(NoAnswer);
  return error as NoAnswer;
};

describe("the JSON client", () => {
  it("sends JSON and gives back status, headers and body, on one kept connection", async () => {
    const { port, sockets } = await serve((request, response) => {
      let text = "";
      request.on("data", (chunk: Buffer) => (text += chunk.toString()));
      request.on("end", () => {
        response.writeHead(409, { "Content-Type": "application/problem+json", "Retry-After": "1" });
        response.end(JSON.stringify({ method: request.method, url: request.url, got: JSON.parse(text) }));
      });
    });
    const client = clientOf(port);
    for (let round = 0; round < 3; round++) {
      const answer = await client.send({ method: "POST", path: "/a?b=c", body: { d: "é" }, timeoutMs: 5000 });
      expect(answer).toMatchObject({
        status: 409,
        headers: { "retry-after": "1" },
        body: { method: "POST", url: "/a?b=c", got: { d: "é" } },
      });
    }
    expect(sockets.size).toBe(1);
  });

  it("has no body where the answer has none", async () => {
    const { port } = await serve((_request, response) => response.writeHead(204).end());
    expect(await clientOf(port).send(get)).toMatchObject({ status: 204, body: undefined });
  });

  it("reads a rotated token and a new CA again", async () => {
    const seen: (string | undefined)[] = [];
    const listener: RequestListener = (request, response) => {
      seen.push(request.headers.authorization);
      response.end("{}");
    };
    const first = await serve(listener);
    await writeFile(file("token"), "one\n");
    const client = clientOf(first.port, { bearerFile: file("token") });
    await client.send(get);
    await writeFile(file("token.new"), "another");
    await rename(file("token.new"), file("token"));
    await client.send(get);
    expect(seen).toEqual(["Bearer one", "Bearer another"]);

    // The files of the second server replace the first one's: a client of the first trusts it no more.
    await serve(listener);
    await failure(client.send(get));
  });

  it("sends at once, however many wait for their answers", async () => {
    const waiting: (() => void)[] = [];
    const { port } = await serve((request, response) => {
      if (request.url === "/x") response.end();
      else waiting.push(() => response.end());
    });
    const client = clientOf(port);
    const polls = Array.from({ length: 20 }, () => client.send({ ...get, path: "/poll" }));
    await expect.poll(() => waiting.length).toBe(20);
    expect(await client.send(get)).toMatchObject({ status: 200 });
    for (const answer of waiting) answer();
    await Promise.all(polls);
  });

  it("fails where there is no connection, no trust, or no time", async () => {
    const { port, sockets } = await serve(() => {});
    const unreached = clientOf(1);
    await failure(unreached.send(get));
    // A server that nobody vouches for never sees the request.
    await writeFile(file("ca.crt"), makeCertificate({ commonName: "stranger" }).cert);
    await failure(clientOf(port).send(get));
    await failure(clientOf(port).send(get, AbortSignal.abort()));
    expect(sockets.size).toBe(1);
  });

  it("knows that something may have arrived where the connection broke afterwards", async () => {
    const { port, sockets } = await serve((request, response) => {
      if (request.url === "/ok") response.end("{}");
      else request.socket.destroy();
    });
    const client = clientOf(port);
    await failure(client.send(get));
    // The same on a connection that was kept.
    await client.send({ ...get, path: "/ok" });
    await failure(client.send(get));
    expect(sockets.size).toBe(2);
  });

  it("gives up after its time, and when it is told to", async () => {
    const { port } = await serve(() => {});
    const clock = makeFakeClock();
    const client = clientOf(port, { clock });
    const late = failure(client.send({ ...get, timeoutMs: 300 }));
    await expect.poll(() => clock.pending()).toBe(1);
    await clock.advance(300);
    expect((await late).message).toContain("no answer within 300 ms");

    const told = new AbortController();
    const aborted = failure(client.send(get, told.signal));
    await expect.poll(() => clock.pending()).toBe(1);
    told.abort();
    expect((await aborted).message).toContain("aborted");
    expect(clock.pending()).toBe(0);
  });

  it.each([
    [
      "breaks off",
      (response: Parameters<RequestListener>[1]) => {
        response.writeHead(200, { "Content-Length": "100" });
        response.write("{");
        setImmediate(() => response.destroy());
      },
    ],
    ["is no JSON", (response: Parameters<RequestListener>[1]) => void response.end("<html>")],
    [
      "is far too large",
      (response: Parameters<RequestListener>[1]) => void response.end(`"${"x".repeat(2 ** 21)}"`),
    ],
  ])("takes an answer that %s for none", async (_name, answer) => {
    const { port } = await serve((_request, response) => answer(response));
    expect((await failure(clientOf(port).send(get))).message).toContain(String(port));
  });

  it("names the file that it cannot read, and refuses an address without TLS", async () => {
    const { port } = await serve(() => {});
    const error = await failure(clientOf(port, { bearerFile: file("missing") }).send(get));
    expect(error.message).toMatch(/cannot read the token file .*missing/);
    expect(() => makeHttpClient({ server: "http://127.0.0.1", clock: systemClock })).toThrow("https://");
  });
});
