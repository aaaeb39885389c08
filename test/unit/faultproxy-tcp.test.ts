import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { connect as tlsConnect, createServer as createTlsServer } from "node:tls";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { makeCertificate } from "../support/faultproxy/certificate.ts";
import { startTcpProxy, type TcpProxy } from "../support/faultproxy/tcp.ts";

/** A client or server side of one connection, with what it saw. */
const watched = (socket: Socket) => {
  const seen = { text: "", ended: false, error: "" };
  socket.on("data", (chunk: Buffer) => (seen.text += chunk.toString()));
  socket.on("end", () => (seen.ended = true));
  socket.on("error", (error: NodeJS.ErrnoException) => (seen.error = error.code ?? error.message));
  return { socket, seen };
};

const served: ReturnType<typeof watched>[] = [];
const server = createServer({ allowHalfOpen: true }, (socket) => {
  const peer = watched(socket);
  served.push(peer);
  socket.on("data", (chunk: Buffer) => socket.write(`echo ${chunk.toString()}`));
  socket.on("end", () => socket.end());
});
let proxy: TcpProxy;
const clients: Socket[] = [];

const client = (port = proxy.port) => {
  const socket = connect({ port, host: "127.0.0.1" });
  clients.push(socket);
  return watched(socket);
};
const talking = async () => {
  const one = client();
  one.socket.write("hello");
  await expect.poll(() => one.seen.text).toBe("echo hello");
  one.seen.text = "";
  return one;
};
/** Others come and go meanwhile, past the proxy: whatever could pass a loopback has passed it by then. */
const quiet = async () => {
  for (let round = 0; round < 3; round += 1) {
    const one = client((server.address() as AddressInfo).port);
    one.socket.end("past");
    await once(one.socket, "close");
  }
};

beforeEach(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy = await startTcpProxy({
    target: { host: "127.0.0.1", port: (server.address() as AddressInfo).port },
  });
});
afterEach(async () => {
  await proxy.close();
  for (const socket of clients.splice(0)) socket.destroy();
  for (const { socket } of served.splice(0)) socket.destroy();
  server.close();
  await once(server, "close");
});

