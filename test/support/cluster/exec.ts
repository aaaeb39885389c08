import { spawn } from "node:child_process";
import { childEnvironment } from "./config.ts";

export interface ExecOptions {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  input?: string;
  signal?: AbortSignal | undefined;
}

/** A command that ended with another code than 0. `message` is its last line on stderr. */
export class ExecError extends Error {
  override readonly name = "ExecError";
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  constructor(file: string, code: number | null, stdout: string, stderr: string) {
    super(stderr.trim().split("\n").at(-1) || `${file} ended with code ${code}`);
    this.code = code;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

/** Runs a command to its end and returns its standard output. Throws {@link ExecError}. */
export const exec = async (
  file: string,
  args: readonly string[],
  options: ExecOptions = {},
): Promise<string> => {
  const child = spawn(file, args, {
    cwd: options.cwd,
    env: options.env ?? childEnvironment(),
    signal: options.signal,
    stdio: "pipe",
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on("data", (data: Buffer) => out.push(data));
  child.stderr.on("data", (data: Buffer) => err.push(data));
  child.stdin.on("error", () => undefined); // the child may end without reading its input
  child.stdin.end(options.input ?? "");
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const stdout = Buffer.concat(out).toString();
  if (code !== 0) throw new ExecError(file, code, stdout, Buffer.concat(err).toString());
  return stdout;
};
