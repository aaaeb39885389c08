import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { childEnvironment, moduleFolder } from "../../support/cluster/config.ts";
import { ExecError, exec } from "../../support/cluster/exec.ts";
import { withLock } from "../../support/cluster/lock.ts";
import { type ProcessId, alive } from "../../support/cluster/process.ts";

let labs: string;
beforeEach(() => {
  labs = mkdtempSync(path.join(os.tmpdir(), "fenceline-labs-"));
  vi.stubEnv("FENCELINE_CLUSTER_DIR", labs);
});
afterEach(async () => {
  await cli("down");
  vi.unstubAllEnvs();
  rmSync(labs, { recursive: true, force: true });
});

const cli = (...args: string[]) => exec(process.execPath, [path.join(moduleFolder, "cli.ts"), ...args]);

const script = (code: string): ChildProcess =>
  spawn(process.execPath, ["--input-type=module-typescript", "--eval", code], {
    cwd: moduleFolder,
    env: childEnvironment(),
    stdio: ["ignore", "pipe", "inherit"],
  });

const processes = (folder: string) =>
  readdirSync(path.join(folder, "pids")).map(
    (name) => JSON.parse(readFileSync(path.join(folder, "pids", name), "utf8")) as ProcessId,
  );

test("a cluster dies with the process that started it, and the next start removes what it left", async () => {
  const owner = script(`
    import { startApi } from "./api.ts";
    const lab = await startApi();
    console.log(lab.folder);
    setInterval(() => {}, 1000);
  `);
  const [first] = owner.stdout ? ((await once(owner.stdout, "data")) as [Buffer]) : [Buffer.of()];
  const folder = first.toString().trim();
  const ids = processes(folder);
  expect(ids).toHaveLength(3);
  expect(ids.every(alive)).toBe(true);
  owner.kill("SIGKILL");
  await expect.poll(() => ids.some(alive), { timeout: 10_000 }).toBe(false);
  await cli("up");
  expect(existsSync(folder)).toBe(false);
});

test("the tool: up, a second up, kubectl, SIGKILL of everything, up again, down", async () => {
  await expect(cli("kubectl", "get", "namespaces")).rejects.toThrow(
    "error: no cluster is up: start one with",
  );
  expect(await cli("up")).toContain("up in ");
  await expect(cli("up")).rejects.toThrow("error: a cluster is up already");
  await cli("kubectl", "create", "namespace", "hello");
  expect(await cli("kubectl", "get", "namespaces", "-o", "name")).toContain("namespace/hello");
  const folder = path.join(labs, "cli");
  const owner = JSON.parse(readFileSync(path.join(folder, "owner"), "utf8")) as ProcessId;
  for (const { pid } of [owner, ...processes(folder)]) process.kill(pid, "SIGKILL");
  await cli("up");
  expect(await cli("kubectl", "get", "namespaces", "-o", "name")).not.toContain("namespace/hello");
  const ids = processes(folder);
  expect(await cli("down")).toBe("down\n");
  expect(ids.some(alive)).toBe(false);
  expect(existsSync(folder)).toBe(false);
});

test("mistakes on the command line are one line and exit code 2", async () => {
  for (const [args, message] of [
    [["up", "--nodes", "ten"], "argument 'ten' is invalid. give a number from 0 to 9."],
    [["launch"], "error: unknown command 'launch'"],
  ] as const) {
    const error = await cli(...args).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(ExecError);
    expect(error).toMatchObject({ code: 2, message: expect.stringContaining(message) });
  }
});

test("a lock is free as soon as its owner is dead", async () => {
  const file = path.join(labs, "some.lock");
  const owner = script(`
    import { withLock } from "./lock.ts";
    await withLock(${JSON.stringify(file)}, () => { console.log("locked"); return new Promise(() => setInterval(() => {}, 1000)); });
  `);
  if (owner.stdout) await once(owner.stdout, "data");
  const order: string[] = [];
  const waiting = withLock(file, async () => void order.push("locked here"));
  order.push("owner killed");
  owner.kill("SIGKILL");
  await waiting;
  expect(order).toEqual(["owner killed", "locked here"]);
});
