/** The command line: which command, with which options. What a command does stands in its own file. */
import { Command, CommanderError } from "commander";
import type { CliDeps } from "./deps.ts";
import { CliError, exitCode, failureOf } from "./errors.ts";
import { printable } from "./text.ts";

/** Runs the command that the arguments name. Resolves with the exit code; errors are told on stderr in one line. */
export const runCli = async (deps: CliDeps): Promise<number> => {
  const { stdout, stderr } = deps;
  const name = deps.plugin ? "kubectl fence" : "fenceline";
  let code = 0;
  let ofExec = false;
  const ends = (run: () => Promise<number | void>) => async (): Promise<void> => {
    code = (await run()) ?? 0;
  };

  const program = new Command(name)
    .description("Fencing tokens for Kubernetes: who may write, and who may not any more.")
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: () => {} })
    .exitOverride()
    .showSuggestionAfterError(true);

  program
    .command("controller")
    .description("run coordinator and controller")
    .requiredOption("--config <file>", "configuration, see docs/configuration.md")
    .action(({ config }: { config: string }) => ends(() => deps.controller({ config }))());

  program
    .command("version")
    .description("print the version")
    .action(ends(async () => void stdout.write(`fenceline ${deps.version}\n`)));

  try {
    await program.parseAsync([...deps.argv], { from: "user" });
    return code;
  } catch (error) {
    const known = error instanceof CommanderError ? usageError(error, name) : error;
    if (known === undefined) return 0;
    const { failure, message } = failureOf(known);
    stderr.write(`fenceline: ${printable(message)}\n`);
    return exitCode(failure, ofExec);
  }
};

/** Help that was asked for is no error. */
const usageError = (error: CommanderError, name: string): CliError | undefined => {
  if (error.exitCode === 0) return undefined;
  const message =
    error.code === "commander.help" ? "no command given" : error.message.replace(/^error: /, "");
  return new CliError("usage", `${printable(message)}: see ${name} --help`);
};
