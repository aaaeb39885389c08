import { existsSync, readFileSync, readdirSync, rmdirSync } from "node:fs";
import path from "node:path";
import { until } from "./process.ts";

/** Mount points of all cgroup hierarchies: several with version 1, one with version 2. */
export const hierarchies = (): string[] => {
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  const found = mounts
    .map((line) => line.split(" "))
    .filter(([, , type]) => type === "cgroup" || type === "cgroup2");
  return [
    ...new Set(found.map(([, point = ""]) => point).filter((point) => point.startsWith("/sys/fs/cgroup"))),
  ];
};

const removeTree = (folder: string): boolean => {
  if (!existsSync(folder)) return true;
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true }))
      if (entry.isDirectory()) removeTree(path.join(folder, entry.name));
    rmdirSync(folder);
    return true;
  } catch {
    return false; // its last process is still on its way out
  }
};

/** Removes the cgroup `name` and all below it from every hierarchy. Its processes must be dead or dying. */
export const removeCgroups = async (name: string): Promise<void> => {
  const folders = hierarchies().map((point) => path.join(point, name));
  await until(`removal of the cgroups ${name}`, 10_000, () => folders.map(removeTree).every(Boolean), 100);
};
