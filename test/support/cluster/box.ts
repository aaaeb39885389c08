import { type StdioOptions, spawn } from "node:child_process";
import { readlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { buildCoreDns } from "./build.ts";
import { findAssets } from "./api.ts";
import { ClusterError, childEnvironment, moduleFolder } from "./config.ts";
import { cgroupOf, makeLabFolder, removeLab } from "./folder.ts";
import { type ProcessId, identify, until } from "./process.ts";
import { describeMissing, missing } from "./requirements.ts";

export const boxScript = path.join(moduleFolder, "box.sh");

/** The folder of the box around this process, if there is one. */
export const surroundingBox = (): string | undefined => process.env["FENCELINE_BOX"];

export interface BoxOptions {
  /** Name of the box's folder. Default: random. */
  id?: string;
  stdio?: StdioOptions;
  env?: NodeJS.ProcessEnv;
}

/** A command that runs in namespaces of its own. */
export interface Box extends AsyncDisposable {
  folder: string;
  process: ProcessId;
  /** Exit code of the command (128 + n after signal n). */
  exited: Promise<number>;
}

const signals: Record<string, number> = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 };

/**
 * Starts a command in a box: own network without uplink, own mounts, process ids and cgroups. The box ends with
 * the command, and with the thread that called this, however that ends. What it needs is built before, since
 * inside there is no way out.
 */
export const startBox = async (command: readonly string[], options: BoxOptions = {}): Promise<Box> => {
  const lacking = await missing("nodes");
  if (lacking.length > 0) throw new ClusterError(describeMissing(lacking));
  await findAssets();
  await buildCoreDns();
  const folder = await makeLabFolder(options.id);
  const env = {
    ...childEnvironment(options.env),
    FENCELINE_BOX: folder,
    FENCELINE_CLUSTER_DIR: path.join(folder, "labs"),
    PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`,
  };
  const child = spawn(
    "setpriv",
    ["--pdeathsig", "KILL", "--", "bash", boxScript, "box", cgroupOf(folder), ...command],
    { env, stdio: options.stdio ?? "inherit" },
  );
  const exited = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(code ?? 128 + (signals[signal ?? ""] ?? 0)));
  });
  const id = identify(child.pid ?? 0);
  if (!id) throw new ClusterError("the box did not start");
  writeFileSync(path.join(folder, "pids", "box"), JSON.stringify(id));
  return { folder, process: id, exited, [Symbol.asyncDispose]: () => removeLab(folder) };
};

/** Runs a command in a box to its end and returns its exit code. */
export const runInBox = async (command: readonly string[], options: BoxOptions = {}): Promise<number> => {
  await using box = await startBox(command, options);
  return await box.exited;
};

/** Waits until a process started by box.sh has its own network. */
export const untilIsolated = (id: ProcessId): Promise<true> =>
  until(
    `namespaces of process ${id.pid}`,
    10_000,
    () => {
      const own = readlinkSync("/proc/self/ns/net");
      return readlinkSync(`/proc/${id.pid}/ns/net`) !== own || undefined;
    },
    10,
  );

/** The command line that runs `command` inside the namespaces of a process started by box.sh. */
export const inside = (id: ProcessId, command: readonly string[]): string[] => {
  const namespaces = ["--net", "--mount", "--ipc", "--cgroup", `--pid=/proc/${id.pid}/ns/pid_for_children`];
  return ["nsenter", `--target=${id.pid}`, ...namespaces, "--", ...command];
};
