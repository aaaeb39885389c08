/** The composition root: the only place that reads arguments and environment. */
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { basename } from "node:path";
import { runCli } from "./cli/main.ts";
import { systemClock, systemRandom } from "./runtime/clock.ts";

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
  version: string;
};

/** Runs the command that the arguments name, and leaves its exit code. */
export const main = async (): Promise<void> => {
  const { env } = process;
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
    version,
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
