import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttp, type RequestListener } from "node:http";
import { createServer as createHttps, type ServerOptions } from "node:https";
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { settle } from "../../test/support/clock.ts";
import { makeCertificate } from "../../test/support/faultproxy/certificate.ts";
import { systemClock } from "../runtime/clock.ts";
import { loadKubeConfig } from "./config.ts";
import { TransportError } from "./errors.ts";
import { makeTransport, type RequestCount } from "./transport.ts";
import type { HttpRequest } from "./types.ts";

const folder = mkdtempSync(join(tmpdir(), "transport-"));
afterAll(() => rmSync(folder, { recursive: true }));
const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

const ca = makeCertificate({ commonName: "ca" });
const serving = makeCertificate({ commonName: "server", names: ["127.0.0.1", "localhost"], issuer: ca });

const listen = async (server: Server): Promise<number> => {
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
};
const https = (handler: (...given: Parameters<RequestListener>) => unknown, options: ServerOptions = {}) =>
  listen(createHttps({ ...serving, ...options }, (request, response) => void handler(request, response)));

let files = 0;
const connect = (server: string, options: { cluster?: object; user?: object; timeoutMs?: number } = {}) => {
  const path = join(folder, `config-${files++}`);
  writeFileSync(
    path,
    stringify({
      "current-context": "x",
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      clusters: [
        {
          name: "c",
          cluster: {
            server,
            "certificate-authority-data": Buffer.from(ca.cert).toString("base64"),
            ...options.cluster,
          },
        },
      ],
      users: [{ name: "u", user: options.user ?? {} }],
    }),
  );
  const counts: RequestCount[] = [];
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path }, systemClock),
    clock: systemClock,
    onRequest: (count) => counts.push(count),
    ...(options.timeoutMs !== undefined && { timeoutMs: options.timeoutMs }),
  });
  open.push(() => transport.close());
  return { transport, counts, path };
};

const get: HttpRequest = { method: "GET", path: "/x", verb: "get", resource: "leases" };
const put: HttpRequest = { method: "PUT", path: "/x", body: "{}", verb: "update", resource: "leases" };

const all = async (lines: AsyncIterable<string>): Promise<string[]> => {
  const read: string[] = [];
  for await (const line of lines) read.push(line);
  return read;
};

const failure = async (promise: Promise<unknown>): Promise<TransportError> => {
  try {
    await promise;
  } catch (error) {
    expect(error).toBeInstanceOf(TransportError);
    if (error instanceof TransportError) {
      expect(error.message).not.toContain("\n");
      return error;
    }
  }
  return expect.unreachable("it was answered");
};

const never: RequestListener = (_request, response) => response.end("{}");

