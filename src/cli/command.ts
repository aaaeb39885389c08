/**
 * A command with all that it starts: a session of its own, so that one signal reaches the whole of it. What a shell
 * leaves running after it was killed would go on writing without a right.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Clock } from "../runtime/clock.ts";
import type { CliDeps, ProcessLike } from "./deps.ts";
import { CliError, signalCode } from "./errors.ts";

export interface Running {
  /** Exit code of the command itself, 128+n where a signal ended it. */
  readonly exited: Promise<number>;
  /** Sends a signal to the command and all that it started; nothing where none of it is left. */
  signal(name: NodeJS.Signals): void;
  /** Whether anything of it is left. */
  alive(): boolean;
  /** SIGTERM, and SIGKILL for what is left after `graceMs`. Resolves when nothing is left, 1 s later at most. */
  stop(graceMs: number): Promise<void>;
}

interface CommandDeps {
  env: CliDeps["env"];
  clock: Clock;
  process: ProcessLike;
}

const pollMs = 50;

const started = async (child: ChildProcess, name: string): Promise<number> => {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  child.once("spawn", () => {
    if (child.pid !== undefined) resolve(child.pid);
  });
  child.once("error", (error) => {
    const code = "code" in error ? String(error.code) : error.message;
    const why = code === "ENOENT" ? "there is no such command" : code;
    reject(new CliError("usage", `cannot run ${name}: ${why}`));
  });
  return promise;
};

/** Throws a CliError where the command cannot be started. Standard streams are handed on. */
export const runCommand = async (argv: readonly string[], deps: CommandDeps): Promise<Running> => {
  const { clock, process } = deps;
  const [file = "", ...args] = argv;
  const child = spawn(file, args, { stdio: "inherit", detached: true, env: { ...deps.env } });
  const exited = new Promise<number>((resolve) => {
    child.once("exit", (code, signal) => resolve(signal === null ? (code ?? 1) : signalCode(signal)));
  });
  const pid = await started(child, file);

  const send = (signal: NodeJS.Signals | 0): boolean => {
    try {
      process.kill(-pid, signal);
      return true;
    } catch (error) {
      // Somebody who may not be signalled is there all the same.
      return error instanceof Error && "code" in error && error.code === "EPERM";
    }
  };
  const alive = (): boolean => send(0);
  const gone = async (withinMs: number): Promise<boolean> => {
    for (let waited = 0; alive(); waited += pollMs) {
      if (waited >= withinMs) return false;
      await clock.sleep(pollMs);
    }
    return true;
  };

  return {
    exited,
    alive,
    signal: (name) => void send(name),
    async stop(graceMs) {
      send("SIGTERM");
      // What was stopped hears nothing before it goes on.
      send("SIGCONT");
      if (await gone(graceMs)) return;
      send("SIGKILL");
      await gone(1000);
    },
  };
};