describe("TCP proxy", () => {
  it("carries both ways, half-closes, and counts connections", async () => {
    const one = await talking();
    expect(proxy.connections()).toBe(1);
    one.socket.end("bye");
    await expect.poll(() => one.seen).toEqual({ text: "echo bye", ended: true, error: "" });
    await expect.poll(() => proxy.connections()).toBe(0);
    expect(proxy.accepted()).toBe(1);
  });

  it("carries more than its window in order", async () => {
    const sent = Buffer.alloc(3_000_000, "0123456789");
    const received: Buffer[] = [];
    const sink = createServer((socket) => {
      watched(socket).socket.on("data", (chunk) => received.push(chunk));
    });
    sink.listen(0, "127.0.0.1");
    await once(sink, "listening");
    await using other = await startTcpProxy({
      target: { host: "127.0.0.1", port: (sink.address() as AddressInfo).port },
    });
    client(other.port).socket.write(sent);
    await expect.poll(() => Buffer.concat(received).length, { timeout: 5000 }).toBe(sent.length);
    expect(Buffer.concat(received).equals(sent)).toBe(true);
    sink.close();
  });

  it("cuts: both ends see a reset, and a new connection works", async () => {
    const one = await talking();
    proxy.cut();
    await expect.poll(() => one.seen.error).toBe("ECONNRESET");
    await expect.poll(() => served[0]?.seen.error).toBe("ECONNRESET");
    await talking();
  });

  it("passes a reset by the target on to the client", async () => {
    const one = await talking();
    served[0]?.socket.resetAndDestroy();
    await expect.poll(() => one.seen.error).toBe("ECONNRESET");
  });

  it("resets a client whose target is not there", async () => {
    const gone = createServer().listen(0, "127.0.0.1");
    await once(gone, "listening");
    const { port } = gone.address() as AddressInfo;
    gone.close();
    await using other = await startTcpProxy({ target: { host: "127.0.0.1", port } });
    const one = client(other.port);
    await expect.poll(() => one.seen.error).toBe("ECONNRESET");
  });

  it("half-open: neither bytes nor FIN nor reset pass until it heals", async () => {
    const one = await talking();
    const other = await talking();
    using hole = proxy.halfOpen();
    one.socket.end("lost?");
    served[1]?.socket.resetAndDestroy();
    await quiet();
    expect(served[0]?.seen).toEqual({ text: "hello", ended: false, error: "" });
    expect(other.seen).toEqual({ text: "", ended: false, error: "" });
    hole.heal();
    await expect.poll(() => one.seen).toEqual({ text: "echo lost?", ended: true, error: "" });
    await expect.poll(() => other.seen.error).toBe("ECONNRESET");
  });

  it("half-open: a new connection opens, stays silent, and talks after the hole", async () => {
    using _ = proxy.halfOpen();
    const one = client();
    await once(one.socket, "connect");
    one.socket.write("hello");
    await quiet();
    expect(served.map(({ seen }) => seen.text)).not.toContain("hello");
    proxy.heal();
    await expect.poll(() => one.seen.text).toBe("echo hello");
  });

  it("one way only: the request is served, its answer lost with the connection", async () => {
    const one = await talking();
    proxy.halfOpen("down");
    one.socket.write("write");
    await expect.poll(() => served[0]?.seen.text).toBe("hellowrite");
    await quiet();
    expect(one.seen.text).toBe("");
    proxy.cut();
    await expect.poll(() => one.seen.error).toBe("ECONNRESET");
    expect(one.seen.text).toBe("");
  });

  it("one way only: requests stand still while answers pass", async () => {
    const one = await talking();
    using _ = proxy.halfOpen("up");
    one.socket.write("write");
    served[0]?.socket.write("news");
    await expect.poll(() => one.seen.text).toBe("news");
    expect(served[0]?.seen.text).toBe("hello");
  });

  it("delays each way, and forgets the delay when healed", async () => {
    const one = await talking();
    const fault = proxy.delay(40, { jitterMs: 10 });
    const start = performance.now();
    one.socket.write("slow");
    await expect.poll(() => one.seen.text, { interval: 5 }).toBe("echo slow");
    expect(performance.now() - start).toBeGreaterThanOrEqual(80);
    fault.heal();
    proxy.delay(3_600_000);
    one.socket.write("never?");
    await quiet();
    expect(one.seen.text).toBe("echo slow");
    proxy.heal();
    await expect.poll(() => one.seen.text).toBe("echo slowecho never?");
  });

  it("throttles by connection and way", async () => {
    const one = await talking();
    using _ = proxy.throttle(10_000, "down");
    const start = performance.now();
    served[0]?.socket.write("x".repeat(2_000));
    await expect.poll(() => one.seen.text.length, { interval: 5 }).toBe(2_000);
    expect(performance.now() - start).toBeGreaterThanOrEqual(140);
  });

  it("refuses new connections until healed, and leaves open ones alone", async () => {
    const one = await talking();
    const first = proxy.refuse();
    const second = proxy.refuse();
    const refused = client();
    await expect.poll(() => refused.seen.error).toBe("ECONNREFUSED");
    first.heal();
    first.heal();
    const still = client();
    await expect.poll(() => still.seen.error).toBe("ECONNREFUSED");
    one.socket.write("still");
    await expect.poll(() => one.seen.text).toBe("echo still");
    second.heal();
    await talking();
  });

  it("heals at the end of a block", async () => {
    const one = await talking();
    {
      using _ = proxy.halfOpen();
      one.socket.write("x");
    }
    await expect.poll(() => one.seen.text).toBe("echo x");
  });

  it("closes with open connections, a hole and a refusal, and leaves the port", async () => {
    await talking();
    proxy.halfOpen();
    proxy.refuse();
    await proxy.close();
    expect(proxy.connections()).toBe(0);
    const late = client();
    await expect.poll(() => late.seen.error).toBe("ECONNREFUSED");
  });

  it("passes TLS through", async () => {
    const certificate = makeCertificate({ commonName: "server", names: ["server.test"] });
    const secure = createTlsServer(certificate, (socket) => socket.end("secret"));
    secure.listen(0, "127.0.0.1");
    await once(secure, "listening");
    await using other = await startTcpProxy({
      target: { host: "127.0.0.1", port: (secure.address() as AddressInfo).port },
    });
    const { seen } = watched(
      tlsConnect({ port: other.port, host: "127.0.0.1", ca: certificate.cert, servername: "server.test" }),
    );
    await vi.waitFor(() => expect(seen).toEqual({ text: "secret", ended: true, error: "" }));
    secure.close();
  });
});
