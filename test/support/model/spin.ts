/** Runs Spin on the model of the protocol: docs/model/fenceline.pml. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Bounds } from "./scenarios.ts";

export const modelFile = join(import.meta.dirname, "../../../docs/model/fenceline.pml");

const run = promisify(execFile);
const limits = { timeout: 300_000, maxBuffer: 16 * 1024 * 1024, killSignal: "SIGKILL" } as const;
const memoryMegabytes = 2500;

export interface Verdict {
  states: number;
  /** Undefined where every state was visited and no invariant broke. */
  broken: { invariant: string; steps: number } | undefined;
}

export interface SearchOptions {
  /** The rule that is not followed. */
  removed?: string;
  search?: "shortest" | "first";
  /** Few states: compiled fast rather than to be fast. */
  quick?: boolean;
}

const bare = (expression: string) => expression.replaceAll(/[\s()]/g, "");

/** What each assertion of the model stands for, by its expression: the comment behind it says so. */
const invariants = async (): Promise<Map<string, string>> => {
  const source = await readFile(modelFile, "utf8");
  return new Map(
    [...source.matchAll(/assert\((.+?)\);?\s*\/\* (I[\dI, ]+) \*\//g)].map(
      ([, expression = "", names = ""]) => [bare(expression), names],
    ),
  );
};

/**
 * Every state within the bounds, or a way to one that breaks an invariant: the shortest one, or with `first` any, which
 * takes less memory. Throws where the search ended early.
 */
export const check = async (
  bounds: Bounds,
  { removed, search = "shortest", quick = removed !== undefined }: SearchOptions = {},
): Promise<Verdict> => {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-model-"));
  const inside = { ...limits, cwd: folder };
  try {
    const set = Object.entries({ ...bounds, REMOVED: removed ?? 0 }).map(
      ([name, value]) => `-D${name}=${value}`,
    );
    await run("spin", ["-a", ...set, modelFile], inside);
    const hunts = removed !== undefined;
    const flags = ["-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", `-DMEMLIM=${memoryMegabytes}`];
    if (hunts && search === "shortest") flags.push("-DBFS");
    await run("cc", [quick ? "-O0" : "-O2", "-w", ...flags, "-o", "pan", "pan.c"], inside);
    const { stdout } = await run(join(folder, "pan"), ["-E", hunts ? "-m2000" : "-m100000"], inside);
    const states = Number(/(\d+) states, stored/.exec(stdout)?.[1] ?? 0);
    const [, expression, steps] = /assertion violated (.+) \(at depth (\d+)\)/.exec(stdout) ?? [];
    if (expression !== undefined) {
      const invariant = (await invariants()).get(bare(expression));
      if (invariant === undefined) throw new Error(`an assertion without a name: ${expression}`);
      return { states, broken: { invariant, steps: Number(steps) } };
    }
    const whole = /errors: 0/.test(stdout) && !/not completed|too small|out of memory/.test(stdout);
    if (!whole) throw new Error(`the search did not end: ${stdout.slice(0, 2000)}`);
    return { states, broken: undefined };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
};
