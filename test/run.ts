/**
 * `npm test`: every check, then every test level that this machine can run. See `--help`.
 *
 * A level that cannot run here is named with its reason, and is a failure where CI is set. What fails does not keep
 * the rest from running. The last line is `N passed, N failed`: tests over all levels, and one for each check.
 */
import { spawn } from "node:child_process";
import { globSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { parseArgs } from "node:util";
import { ClusterError, childEnvironment } from "./support/cluster/config.ts";
import { isStrict, lacks, type Machine, thisMachine } from "./support/runner/machine.ts";
import {
  closingLine,
  countsOf,
  describeResult,
  exitCode,
  type Result,
  strict,
  type VitestReport,
} from "./support/runner/report.ts";

const root = join(import.meta.dirname, "..");
const bin = join(root, "node_modules/.bin");

const checks = [
  { name: "format", command: ["biome", "format", "."] },
  { name: "lint", command: ["oxlint"] },
  { name: "types", command: ["tsc"] },
  { name: "dead code", command: ["knip"] },
  { name: "generated files", command: ["node", "src/api/generate.ts", "--check"] },
] as const;

/** The vitest projects, and what kind of cluster each needs. */
const levels = [
  { name: "unit", files: ["src/**/*.test.ts", "test/unit/**/*.test.ts"] },
  { name: "contract", files: ["test/contract/**/*.test.ts"] },
  { name: "sim", files: ["test/sim/**/*.test.ts"] },
  { name: "model", files: ["test/model/**/*.test.ts"], needs: "model" },
  { name: "postgres", files: ["test/postgres/**/*.test.ts"], needs: "postgres" },
  { name: "cluster", files: ["test/cluster/**/*.test.ts"], needs: "api" },
  { name: "e2e", files: ["test/e2e/**/*.test.ts"], needs: "nodes" },
] as const;
type Level = (typeof levels)[number];
const levelNames = levels.map(({ name }) => name);

const help = `npm test -- [--level NAME]… [--filter TEXT] [--long] [--setup]

  --level NAME   only this: checks, ${levelNames.join(", ")}; may be repeated
  --filter TEXT  only test files whose path contains TEXT; without --level, no checks
  --long         the long run: more seeds, races and time (FENCELINE_LONG=1)
  --setup        install the Debian packages that are missing`;

const say = (line: string) => console.log(line);
const seconds = (start: number) => (performance.now() - start) / 1000;

/** The command that runs now, so that a signal ends it before this process ends. */
let interrupt = (_signal: NodeJS.Signals) => {};
let interrupted: NodeJS.Signals | undefined;
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => {
    interrupted = signal;
    interrupt(signal);
  });

/** Runs a command to its end. Its output is shown as it comes, or returned. */
const run = async (
  command: readonly string[],
  output: "shown" | "returned",
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | null; text: string }> => {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    cwd: root,
    env,
    stdio: output === "shown" ? "inherit" : ["ignore", "pipe", "pipe"],
  });
  interrupt = (signal) => child.kill(signal);
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (data: Buffer) => (text += data.toString()));
  const code = await new Promise<number | null>((resolve) => {
    child.on("error", (error) => {
      text += `${error.message}\n`;
      resolve(1);
    });
    child.on("close", resolve);
  });
  return { code, text };
};

const runCheck = async (
  { name, command }: (typeof checks)[number],
  env: NodeJS.ProcessEnv,
): Promise<Result> => {
  const start = performance.now();
  const { code, text } = await run(command, "returned", env);
  if (code !== 0) say(text.trimEnd());
  return {
    name,
    seconds: seconds(start),
    passed: code === 0 ? 1 : 0,
    failed: code === 0 ? 0 : 1,
    skipped: 0,
  };
};

const readReport = async (file: string): Promise<VitestReport | undefined> => {
  try {
    return JSON.parse(await readFile(file, "utf8")) as VitestReport;
  } catch {
    return undefined;
  }
};

const runLevel = async (
  level: Level,
  filter: string | undefined,
  machine: Machine,
  env: NodeJS.ProcessEnv,
): Promise<Result> => {
  const nothing = { name: level.name, seconds: 0, passed: 0, failed: 0, skipped: 0 };
  const files = globSync(level.files, { cwd: root }).filter((file) => file.includes(filter ?? ""));
  if (files.length === 0) return { ...nothing, note: "no test files" };
  try {
    const reason = "needs" in level ? await lacks(level.needs, machine, say) : undefined;
    if (reason !== undefined) return { ...nothing, notRun: reason };
  } catch (error) {
    // A test cluster that is named, but not as it must be.
    if (error instanceof ClusterError) return { ...nothing, failed: 1, note: error.message };
    throw error;
  }
  const start = performance.now();
  const folder = await mkdtemp(join(tmpdir(), "fenceline-test-"));
  try {
    const report = join(folder, "report.json");
    // Pods run in a box of their own, and so does the test that starts them.
    const box = level.name === "e2e" ? ["node", "test/support/cluster/cli.ts", "run"] : [];
    const vitest = [
      ...box,
      "vitest",
      "run",
      "--project",
      level.name,
      "--reporter=default",
      "--reporter=json",
    ];
    const { code } = await run([...vitest, `--outputFile.json=${report}`, ...files], "shown", env);
    return { ...nothing, seconds: seconds(start), ...countsOf(await readReport(report), code) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
};

const parse = () => {
  const { values } = parseArgs({
    options: {
      level: { type: "string", multiple: true },
      filter: { type: "string" },
      long: { type: "boolean", default: false },
      setup: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const known = ["checks", ...levelNames];
  const strange = values.level?.find((name) => !known.includes(name));
  if (strange !== undefined)
    throw new Error(`--level ${strange}: there is no such level, only ${known.join(", ")}`);
  return values;
};

const main = async (): Promise<number> => {
  let options: ReturnType<typeof parse>;
  try {
    options = parse();
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return 2;
  }
  if (options.help) {
    say(help);
    return 0;
  }
  const chosen = options.level ?? [...(options.filter === undefined ? ["checks"] : []), ...levelNames];
  const machine = thisMachine(options.setup);
  const env = childEnvironment({
    PATH: `${bin}${delimiter}${process.env["PATH"] ?? ""}`,
    ...(options.long && { FENCELINE_LONG: "1" }),
  });

  const results: Result[] = [];
  const steps = [
    ...(chosen.includes("checks") ? checks : []).map((check) => ({
      name: check.name,
      start: () => runCheck(check, env),
    })),
    ...levels
      .filter(({ name }) => chosen.includes(name))
      .map((level) => ({ name: level.name, start: () => runLevel(level, options.filter, machine, env) })),
  ];
  for (const step of steps) {
    say(`\n== ${step.name}`);
    const result = await step.start();
    if (interrupted !== undefined) return 128 + constants.signals[interrupted];
    results.push(isStrict(process.env) ? strict(result) : result);
    say(describeResult(results.at(-1) ?? result));
  }
  say("\n== all");
  for (const result of results) say(describeResult(result));
  say(`\n${closingLine(results)}`);
  return exitCode(results, levelNames);
};

process.exitCode = await main();
