/** What is packed is what others import: by Node as it is, by the compiler with its types, and as a command. */
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const modules = join(root, "node_modules");
const tsc = join(modules, ".bin/tsc");

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-package-"));
  const source = join(folder, "source");
  const installed = join(folder, "node_modules");
  await mkdir(source);
  await run(tsc, ["-p", join(root, "tsconfig.build.json"), "--outDir", join(source, "dist")]);
  for (const name of ["package.json", "bin", "crds"])
    await cp(join(root, name), join(source, name), { recursive: true });
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--silent"], { cwd: source });
  await run("tar", ["-xzf", join(source, stdout.trim()), "-C", folder]);
  await mkdir(installed);
  await run("mv", [join(folder, "package"), join(installed, "fenceline")]);
  await rm(source, { recursive: true });
  // Its dependencies, and the types that its user brings along.
  await symlink(modules, join(installed, "fenceline/node_modules"));
  await symlink(join(modules, "@types"), join(installed, "@types"));
}, 120_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

const program = `
import { acquire, connect, exitCodeOf, HoldUnreachable } from "fenceline/client";
import { lead } from "fenceline/client/election";
import { withFence } from "fenceline/client/fence";
import { StaleToken } from "fenceline/client/refusal";
const client = connect({ server: "https://127.0.0.1:1", tokenFile: "/nothing/here" });
const error = await acquire(client, "shop/orders").catch((thrown) => thrown);
console.log(error instanceof HoldUnreachable, exitCodeOf(error), typeof lead, typeof withFence, typeof StaleToken);
client.close();
`;

it("a plain script imports the client library", async () => {
  await writeFile(join(folder, "script.mjs"), program);
  const { stdout } = await run(process.execPath, [join(folder, "script.mjs")]);
  expect(stdout).toBe("true 6 function function function\n");
});

it("the programs of docs/client.md are checked against its types", async () => {
  const guide = await readFile(join(root, "docs/client.md"), "utf8");
  const blocks = [...guide.matchAll(/```ts\n([^`]+)```/g)].map(([, block = ""]) => block);
  expect(blocks).toHaveLength(3);
  const typed = `
import type { Pool } from "pg";
import type { Holding } from "fenceline/client";
declare const pool: Pool;
declare const orders: string[];
declare const reconcileUntil: (signal: AbortSignal, holding: Holding) => Promise<void>;
${blocks.join("")}`;
  const check = async (source: string, ...more: string[]) => {
    await writeFile(join(folder, "typed.mts"), source);
    const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024", "--types", "node"];
    return run(tsc, [...flags, ...more, "typed.mts"], { cwd: folder }).then(
      ({ stdout }) => stdout,
      (error: { stdout: string }) => error.stdout,
    );
  };
  expect(await check(typed)).toBe("");
  expect(await check(typed.replace("tokenFile:", "tokenfile:"), "--skipLibCheck")).toMatch(
    /typed\.mts\(\d+,\d+\): error TS2561/,
  );
}, 60_000);

it("its command runs from what was built", async () => {
  const command = join(folder, "node_modules/fenceline/bin/fenceline.js");
  const { stdout } = await run(process.execPath, [command, "version"]);
  expect(stdout).toMatch(/0\.1\.0/);
});
