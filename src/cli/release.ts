/** `fenceline release --force`: an operator takes a resource away. */
import { peopleText } from "../api/text.ts";
import { type CoordinatorFlags, reach } from "./coordinator.ts";
import type { CliDeps } from "./deps.ts";
import { CliError } from "./errors.ts";
import { resourceNamed } from "./get.ts";
import { printable } from "./text.ts";

export interface ReleaseFlags extends CoordinatorFlags {
  force?: boolean;
  reason?: string;
}

const answerMs = 15_000;

export const release = async (text: string, flags: ReleaseFlags, deps: CliDeps): Promise<void> => {
  const { namespace, name } = resourceNamed(text, flags.namespace ?? "");
  if (flags.force !== true)
    throw new CliError("usage", "a holder gives back by itself: write --force to take it away");
  if (flags.reason === undefined || !peopleText.safeParse(flags.reason).success)
    throw new CliError("usage", "--reason goes on record: give 1 to 128 printable characters");
  const resource = `${namespace}/${name}`;
  const access = await reach(flags, namespace, deps);
  try {
    const reply = await access.client.force(resource, flags.reason, answerMs);
    if (reply.kind === "silent")
      throw new CliError(
        "unreachable",
        `${resource}: the coordinator did not answer: ${reply.message}; look with fenceline get ${resource}`,
      );
    if (reply.kind === "refused")
      throw new CliError("failed", `${resource}: refused (${reply.problem.code}): ${reply.problem.detail}`);
    const { released, holder, token } = reply.value;
    deps.stdout.write(
      released
        ? `${resource}: taken away from ${printable(holder ?? "its holder")}${token === undefined ? "" : ` (token ${token})`}\n`
        : `${resource}: nobody held it\n`,
    );
  } finally {
    await access.close();
  }
};