describe("a server that cannot be used is told in one line, and nothing was sent", () => {
  it.each<[string, () => Promise<[server: string, options?: object]>, string, RegExp]>([
    [
      "expired certificate",
      async () => {
        const old = makeCertificate({
          commonName: "s",
          names: ["127.0.0.1"],
          issuer: ca,
          validTo: new Date(Date.now() - 1000),
        });
        return [`https://127.0.0.1:${await https(never, { cert: old.cert, key: old.key })}`];
      },
      "bad_config",
      /certificate out of its time .*clusters\[c\]\.cluster\.server/,
    ],
    [
      "untrusted CA",
      async () => {
        const other = makeCertificate({
          commonName: "other",
          names: ["127.0.0.1"],
          issuer: makeCertificate({ commonName: "other ca" }),
        });
        return [`https://127.0.0.1:${await https(never, { cert: other.cert, key: other.key })}`];
      },
      "bad_config",
      /not signed by the trusted CA .*clusters\[c\]\.cluster\.certificate-authority/,
    ],
    [
      "no CA at all",
      async () => [
        `https://127.0.0.1:${await https(never)}`,
        { cluster: { "certificate-authority-data": undefined } },
      ],
      "bad_config",
      /certificate-authority/,
    ],
    [
      "certificate for another name",
      async () => {
        const other = makeCertificate({ commonName: "s", names: ["example.com"], issuer: ca });
        return [`https://127.0.0.1:${await https(never, { cert: other.cert, key: other.key })}`];
      },
      "bad_config",
      /for another name .*tls-server-name/,
    ],
    [
      "plain HTTP where HTTPS is asked for",
      async () => [`https://127.0.0.1:${await listen(createHttp(never))}`],
      "bad_config",
      /does not speak TLS, perhaps plain HTTP: check scheme and port in .*cluster\.server/,
    ],
    [
      "wrong port",
      async () => {
        const server = createTcp();
        const port = await listen(server);
        server.close();
        return [`https://127.0.0.1:${port}`];
      },
      "unreachable",
      /nothing listens there: .*cluster\.server/,
    ],
    [
      "unknown name",
      async () => ["https://no-such-host.invalid:6443"],
      "unreachable",
      /no-such-host\.invalid does not resolve/,
    ],
    [
      "silence at the handshake",
      async () => [`https://127.0.0.1:${await listen(createTcp())}`, { timeoutMs: 100 }],
      "unreachable",
      /did not answer within 100 ms/,
    ],
  ])("%s", async (_name, make, code, line) => {
    const [server, options] = await make();
    const { transport, counts } = connect(server, options);
    const error = await failure(transport.request(put));
    expect(error).toMatchObject({ code, sent: false });
    expect(error.message).toMatch(line);
    expect(counts).toMatchObject([{ verb: "update", resource: "leases", code: "none" }]);
    const watching = await failure(transport.open({ ...get, verb: "watch" }, new AbortController().signal));
    expect(watching).toMatchObject({ code, sent: false });
  });

  it("HTTPS where plain HTTP is asked for", async () => {
    const port = await listen(
      createHttp((_request, response) =>
        response.writeHead(400).end("Client sent an HTTP request to an HTTPS server.\n"),
      ),
    );
    const { transport } = connect(`http://127.0.0.1:${port}`);
    const error = await failure(transport.request(get));
    expect(error.code).toBe("bad_config");
    expect(error.message).toMatch(/write https in .*cluster\.server/);
  });

  it("something that speaks another language", async () => {
    const port = await listen(createTcp((socket) => socket.end("-ERR unknown command\r\n")));
    const error = await failure(connect(`http://127.0.0.1:${port}`).transport.request(get));
    expect(error.code).toBe("bad_answer");
    expect(error.message).toMatch(/does not speak HTTP/);
  });

  it("a client certificate that the server's TLS refuses", async () => {
    const port = await https(never, { requestCert: true, rejectUnauthorized: true, ca: [ca.cert] });
    const error = await failure(connect(`https://127.0.0.1:${port}`).transport.request(get));
    expect(error.message).toMatch(/client-certificate|other side closed|ECONNRESET|socket/);
  });
});

