/**
 * Exit codes, and the one line that goes with each.
 *
 * | code | of `exec` | means |
 * | --- | --- | --- |
 * | 0 | | done |
 * | 1 | 124 | failed, refused |
 * | 2 | 120 | usage: what was typed, or a file that it names |
 * | 3 | 121 | busy |
 * | 4 | 122 | lost |
 * | 6 | 123 | unreachable |
 * | 128+n | 128+n | ended by signal n |
 */
import { constants } from "node:os";
import { KubeError } from "../kube/errors.ts";
import { DatabaseError } from "../postgres/errors.ts";

export type Failure = "failed" | "usage" | "busy" | "lost" | "unreachable";

const codes: Record<Failure, { plain: number; exec: number }> = {
  failed: { plain: 1, exec: 124 },
  usage: { plain: 2, exec: 120 },
  busy: { plain: 3, exec: 121 },
  lost: { plain: 4, exec: 122 },
  unreachable: { plain: 6, exec: 123 },
};

export const exitCode = (failure: Failure, ofExec: boolean): number =>
  ofExec ? codes[failure].exec : codes[failure].plain;

export const signalCode = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

/** An end that a person or a script has to act on. */
export class CliError extends Error {
  readonly failure: Failure;
  constructor(failure: Failure, message: string) {
    super(message);
    this.name = "CliError";
    this.failure = failure;
  }
}

const ofKube = ({ code }: KubeError): Failure => {
  switch (code) {
    case "unreachable":
      return "unreachable";
    case "bad_config":
      return "usage";
    case "bad_answer":
    case "forbidden":
    case "unauthorized":
      return "failed";
    default: {
      const never: never = code;
      return never;
    }
  }
};

/** What ended a command, whatever was thrown. */
export const failureOf = (error: unknown): { failure: Failure; message: string } => {
  if (error instanceof CliError) return { failure: error.failure, message: error.message };
  if (error instanceof KubeError) return { failure: ofKube(error), message: error.message };
  if (error instanceof DatabaseError)
    return { failure: error.kind === "unreachable" ? "unreachable" : "failed", message: error.message };
  return { failure: "failed", message: error instanceof Error ? error.message : String(error) };
};
