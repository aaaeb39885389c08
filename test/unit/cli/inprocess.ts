import { runCli } from "../../../src/cli/main.ts";
import type { CliDeps } from "../../../src/cli/deps.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";

export interface Said {
  code: number;
  stdout: string;
  stderr: string;
}

/** The command line within this process, for all that needs neither signals nor children. */
export const cli = async (argv: readonly string[], more: Partial<CliDeps> = {}): Promise<Said> => {
  const said = { stdout: "", stderr: "" };
  const code = await runCli({
    argv,
    plugin: false,
    env: { HOME: "/nonexistent" },
    stdout: { write: (text) => (said.stdout += text) },
    stderr: { write: (text) => (said.stderr += text) },
    clock: systemClock,
    random: systemRandom,
    process: { pid: 1, on: () => {}, off: () => {}, kill: () => {} },
    version: "1.2.3",
    controller: () => Promise.resolve(),
    ...more,
  });
  return { code, ...said };
};
