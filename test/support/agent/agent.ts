/** The real agent process on ports of its own, with folders that a restarted one finds again. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { expect } from "vitest";

const script = join(import.meta.dirname, "../../../bin/fenceline.js");

export interface AgentOptions {
  server: string;
  caFile: string;
  tokenFile: string;
  /** Of this pod: its volumes outlive its processes. */
  folder: string;
  resources?: string;
  namespace?: string;
  env?: Record<string, string>;
  /** Of Node, before the script. */
  nodeArgs?: readonly string[];
}

export interface Reply {
  status: number;
  type: string | undefined;
  body: Record<string, unknown>;
  text: string;
}

export interface AgentProcess {
  child: ChildProcess;
  pid: number;
  log(): string;
  /** Exit code, or the signal that ended it. */
  ended: Promise<number | NodeJS.Signals>;
  localPort: number;
  probePort: number;
  get(path: string): Promise<Reply>;
  post(path: string): Promise<Reply>;
  /** Status of a probe. */
  probe(path: string): Promise<number>;
  /** Resolves when the resource is in `state`; with the holding then. */
  in(state: string, name?: string): Promise<Record<string, unknown>>;
  /** The content of a file that the app sees; undefined where there is none. */
  file(name: string): Promise<string | undefined>;
}

const live = new Set<ChildProcess>();

/** Ends what a failed test left running, frozen or not. */
export const endAgents = (): void => {
  for (const child of live) child.kill("SIGKILL");
};

const pool = new Agent({ keepAlive: false });

const call = (port: number, method: string, path: string): Promise<Reply> => {
  const { promise, resolve, reject } = Promise.withResolvers<Reply>();
  const asked = request({ agent: pool, host: "127.0.0.1", port, method, path }, (response) => {
    let text = "";
    response.setEncoding("utf8");
    response.on("data", (part: string) => (text += part));
    response.on("error", reject);
    response.on("end", () => {
      const type = response.headers["content-type"];
      const isJson = type?.includes("json") === true;
      const body = isJson ? (JSON.parse(text) as Record<string, unknown>) : {};
      resolve({ status: response.statusCode ?? 0, type, body, text });
    });
  });
  asked.on("error", reject);
  asked.end();
  return promise;
};

export const startAgent = async (options: AgentOptions): Promise<AgentProcess> => {
  const { folder, namespace = "shop", resources = "orders" } = options;
  await mkdir(folder, { recursive: true });
  const child = spawn(process.execPath, [...(options.nodeArgs ?? []), script, "agent"], {
    env: {
      PATH: process.env["PATH"],
      FENCELINE_SERVER: options.server,
      FENCELINE_CA_FILE: options.caFile,
      FENCELINE_TOKEN_FILE: options.tokenFile,
      FENCELINE_NAMESPACE: namespace,
      FENCELINE_RESOURCES: resources,
      FENCELINE_DIR: join(folder, "app"),
      FENCELINE_STATE_DIR: join(folder, "state"),
      FENCELINE_LOCAL_PORT: "0",
      FENCELINE_PROBE_PORT: "0",
      ...options.env,
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  live.add(child);
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const ended = once(child, "close").then(([code, signal]) => {
    live.delete(child);
    return (code ?? signal) as number | NodeJS.Signals;
  });
  const serving = (): string | undefined => log.split("\n").find((line) => line.includes('"msg":"serving"'));
  await expect.poll(() => serving() !== undefined || child.exitCode !== null, { timeout: 20_000 }).toBe(true);
  const line = serving();
  if (line === undefined) throw new Error(`ended: ${(await ended, log)}`);
  const { port, probePort } = JSON.parse(line) as { port: number; probePort: number };
  const get = (path: string) => call(port, "GET", path);
  return {
    child,
    pid: child.pid ?? 0,
    log: () => log,
    ended,
    localPort: port,
    probePort,
    get,
    post: (path) => call(port, "POST", path),
    probe: async (path) => (await call(probePort, "GET", path)).status,
    async in(state, name = "orders") {
      const holding = async () => (await get(`/v1/holdings/${name}`)).body;
      await expect
        .poll(async () => (await holding())["state"], { timeout: 20_000, interval: 20 })
        .toBe(state);
      return holding();
    },
    file: (name) => readFile(join(folder, "app", name), "utf8").catch(() => undefined),
  };
};
