import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import type { ScriptedCoordinator } from "./coordinator.ts";

const script = join(import.meta.dirname, "../../../bin/fenceline.js");

export interface Run {
  child: ChildProcess;
  pid: number;
  stdout: () => string;
  stderr: () => string;
  /** Resolves when `text` stands on either stream. */
  says: (text: string) => Promise<void>;
  /** Exit code, or the signal that ended it. */
  ended: Promise<number | NodeJS.Signals>;
}

const live = new Set<ChildProcess>();

/** Ends what a failed test left running. */
export const endAll = (): void => {
  for (const child of live) child.kill("SIGKILL");
};

/** The real process. Nothing of this one's environment is handed on but where programs are found. */
export const fenceline = (args: readonly string[], env: Record<string, string> = {}): Run => {
  const child = spawn(process.execPath, [script, ...args], {
    env: { PATH: process.env["PATH"], HOME: "/nonexistent", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  live.add(child);
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const ended = once(child, "close").then(([code, signal]) => {
    live.delete(child);
    return (code ?? signal) as number | NodeJS.Signals;
  });
  return {
    child,
    pid: child.pid ?? 0,
    stdout: () => stdout,
    stderr: () => stderr,
    says: async (text) => {
      await expect.poll(() => stdout + stderr, { timeout: 10_000, interval: 20 }).toContain(text);
    },
    ended,
  };
};

/** `fenceline exec` on shop/orders against `coordinator`. */
export const exec = (
  coordinator: ScriptedCoordinator,
  command: readonly string[],
  flags: readonly string[] = [],
): Run =>
  fenceline([
    "exec",
    "--resource",
    "shop/orders",
    "--server",
    coordinator.server,
    "--ca-file",
    coordinator.caFile,
    "--token-file",
    coordinator.tokenFile,
    ...flags,
    "--",
    ...command,
  ]);

/** Whether a process is there and not only waiting to be reaped. */
export const isAlive = async (pid: number): Promise<boolean> => {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
  return stat !== undefined && !/\) [ZX] /.test(stat);
};
