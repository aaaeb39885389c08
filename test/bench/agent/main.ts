/**
 * What an agent costs beside every worker: memory after many renewals over TLS against a bare Node of the same version,
 * growth, the share of ten agents on one machine, and how many `check`s it answers.
 *
 * The agent is the built one, as in the image. A preload makes its timer between two renewals short; all else is as
 * shipped. FENCELINE_LONG goes on to 50,000 renewals.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { table } from "../support.ts";

const root = path.join(import.meta.dirname, "../../..");
const folder = mkdtempSync(path.join(tmpdir(), "fenceline-agent-bench-"));
const file = (name: string) => path.join(folder, name);
const children = new Set<ChildProcess>();

const warmMany = 5000;
const longMany = process.env["FENCELINE_LONG"] === undefined ? 10_000 : 50_000;

const until = async (what: () => boolean | Promise<boolean>): Promise<void> => {
  while (!(await what())) await new Promise((resolve) => setTimeout(resolve, 20));
};

/** Terms of 60 s, renewed every 20 s: what the preload shortens. */
const startCoordinator = async () => {
  const certificate = makeCertificate({ commonName: "coordinator", names: ["127.0.0.1"] });
  writeFileSync(file("ca.crt"), certificate.cert);
  writeFileSync(file("token"), "a-bearer".repeat(100));
  const term = { leaseDurationMs: 60_000, renewAfterMs: 20_000 };
  const grant = { token: "42", holder: "pod:1/2", guarantee: "Fenced", advanced: true, ...term };
  let renewals = 0;
  const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
    request.resume();
    const isRenewal = request.url?.endsWith("/renew") === true;
    if (isRenewal) renewals += 1;
    const body = request.url?.endsWith("/acquire") === true ? grant : isRenewal ? term : { released: true };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    server,
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    renewals: () => renewals,
    reset: () => (renewals = 0),
  };
};

const start = (args: readonly string[], env: Record<string, string> = {}) => {
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  children.add(child);
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  return { child, pid: child.pid ?? 0, log: () => log };
};

const stop = async ({ child }: { child: ChildProcess }): Promise<void> => {
  child.kill("SIGKILL");
  await until(() => child.exitCode !== null || child.signalCode !== null);
  children.delete(child);
};

const field = (text: string, name: string): number =>
  Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? Number.NaN) / 1024;
const rss = (pid: number): number => field(readFileSync(`/proc/${pid}/status`, "utf8"), "VmRSS");
const pss = (pid: number): number => field(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"), "Pss");
const mb = (value: number): string => `${value.toFixed(1)} MB`;

const build = (): string => {
  execFileSync("tsc", ["-p", path.join(root, "tsconfig.build.json"), "--outDir", file("dist")], {
    cwd: root,
  });
  writeFileSync(file("package.json"), JSON.stringify({ type: "module", version: "0.0.0" }));
  writeFileSync(
    file("agent.mjs"),
    `import { main } from ${JSON.stringify(file("dist/main.js"))}; await main();`,
  );
  writeFileSync(
    file("quick.mjs"),
    `const real = setTimeout;
     globalThis.setTimeout = (fire, ms, ...more) => real(fire, ms > 15_000 && ms <= 20_000 ? 2 : ms, ...more);`,
  );
  return file("agent.mjs");
};

const agent = (script: string, url: string, name: string, quick: boolean, options: string) => {
  const preload = quick ? ["--import", file("quick.mjs")] : [];
  return start([...preload, script, "agent"], {
    NODE_OPTIONS: options,
    FENCELINE_SERVER: url,
    FENCELINE_CA_FILE: file("ca.crt"),
    FENCELINE_TOKEN_FILE: file("token"),
    FENCELINE_NAMESPACE: "shop",
    FENCELINE_RESOURCES: "orders",
    FENCELINE_DIR: file(`${name}/app`),
    FENCELINE_STATE_DIR: file(`${name}/state`),
    FENCELINE_LOCAL_PORT: "0",
    FENCELINE_PROBE_PORT: "0",
  });
};

const bareRss = async (): Promise<number> => {
  writeFileSync(file("bare.cjs"), "setInterval(() => {}, 1000);");
  const bare = start([file("bare.cjs")]);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const size = rss(bare.pid);
  await stop(bare);
  return size;
};

/** Seconds of CPU that a process has used. */
const cpuSeconds = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
};

/** Checks per second over 8 kept connections, for 3 s: by the clock, and by the agent's own CPU. */
const checkRate = async (pid: number, port: number) => {
  const pool = new Agent({ keepAlive: true, maxSockets: 8 });
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const asked = request({ agent: pool, port, path: "/v1/holdings/orders/check" }, (response) => {
        response.resume().on("end", resolve);
      });
      asked.on("error", reject).end();
    });
  const begun = performance.now();
  const used = cpuSeconds(pid);
  let answered = 0;
  const worker = async () => {
    while (performance.now() - begun < 3000) {
      await one();
      answered += 1;
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  pool.destroy();
  return {
    perSecond: Math.round(answered / ((performance.now() - begun) / 1000)),
    perCpuSecond: Math.round(answered / (cpuSeconds(pid) - used)),
  };
};

const portOf = async (run: { log(): string }): Promise<number> => {
  await until(() => run.log().includes('"msg":"serving"'));
  const line = run
    .log()
    .split("\n")
    .find((text) => text.includes('"msg":"serving"'));
  return (JSON.parse(line ?? "{}") as { port: number }).port;
};

try {
  const script = build();
  const coordinator = await startCoordinator();
  const bare = await bareRss();
  const rows: string[][] = [];
  for (const [label, options] of [
    ["as it is", ""],
    ["young generation of 1 MB", "--max-semi-space-size=1"],
  ] as const) {
    coordinator.reset();
    const run = agent(script, coordinator.url, label.replaceAll(/\W/g, "-"), true, options);
    await until(() => coordinator.renewals() >= warmMany);
    const warm = rss(run.pid);
    await until(() => coordinator.renewals() >= longMany);
    const late = rss(run.pid);
    rows.push([label, mb(warm), (warm / bare).toFixed(2), mb(late - warm)]);
    await stop(run);
  }
  console.log(`bare Node ${process.version}: ${mb(bare)}; goal ≤ 1.45, stretch 1.25`);
  table(["agent", `RSS after ${warmMany}`, "× bare", `growth to ${longMany}`], rows);

  const ten = Array.from({ length: 10 }, (_, index) =>
    agent(script, coordinator.url, `ten-${index}`, false, ""),
  );
  const ports = await Promise.all(ten.map(portOf));
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const shares = ten.map(({ pid }) => pss(pid));
  console.log(`PSS of ten agents: ${mb(shares.reduce((sum, share) => sum + share, 0) / 10)} each`);
  const rate = await checkRate(ten[0]?.pid ?? 0, ports[0] ?? 0);
  console.log(
    `check: ${rate.perSecond}/s asked by one Node process, ${rate.perCpuSecond}/s of the agent's CPU (goal ≥ 10,000)`,
  );
  await Promise.all(ten.map(stop));
  coordinator.server.close();
  coordinator.server.closeAllConnections();
} finally {
  for (const child of children) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