describe("requests", () => {
  it("share a connection, and are counted", async () => {
    let connections = 0;
    const server = createHttps(serving, (_request, response) => response.end("{}"));
    server.on("secureConnection", () => connections++);
    const { transport, counts } = connect(`https://127.0.0.1:${await listen(server)}`);
    for (let i = 0; i < 5; i++)
      expect(await transport.request(put)).toMatchObject({ status: 200, body: "{}" });
    // One that has just answered is not free again within the same turn of the event loop.
    expect(connections).toBeLessThanOrEqual(2);
    expect(counts).toHaveLength(5);
    expect(counts[0]).toMatchObject({ verb: "update", resource: "leases", code: "200" });
  });

  it("keep the path of a server below a prefix", async () => {
    const port = await https((request, response) => response.end(request.url));
    const { transport } = connect(`https://127.0.0.1:${port}/k8s/clusters/a/`);
    expect((await transport.request({ ...get, path: "/api/v1/pods?limit=1" })).body).toBe(
      "/k8s/clusters/a/api/v1/pods?limit=1",
    );
  });

  it("that no answer came to were sent, whatever ended them", async () => {
    const port = await https((request, response) => {
      if (request.headers["x"] === "never") return;
      if (request.method === "PUT") request.socket.destroy();
      else response.writeHead(200, { "content-length": "100" }).write("half", () => request.socket.destroy());
    });
    const { transport, counts } = connect(`https://127.0.0.1:${port}`);
    expect(await failure(transport.request(put))).toMatchObject({ sent: true, code: "unreachable" });
    expect(await failure(transport.request(get))).toMatchObject({ sent: true, code: "unreachable" });
    expect(counts.map(({ code }) => code)).toEqual(["none", "none"]);
  });

  it("that ran out of time take their connection down and poison no later one", async () => {
    let hang = true;
    let closed = 0;
    const server = createHttps(serving, (_request, response) => {
      if (!hang) response.end("{}");
    });
    server.on("secureConnection", (socket) => socket.on("close", () => closed++));
    const { transport } = connect(`https://127.0.0.1:${await listen(server)}`, { timeoutMs: 1_000 });
    expect(await failure(transport.request(put))).toMatchObject({ sent: true, code: "unreachable" });
    await expect.poll(() => closed).toBe(1);
    hang = false;
    expect(await transport.request(put)).toMatchObject({ status: 200 });
  });

  it("leave idle connections that went silent behind after the first of them ran out of time", async () => {
    const silent = new WeakSet<object>();
    const sockets: object[] = [];
    const held: (() => void)[] = [];
    const server = createHttps(serving, (request, response) => {
      if (silent.has(request.socket)) return;
      if (held.length < 4) held.push(() => response.end("{}"));
      else response.end("{}");
      if (held.length === 4) for (const go of held) go();
    });
    server.on("secureConnection", (socket) => sockets.push(socket));
    const { transport } = connect(`https://127.0.0.1:${await listen(server)}`, { timeoutMs: 1_500 });
    await Promise.all([1, 2, 3, 4].map(() => transport.request(put)));
    expect(sockets).toHaveLength(4);
    await settle();
    for (const socket of sockets) silent.add(socket);
    await failure(transport.request(put));
    for (let i = 0; i < 4; i++) expect(await transport.request(put)).toMatchObject({ status: 200 });
  });

  it("take as long as they need while the answer moves on", async () => {
    const port = await https((_request, response) => {
      let left = 8;
      const drip = () => (left-- > 0 ? response.write("x", () => setTimeout(drip, 200)) : response.end());
      drip();
    });
    const { transport } = connect(`https://127.0.0.1:${port}`, { timeoutMs: 1_000 });
    expect((await transport.request(get)).body).toBe("xxxxxxxx");
  });

  it("end with their caller: unsent before, sent after", async () => {
    const arrived = Promise.withResolvers<void>();
    const port = await https(() => arrived.resolve());
    const { transport } = connect(`https://127.0.0.1:${port}`);
    expect(await failure(transport.request(put, AbortSignal.abort()))).toMatchObject({ sent: false });
    const stop = new AbortController();
    const pending = failure(transport.request(put, stop.signal));
    await arrived.promise;
    stop.abort();
    expect(await pending).toMatchObject({ sent: true });
  });

  it("are sent once more after a 401 when the token was rotated, and only then", async () => {
    const token = join(folder, "token");
    writeFileSync(token, "one");
    const seen: (string | undefined)[] = [];
    const port = await https((request, response) => {
      seen.push(request.headers.authorization);
      // The file changes between the look at it and the answer: what the look alone would miss.
      if (request.headers.authorization === "Bearer one") writeFileSync(token, "two!");
      response.writeHead(request.headers.authorization === "Bearer two!" ? 200 : 401).end("{}");
    });
    const { transport, counts } = connect(`https://127.0.0.1:${port}`, { user: { tokenFile: token } });
    expect(await transport.request(put)).toMatchObject({ status: 200 });
    expect(counts.map(({ code }) => code)).toEqual(["401", "200"]);
    writeFileSync(token, "three");
    expect(await transport.request(put)).toMatchObject({ status: 401 });
    expect(seen).toEqual(["Bearer one", "Bearer two!", "Bearer three"]);
  });

  it("are sent once more after a 401 with what the plugin gives when it is asked again", async () => {
    const counter = join(folder, "asked");
    const script = `echo x >> ${counter}; printf '{"status":{"token":"t%s"}}' $(wc -l < ${counter})`;
    const port = await https((request, response) =>
      response.writeHead(request.headers.authorization === "Bearer t1" ? 401 : 200).end("{}"),
    );
    const user = { exec: { command: "sh", args: ["-c", script] } };
    const { transport, counts } = connect(`https://127.0.0.1:${port}`, { user });
    expect(await transport.request(put)).toMatchObject({ status: 200 });
    expect(counts.map(({ code }) => code)).toEqual(["401", "200"]);
  });

  it("are not held up for ever by a plugin that hangs", async () => {
    const port = await https((_request, response) => response.end("{}"));
    const user = { exec: { command: "sleep", args: ["5"] } };
    const { transport } = connect(`https://127.0.0.1:${port}`, { user, timeoutMs: 200 });
    expect(await failure(transport.request(put))).toMatchObject({ sent: false, code: "unreachable" });
  });
});

