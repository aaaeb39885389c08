/** The composition root: the only place that reads arguments and environment. */
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { basename } from "node:path";
import { systemClock, systemRandom } from "./runtime/clock.ts";
import { beFrugal } from "./runtime/frugal.ts";

const versionOf = (): string => {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
};

/** The agent stands beside every worker: it is begun without the command line and its libraries. */
const agent = async (words: readonly string[]): Promise<void> => {
  const { env, stderr } = process;
  beFrugal();
  if (words[0] === "gate") {
    const { runGate } = await import("./agent/gate.ts");
    process.exitCode = await runGate({ env, stderr, clock: systemClock });
    return;
  }
  const [{ runAgent }, { systemMoments }] = await Promise.all([
    import("./agent/main.ts"),
    import("./runtime/moment.ts"),
  ]);
  const moments = systemMoments();
  await runAgent({ env, stderr, clock: systemClock, random: systemRandom, moments, process });
};

/** Runs the command that the arguments name, and leaves its exit code. */
export const main = async (): Promise<void> => {
  const { env } = process;
  const [command, ...words] = process.argv.slice(2);
  if (command === "agent" && !words.some((word) => word.startsWith("-"))) {
    return agent(words);
  }
  const { runCli } = await import("./cli/main.ts");
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env;
  process.exitCode = await runCli({
    argv: process.argv.slice(2),
    plugin: basename(process.argv[1] ?? "") === "kubectl-fence",
    env,
    stdout: process.stdout,
    stderr: process.stderr,
    clock: systemClock,
    random: systemRandom,
    process,
    version: versionOf(),
    async controller({ config }) {
      // Only the long-running process has use for all that it is made of.
      const { readConfig, serve } = await import("./serve.ts");
      return serve(await readConfig(config), {
        clock: systemClock,
        random: systemRandom,
        process,
        service: host === undefined || port === undefined ? undefined : { host, port },
        hostname: env["POD_NAME"] ?? hostname(),
      });
    },
  });
};
