/**
 * What the image holds, put into one folder: compiled sources and the packages they need when they run.
 *
 *     node deploy/image/assemble.ts FOLDER
 *
 * Runs in the first stage of the Dockerfile, where there is Node and no shell.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync } from "node:fs";
import path from "node:path";

const root = path.join(import.meta.dirname, "../..");
const [target] = process.argv.slice(2);
if (target === undefined) throw new Error("assemble.ts FOLDER: where to?");

/** Of a package of the lock file. */
interface Locked {
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
}
const { packages } = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8")) as {
  packages: Record<string, Locked>;
};

/** What nothing reads when the program runs. */
const isIdle = (file: string): boolean =>
  /\.(d\.[cm]?ts|map|md|markdown|flow)$|\/(test|tests|docs|examples?)$/.test(file);

mkdirSync(target, { recursive: true });
execFileSync(
  process.execPath,
  [
    path.join(root, "node_modules/typescript/bin/tsc"),
    "--project",
    path.join(root, "tsconfig.build.json"),
    "--declaration",
    "false",
    "--outDir",
    path.join(target, "dist"),
  ],
  { stdio: "inherit" },
);
for (const file of ["bin", "crds", "package.json"])
  cpSync(path.join(root, file), path.join(target, file), { recursive: true });
for (const [name, { dev, optional, devOptional }] of Object.entries(packages)) {
  if (name === "" || dev || optional || devOptional || name.startsWith("node_modules/@types/")) continue;
  const from = path.join(root, name);
  cpSync(from, path.join(target, name), {
    recursive: true,
    // A package inside this one is in the lock file by itself.
    filter: (file) => !isIdle(file) && !path.relative(from, file).startsWith("node_modules"),
  });
}
