import { createServer } from "node:https";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { problem, problemType, type ProblemCode, type ProblemExtras } from "../../../src/api/problem.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";

/** What one call is answered with; `never` leaves it without an answer. */
export type Reply = { status: number; body: unknown } | "never";

export interface Received {
  verb: string;
  resource: string;
  bearer: string | undefined;
  body: Record<string, unknown>;
}

/** A coordinator over TLS that says what a test lets it say. */
export interface ScriptedCoordinator extends AsyncDisposable {
  /** `https://127.0.0.1:PORT`. */
  server: string;
  caFile: string;
  tokenFile: string;
  /** A folder that goes away with it. */
  folder: string;
  calls: Received[];
  count: (verb: string) => number;
  /** By verb: `acquire`, `renew`, `release`, `force-release`. As it stands everything succeeds. */
  on: Record<string, (call: Received) => Reply | Promise<Reply>>;
}

export const ok = (body: unknown): Reply => ({ status: 200, body });

export const refusal = (code: ProblemCode, extras: ProblemExtras = {}): Reply => {
  const body = problem(code, `${code}, says the test`, extras);
  return { status: body.status, body };
};

/** Renewed often, so that a refusal is met soon; long, so that a slow machine loses nothing. As the wire has it. */
const termMs = { leaseDurationMs: 9000, renewAfterMs: 300 };
/** For those who wait for the deadline. */
export const shortMs = { leaseDurationMs: 2500, renewAfterMs: 500 };

export const granted = (token: string, more: Record<string, unknown> = {}): Reply =>
  ok({
    resource: "shop/orders",
    token,
    attempt: "0f8fad5b-d9cb-469f-a165-70867728950e",
    holder: "user:abc/0f8fad5b-d9cb-469f-a165-70867728950e",
    ...termMs,
    guarantee: "Advisory",
    advanced: false,
    ...more,
  });

const bodyOf = async (request: IncomingMessage): Promise<Record<string, unknown>> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return JSON.parse(Buffer.concat(chunks).toString("utf8") || "{}") as Record<string, unknown>;
};

export const startCoordinator = async (): Promise<ScriptedCoordinator> => {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-cli-"));
  const authority = makeCertificate({ commonName: "authority" });
  const certificate = makeCertificate({ commonName: "server", names: ["127.0.0.1"], issuer: authority });
  await writeFile(join(folder, "ca.crt"), authority.cert);
  await writeFile(join(folder, "token"), "a-bearer\n");
  const calls: Received[] = [];
  const on: ScriptedCoordinator["on"] = {
    acquire: () => granted("42"),
    renew: () => ok(termMs),
    release: () => ok({ released: true }),
    "force-release": () => ok({ released: true, holder: "user:abc/other", token: "42" }),
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const [, , , namespace, , name, verb = ""] = (request.url ?? "").split("/");
    const call: Received = {
      verb,
      resource: `${namespace}/${name}`,
      bearer: request.headers.authorization?.replace(/^Bearer /, ""),
      body: await bodyOf(request),
    };
    calls.push(call);
    const reply = await (on[verb]?.(call) ?? refusal("invalid_request"));
    if (reply === "never") return;
    const type = reply.status === 200 ? "application/json" : problemType;
    response.writeHead(reply.status, { "content-type": type }).end(JSON.stringify(reply.body));
  };

  const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    server: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    caFile: join(folder, "ca.crt"),
    tokenFile: join(folder, "token"),
    folder,
    calls,
    count: (verb) => calls.filter((call) => call.verb === verb).length,
    on,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await rm(folder, { recursive: true, force: true });
    },
  };
};
