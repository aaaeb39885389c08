import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { ClusterError } from "./config.ts";

/** A process as it is known from outside: a pid alone is reused, with its start time it is not. */
export interface ProcessId {
  pid: number;
  /** Start time in clock ticks since boot: field 22 of /proc/PID/stat. */
  start: string;
  /** The pid namespace in which `pid` has its meaning. */
  namespace: string;
}

const namespace = () => readlinkSync("/proc/self/ns/pid");

const stat = (pid: number) => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] ?? "", start: fields[19] ?? "" };
  } catch {
    return undefined;
  }
};

export const identify = (pid: number): ProcessId | undefined => {
  const found = stat(pid);
  return found && { pid, start: found.start, namespace: namespace() };
};

/** A dead process whose other threads still end keeps its sockets open. */
const hasThreads = (pid: number) => {
  try {
    return readdirSync(`/proc/${pid}/task`).length > 1;
  } catch {
    return false;
  }
};

/** A process of another pid namespace cannot be judged from here, and counts as alive. */
export const alive = (id: ProcessId): boolean => {
  if (id.namespace !== namespace()) return true;
  const found = stat(id.pid);
  if (found === undefined || found.start !== id.start) return false;
  return !"ZX".includes(found.state) || hasThreads(id.pid);
};

export const signal = (id: ProcessId, name: NodeJS.Signals): void => {
  if (id.namespace !== namespace() || !alive(id)) return;
  try {
    process.kill(id.pid, name);
  } catch {
    // ended in between
  }
};

/** Waits until `probe` returns something, and fails with `what` at the deadline. */
export const until = async <T>(
  what: string,
  timeoutMs: number,
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  everyMs = 50,
): Promise<T> => {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const result = await probe();
    if (result !== undefined && result !== false) return result;
    if (performance.now() > deadline) throw new ClusterError(`${what}: not within ${timeoutMs / 1000} s`);
    await sleep(everyMs);
  }
};

export const ended = (id: ProcessId, timeoutMs = 10_000): Promise<true> =>
  until(`end of process ${id.pid}`, timeoutMs, () => !alive(id) || undefined, 10);
