import { type SpawnOptions, spawn } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { Command, CommanderError, InvalidArgumentError } from "commander";
import { findAssets, startApi } from "./api.ts";
import { inside, runInBox, startBox, surroundingBox } from "./box.ts";
import { buildCoreDns } from "./build.ts";
import { Cluster } from "./cluster.ts";
import { ClusterError, childEnvironment, labsFolder } from "./config.ts";
import { livingOwner, removeLab, removeLeftovers } from "./folder.ts";
import type { LabState } from "./lab.ts";
import { startNodes } from "./nodes.ts";
import { type ProcessId, ended, signal, until } from "./process.ts";
import { describeMissing, missing } from "./requirements.ts";

/** The one cluster that `up` starts, as its file `up.json` says. */
interface Up {
  nodes: number;
  lab: LabState;
}

const id = "cli";
const folder = () => path.join(labsFolder(), id);
const upFile = () => path.join(folder(), "up.json");

const readUp = (): Up => {
  if (!livingOwner(folder()) || !existsSync(upFile()))
    throw new ClusterError("no cluster is up: start one with npm run cluster -- up");
  return JSON.parse(readFileSync(upFile(), "utf8")) as Up;
};

const boxProcess = () => JSON.parse(readFileSync(path.join(folder(), "pids", "box"), "utf8")) as ProcessId;

/** Turns a command into one that can reach the cluster: with nodes that is from inside the box alone. */
const reaching = (up: Up, command: readonly string[]): string[] =>
  up.nodes > 0 ? inside(boxProcess(), ["env", `--chdir=${process.cwd()}`, ...command]) : [...command];

const run = async (command: readonly string[], options: SpawnOptions = {}): Promise<number> => {
  const [file = "", ...args] = command;
  const child = spawn(file, args, { stdio: "inherit", env: childEnvironment(), ...options });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
};

const count = (text: string): number => {
  if (!/^[0-9]$/.test(text)) throw new InvalidArgumentError("give a number from 0 to 9.");
  return Number(text);
};

const self = [process.execPath, import.meta.filename];