describe("watches", () => {
  const watch: HttpRequest = { ...get, verb: "watch" };

  it("give whole lines, whatever pieces they came in, and the rest at an end in order", async () => {
    const port = await https(async (_request, response) => {
      const bytes = Buffer.from('{"a":"ä"}\n{"b":"€"}\n\n{"c":1}');
      for (const byte of bytes) {
        response.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
    const { transport, counts } = connect(`https://127.0.0.1:${port}`);
    const answer = await transport.open(watch, new AbortController().signal);
    expect(await all(answer.lines)).toEqual(['{"a":"ä"}', '{"b":"€"}', '{"c":1}']);
    expect(counts).toMatchObject([{ verb: "watch", code: "200" }]);
  });

  it("throw when they are cut, and drop the half line", async () => {
    const port = await https((request, response) => {
      response.write('{"a":1}\n{"b"', () => request.socket.destroy());
    });
    const answer = await connect(`https://127.0.0.1:${port}`).transport.open(
      watch,
      new AbortController().signal,
    );
    const lines: string[] = [];
    await failure(
      (async () => {
        for await (const line of answer.lines) lines.push(line);
      })(),
    );
    expect(lines).toEqual(['{"a":1}']);
  });

  it("have their own connections, outlive the time limit, and end with their signal", async () => {
    let closed = 0;
    const server = createHttps(serving, (request, response) => {
      if (request.url === "/watch") response.write('{"a":1}\n');
      else response.end("{}");
    });
    let connections = 0;
    server.on("secureConnection", (socket) => {
      connections++;
      socket.on("close", () => closed++);
    });
    const { transport } = connect(`https://127.0.0.1:${await listen(server)}`, { timeoutMs: 1_000 });
    const stop = new AbortController();
    const answer = await transport.open({ ...watch, path: "/watch" }, stop.signal);
    const reading = answer.lines[Symbol.asyncIterator]();
    expect(await reading.next()).toEqual({ done: false, value: '{"a":1}' });
    await transport.request(get);
    expect(connections).toBe(2);
    const next = failure(reading.next());
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    stop.abort();
    expect(await next).toMatchObject({ message: "the watch was stopped" });
    await expect.poll(() => closed).toBe(1);
  });

  it("hold the server back while nobody reads", async () => {
    const line = `${"x".repeat(100_000)}\n`;
    let written = 0;
    const port = await https(async (_request, response) => {
      for (let i = 0; i < 400; i++) {
        if (!response.write(line)) await once(response, "drain");
        written++;
      }
      response.end();
    });
    const answer = await connect(`https://127.0.0.1:${port}`).transport.open(
      watch,
      new AbortController().signal,
    );
    let before = -1;
    await expect.poll(() => before === (before = written), { interval: 200 }).toBe(true);
    expect(written).toBeLessThan(400);
    expect(await all(answer.lines)).toHaveLength(400);
  });

  it("give the body of an answer that is no watch", async () => {
    const port = await https((_request, response) => response.writeHead(410).end('{"kind":"Status"}'));
    const answer = await connect(`https://127.0.0.1:${port}`).transport.open(
      watch,
      new AbortController().signal,
    );
    expect(answer).toMatchObject({ status: 410, body: '{"kind":"Status"}' });
    expect(await all(answer.lines)).toEqual([]);
  });
});
