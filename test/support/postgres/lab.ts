/**
 * Where test servers live: one folder for all of them, with a new cluster to copy. PostgreSQL refuses to run as root,
 * so as root everything in it belongs to another user.
 */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { alive, identify, type ProcessId } from "../cluster/process.ts";

/** Where Debian puts the programs of a server, newest first. */
const homes = ["17", "16", "15"].map((version) => `/usr/lib/postgresql/${version}/bin`);

/** Folder of the server's programs. Throws where there is none. */
export const serverPrograms = (): string => {
  const found = homes.toReversed().find((home) => existsSync(path.join(home, "initdb")));
  if (found === undefined)
    throw new Error("no PostgreSQL server is installed: apt-get install postgresql-15");
  return found;
};

export interface User {
  uid: number;
  gid: number;
}

/** The user that servers run as: this one, or `postgres` where this one is root. */
export const serverUser = (): User => {
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  if (own.uid !== 0) return own;
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith("postgres:"));
  const [, , uid, gid] = line?.split(":") ?? [];
  if (uid === undefined || gid === undefined)
    throw new Error("there is no user postgres to run servers as: apt-get install postgresql-15");
  return { uid: Number(uid), gid: Number(gid) };
};

/** Environment of server programs: nothing of ours can lead them elsewhere. */
export const serverEnvironment = (): NodeJS.ProcessEnv => ({ PATH: process.env["PATH"], LC_ALL: "C.UTF-8" });

/** Runs one program of the server as its user, to its end. Returns what it printed. */
export const runProgram = (program: string, args: readonly string[], input?: string): string =>
  execFileSync(path.join(serverPrograms(), program), args, {
    ...serverUser(),
    cwd: "/",
    env: serverEnvironment(),
    encoding: "utf8",
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    ...(input !== undefined && { input }),
  });

const prefix = "fenceline-postgres-";

/** Folders of processes that died without a chance to clean up. */
const removeLeftovers = async (): Promise<void> => {
  for (const name of readdirSync(tmpdir()).filter((name) => name.startsWith(prefix))) {
    const folder = path.join(tmpdir(), name);
    try {
      const owner = JSON.parse(readFileSync(path.join(folder, "owner"), "utf8")) as ProcessId;
      if (!alive(owner)) await rm(folder, { recursive: true, force: true });
    } catch {
      // Being made, or somebody else's.
    }
  }
};

export interface Lab {
  folder: string;
  /** Data folder of a cluster that was never started. */
  template: string;
}

/** A lab, and how to take it away. Its servers end with the processes that started them. */
export const makeLab = async (): Promise<Lab & AsyncDisposable> => {
  await removeLeftovers();
  const folder = mkdtempSync(path.join(tmpdir(), prefix));
  writeFileSync(path.join(folder, "owner"), JSON.stringify(identify(process.pid)));
  const { uid, gid } = serverUser();
  chownSync(folder, uid, gid);
  chmodSync(folder, 0o711);
  const template = path.join(folder, "template");
  mkdirSync(template, { mode: 0o700 });
  chownSync(template, uid, gid);
  runProgram("initdb", [
    "--pgdata",
    template,
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--no-sync",
    "--no-instructions",
  ]);
  return {
    folder,
    template,
    [Symbol.asyncDispose]: () =>
      rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }),
  };
};
