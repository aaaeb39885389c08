import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { ClusterError } from "./config.ts";

/**
 * Runs `work` while no other process holds the lock `file`. The kernel holds it (flock) for a helper process
 * that ends when its input closes, so the lock is free the moment its owner is dead, however it died.
 */
export const withLock = async <T>(file: string, work: () => Promise<T>, onWait?: () => void): Promise<T> => {
  await mkdir(path.dirname(file), { recursive: true });
  const helper = spawn("flock", [file, "sh", "-c", "echo locked; exec cat"], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const waiting = onWait && setTimeout(onWait, 1_000);
  try {
    await Promise.race([
      once(helper.stdout, "data"),
      once(helper, "exit").then(() => {
        throw new ClusterError(`cannot lock ${file}`);
      }),
    ]);
    clearTimeout(waiting);
    return await work();
  } finally {
    clearTimeout(waiting);
    helper.stdin.end();
  }
};
