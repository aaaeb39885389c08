import { existsSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
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

/** The hierarchy that can freeze: version 1 has one for it, version 2 can always. */
const freezer = () => {
  const points = hierarchies();
  return points.find((point) => path.basename(point) === "freezer") ?? points[0] ?? "/sys/fs/cgroup";
};

/** Stops or continues all processes of a cgroup and of those below it, and waits until it is so. */
export const setFrozen = async (cgroup: string, frozen: boolean): Promise<void> => {
  const folder = path.join(freezer(), cgroup);
  const state = path.join(folder, "freezer.state");
  if (existsSync(state)) {
    const wanted = frozen ? "FROZEN" : "THAWED";
    writeFileSync(state, wanted);
    await until(`${cgroup} ${wanted}`, 10_000, () => readFileSync(state, "utf8").trim() === wanted, 10);
  } else {
    writeFileSync(path.join(folder, "cgroup.freeze"), frozen ? "1" : "0");
    const events = path.join(folder, "cgroup.events");
    await until(
      `${cgroup} frozen ${frozen}`,
      10_000,
      () => {
        return readFileSync(events, "utf8").includes(`frozen ${frozen ? 1 : 0}`);
      },
      10,
    );
  }
};

/** Finds the cgroup below `cgroup` whose name contains `part`: a pod's is found by its UID. */
export const findCgroup = (cgroup: string, part: string): string | undefined => {
  const root = freezer();
  const folders = readdirSync(path.join(root, cgroup), { recursive: true, withFileTypes: true });
  const found = folders.find((entry) => entry.isDirectory() && entry.name.includes(part));
  return found && path.relative(root, path.join(found.parentPath, found.name));
};

/** A process of a cgroup or of one below it. */
export const someProcess = (cgroup: string): number | undefined => {
  const root = path.join(freezer(), cgroup);
  const folders = ["", ...readdirSync(root, { recursive: true }).map(String)];
  const lists = folders.filter((folder) => existsSync(path.join(root, folder, "cgroup.procs")));
  const pids = lists.flatMap((folder) =>
    readFileSync(path.join(root, folder, "cgroup.procs"), "utf8")
      .trim()
      .split("\n"),
  );
  return pids.map(Number).find((pid) => pid > 0);
};
