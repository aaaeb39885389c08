import type { Clock, Random } from "../runtime/clock.ts";

/** Where output goes. */
export interface Out {
  write(text: string): unknown;
  isTTY?: boolean | undefined;
}

/** What commands need of the process they run in. */
export interface ProcessLike {
  readonly pid: number;
  on(event: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  off(event: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  /** As `process.kill`: a negative `pid` names a process group; throws where there is none. */
  kill(pid: number, signal: NodeJS.Signals | 0): unknown;
}

export interface CliDeps {
  /** Without node and script. */
  argv: readonly string[];
  /** Called as `kubectl fence`. */
  plugin: boolean;
  env: Readonly<Record<string, string | undefined>>;
  stdout: Out;
  stderr: Out;
  clock: Clock;
  random: Random;
  process: ProcessLike;
  version: string;
  /** Starts the controller, and throws where it cannot even begin. */
  controller: (options: { config: string }) => Promise<void>;
}
