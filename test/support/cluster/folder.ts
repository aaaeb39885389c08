import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { removeCgroups } from "./cgroup.ts";
import { ClusterError, labsFolder } from "./config.ts";
import { type ProcessId, alive, ended, identify, signal } from "./process.ts";

const ownerFile = (folder: string) => path.join(folder, "owner");

const readId = (file: string): ProcessId | undefined => {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as ProcessId;
  } catch {
    return undefined;
  }
};

/** Who started the lab in `folder`, if that process still lives. */
export const livingOwner = (folder: string): ProcessId | undefined => {
  const owner = readId(ownerFile(folder));
  return owner && alive(owner) ? owner : undefined;
};

/** Ends what was started in a lab's folder and takes away everything it left on the machine. */
export const removeLab = async (folder: string): Promise<void> => {
  const pids = path.join(folder, "pids");
  const found = existsSync(pids) ? readdirSync(pids).map((name) => readId(path.join(pids, name))) : [];
  const ids = found.filter((id) => id !== undefined);
  for (const id of ids) signal(id, "SIGKILL");
  await Promise.all(ids.map((id) => ended(id)));
  await removeCgroups(cgroupOf(folder));
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
};

/** Name of the cgroup of the box in `folder`, below each hierarchy. */
export const cgroupOf = (folder: string): string => `fenceline-${path.basename(folder)}`;

/** Removes the labs whose owner is dead. */
export const removeLeftovers = async (): Promise<void> => {
  const root = labsFolder();
  if (!existsSync(root)) return;
  for (const name of readdirSync(root)) {
    const folder = path.join(root, name);
    const age = Date.now() - (statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? 0);
    const beingMade = !existsSync(ownerFile(folder)) && age < 10_000;
    if (!beingMade && !livingOwner(folder)) await removeLab(folder);
  }
};

/** A folder for a new lab, owned by this process. `id` is random unless a name is wanted. */
export const makeLabFolder = async (id = randomBytes(4).toString("hex")): Promise<string> => {
  await removeLeftovers();
  const root = labsFolder();
  mkdirSync(root, { recursive: true, mode: 0o700 });
  if (statSync(root).uid !== process.getuid?.())
    throw new ClusterError(
      `${root} belongs to another user: set FENCELINE_CLUSTER_DIR to a folder of your own`,
    );
  const folder = path.join(root, id);
  mkdirSync(folder);
  writeFileSync(ownerFile(folder), JSON.stringify(identify(process.pid)));
  for (const name of ["pki", "pids", "logs"]) mkdirSync(path.join(folder, name));
  return folder;
};