const up = async ({ nodes }: { nodes: number }): Promise<void> => {
  if (livingOwner(folder()))
    throw new ClusterError("a cluster is up already: npm run cluster -- status, or down");
  const lacking = await missing(nodes > 0 ? "nodes" : "api");
  if (lacking.length > 0) throw new ClusterError(describeMissing(lacking));
  await findAssets();
  if (nodes > 0) await buildCoreDns();
  await removeLeftovers();
  const begin = performance.now();
  const scratch = mkdtempSync(path.join(os.tmpdir(), "fenceline-up-"));
  const logFile = path.join(scratch, "log");
  const log = openSync(logFile, "w");
  const [file = "", ...args] = self;
  const child = spawn(file, [...args, "serve", "--nodes", String(nodes)], {
    detached: true,
    env: childEnvironment(),
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  child.unref();
  try {
    await until("start of the cluster", 120_000, () => {
      if (child.exitCode !== null) {
        const words = readFileSync(logFile, "utf8").trim().split("\n").at(-1);
        throw new ClusterError(`the cluster did not start: ${words?.replace(/^error: /, "")}`);
      }
      return existsSync(upFile());
    });
  } finally {
    rmSync(scratch, { recursive: true });
  }
  console.log(`up in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
  await status();
};

const down = async (): Promise<void> => {
  const owner = livingOwner(folder());
  if (owner) {
    signal(owner, "SIGKILL");
    await ended(owner);
  }
  if (existsSync(folder())) await removeLab(folder());
  await removeLeftovers();
  await rmdir(labsFolder()).catch(() => undefined); // not empty: other clusters are up
  console.log(owner ? "down" : "no cluster was up");
};

const status = async (): Promise<void> => {
  const state = readUp();
  const { lab, nodes } = state;
  console.log(`server      ${lab.access.server}${nodes > 0 ? "  (inside the box)" : ""}`);
  console.log(`kubeconfig  ${lab.access.kubeconfig}`);
  console.log(`logs        ${path.join(lab.folder, "logs")}`);
  console.log(`level       ${nodes > 0 ? `nodes: ${nodes}` : "api: no nodes, no pods"}`);
  const ask = nodes > 0 ? ["get", "nodes"] : ["version"];
  process.exitCode = await run(reaching(state, kubectlCommand(lab, [...ask, "--request-timeout=5s"])));
};

const kubectlCommand = (lab: LabState, args: readonly string[]) => [
  lab.access.kubectl,
  ...new Cluster(lab.access).kubectlArguments,
  ...args,
];

const kubectl = async (args: string[]): Promise<void> => {
  const state = readUp();
  process.exitCode = await run(reaching(state, kubectlCommand(state.lab, args)));
};

const shell = async (): Promise<void> => {
  const state = readUp();
  const { access } = state.lab;
  const env = {
    ...childEnvironment(),
    KUBECONFIG: access.kubeconfig,
    KUBECACHEDIR: path.join(access.cache, "kubectl-cache"),
    PATH: `${path.dirname(access.kubectl)}:${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`,
  };
  console.error("kubectl speaks to the test cluster here; exit ends this shell, the cluster stays up");
  process.exitCode = await run(reaching(state, [process.env["SHELL"] || "/bin/sh"]), { env });
};

/** Holds the cluster until it is killed: everything ends with this process. */
const serve = async ({ nodes }: { nodes: number }): Promise<void> => {
  if (nodes === 0) {
    const lab = await startApi({ id });
    writeFileSync(upFile(), JSON.stringify({ nodes, lab: lab.state } satisfies Up));
    await new Promise(() => setInterval(() => undefined, 60_000));
  }
  await using box = await startBox([...self, "inside", "--nodes", String(nodes)], { id });
  process.exitCode = await box.exited;
};

/** The same, in the box. */
const serveInside = async ({ nodes }: { nodes: number }): Promise<void> => {
  const box = surroundingBox();
  if (!box) throw new ClusterError("this command is for the inside of a box");
  const lab = await startNodes({ nodes });
  writeFileSync(path.join(box, "up.json"), JSON.stringify({ nodes, lab: lab.state } satisfies Up));
  await new Promise(() => setInterval(() => undefined, 60_000));
};

const program = new Command("npm run cluster --")
  .description("A real Kubernetes on this machine, for tests and for trying things out.")
  .addHelpText(
    "after",
    `
Examples:
  npm run cluster -- up                       etcd and API server (no root needed)
  npm run cluster -- up --nodes 2             two nodes that run pods (root, Linux)
  npm run cluster -- kubectl get pods -A
  npm run cluster -- kubectl run hello --image=localhost/busybox:1 -- sleep 600
  npm run cluster -- run npx vitest run --project e2e
  npm run cluster -- down

Nodes have two images, localhost/busybox:1 and localhost/pause:1: there is no way out to a registry.
No kubeconfig of yours is read or changed.`,
  )
  .enablePositionalOptions()
  .exitOverride();

program
  .command("up")
  .description("start the cluster and leave it running")
  .option("-n, --nodes <N>", "nodes that run pods, 0 to 9; 0 is API server alone", count, 0)
  .action(up);
program.command("down").description("end it and remove everything it left").action(down);
program.command("status").description("show where it is and how it does").action(status);
program.command("shell").description("a shell in which kubectl speaks to it").action(shell);
program
  .command("kubectl")
  .description("kubectl against it, and against nothing else")
  .argument("[args...]")
  .helpOption(false)
  .allowUnknownOption()
  .passThroughOptions()
  .action(kubectl);
program
  .command("run")
  .description("run a command in a box of its own, in which tests can start nodes")
  .argument("<command...>")
  .allowUnknownOption()
  .passThroughOptions()
  .action(async (command: string[]) => {
    process.exitCode = await runInBox(command);
  });
const nodesOption = ["--nodes <N>", "nodes", count, 0] as const;
program
  .command("serve", { hidden: true })
  .option(...nodesOption)
  .action(serve);
program
  .command("inside", { hidden: true })
  .option(...nodesOption)
  .action(serveInside);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
  else if (error instanceof ClusterError) {
    console.error(`error: ${error.message}`);
    process.exitCode = 1;
  } else throw error;
}
