/**
 * The command line: which command, with which options. What a command does stands in its own file, which is loaded only
 * for it: an `exec` beside a worker has no use for a Kubernetes client.
 */
import { Command, CommanderError } from "commander";
import type { CliDeps } from "./deps.ts";
import { CliError, exitCode, failureOf } from "./errors.ts";
import type { ExecFlags } from "./exec.ts";
import type { GetFlags } from "./get.ts";
import type { GuardFlags } from "./guard.ts";
import type { ReleaseFlags } from "./release.ts";
import { printable } from "./text.ts";

/** Runs the command that the arguments name. Resolves with the exit code; errors are told on stderr in one line. */
export const runCli = async (deps: CliDeps): Promise<number> => {
  const { stdout, stderr } = deps;
  const name = deps.plugin ? "kubectl fence" : "fenceline";
  let code = 0;
  let ofExec = false;

  const program = new Command(name)
    .description("Fencing tokens for Kubernetes: who may write, and who may not any more.")
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: () => {} })
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .option("-n, --namespace <name>", "namespace (default: the context's)")
    .option("--context <name>", "context of the kubeconfig")
    .option(
      "--kubeconfig <file>",
      "default: KUBECONFIG, else .kube/config in HOME, else the pod's own cluster",
    );

  program
    .command("controller")
    .description("run coordinator and controller")
    .requiredOption("--config <file>", "configuration, see docs/configuration.md")
    .action(({ config }: { config: string }) => deps.controller({ config }));

  program
    .command("agent")
    .description("hold the rights of a pod, as its sidecar: configured by its environment, see docs/agent.md")
    .argument("[gate]", "wait until the agent holds them, as an init container that can fail")
    .action(() => {
      throw new CliError("usage", "agent takes no options: it is configured by its environment");
    });

  const execCommand = program
    .command("exec")
    .description("run a command under a token: renewed while it runs, stopped when the right is lost")
    .usage("--resource <ns/name> [options] -- <command> [args...]")
    .argument("[command...]", "after --")
    .requiredOption("--resource <ns/name>", "what must have one writer at a time")
    .option("--wait <seconds>", "give up after this long (default: wait for as long as it takes)")
    .option("--no-wait", "do not wait while another one holds it")
    .option("--grace <seconds>", "between SIGTERM and SIGKILL when the right is lost", "10")
    .option("--label <text>", "what people see as the holder's name")
    .action(async (words: string[], _: unknown, self: Command) => {
      const { exec } = await import("./exec.ts");
      code = await exec(self.optsWithGlobals<ExecFlags>(), afterDashes(words, deps.argv), deps);
    })
    .hook("preAction", () => {
      ofExec = true;
    });
  coordinatorOptions(execCommand).exitOverride((error) => {
    ofExec = true;
    throw error;
  });

  program
    .command("get")
    .description("list resources: who holds them, with which token")
    .argument("[ns/name]", "one of them")
    .option("-A, --all-namespaces", "in every namespace")
    .option("-o, --output <form>", "wide, json or yaml")
    .action(async (text: string | undefined, _: unknown, self: Command) => {
      const { get } = await import("./get.ts");
      await get(text, self.optsWithGlobals<GetFlags>(), deps);
    });

  program
    .command("describe")
    .description("everything about one resource, and what to do about it")
    .argument("<ns/name>")
    .action(async (text: string, _: unknown, self: Command) => {
      const { describe } = await import("./describe.ts");
      await describe(text, self.optsWithGlobals<GetFlags>(), deps);
    });

  program
    .command("watch")
    .description("tell each change of hands as it happens")
    .argument("[ns/name]", "one of them")
    .option("-A, --all-namespaces", "in every namespace")
    .option("-o, --output <form>", "wide or json, a line each")
    .action(async (text: string | undefined, _: unknown, self: Command) => {
      const { watch } = await import("./watch.ts");
      code = await watch(text, self.optsWithGlobals<GetFlags>(), deps);
    });

  coordinatorOptions(
    program
      .command("release")
      .description("take a resource away from its holder; the next grant has a higher token")
      .argument("<ns/name>")
      .option("--force", "needed: the holder's work may still run")
      .option("--reason <text>", "why, for the record"),
  ).action(async (text: string, _: unknown, self: Command) => {
    const { release } = await import("./release.ts");
    await release(text, self.optsWithGlobals<ReleaseFlags>(), deps);
  });

  const guard = program
    .command("guard")
    .description("the guard in a PostgreSQL database: it refuses writes without the right token");
  guardOptions(guard.command("plan"), "print the SQL of an installation").action(
    async (flags: GuardFlags) => {
      (await import("./guard.ts")).plan(flags, deps);
    },
  );
  guardOptions(guard.command("install"), "install or upgrade it; without --table the schema alone").action(
    async (flags: GuardFlags) => (await import("./guard.ts")).install(flags, deps),
  );
  guardOptions(
    guard.command("verify"),
    "see it refuse, and list the ways around it; exit code 1 if one is open",
  )
    .option("-o, --output <form>", "json")
    .action(async (flags: GuardFlags) => {
      code = await (await import("./guard.ts")).verify(flags, deps);
    });
  guardOptions(guard.command("remove"), "take the guard of a table away, or all of it")
    .option("--all", "the whole schema, with its marks: old tokens are believed again")
    .action(async (flags: GuardFlags) => (await import("./guard.ts")).remove(flags, deps));

  program
    .command("crds")
    .description("print the custom resource definitions, for kubectl apply -f -")
    .option("--policies", "and the admission policies")
    .action(async ({ policies }: { policies?: boolean }) => {
      const { crds } = await import("./crds.ts");
      stdout.write(crds(policies === true));
    });

  program
    .command("version")
    .description("print the version")
    .action(() => void stdout.write(`fenceline ${deps.version}\n`));

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

const guardOptions = (command: Command, description: string): Command =>
  command
    .description(description)
    .option(
      "--database-url-file <file>",
      "holds postgres://user:password@host:5432/database (default: FENCELINE_DATABASE_URL)",
    )
    .option(
      "--ca-file <file>",
      "certificates to trust for the database, PEM (default: those of the platform)",
    )
    .option("--table <[schema.]table...>", "tables to guard; may be repeated")
    .option("--resource <ns/name>", "the resource whose token is wanted")
    .option("--mode <mode>", "Hold: any number of writes under a token; Once: one", "Hold")
    .option("--advance <when>", "OnGrant, or OnFirstWrite", "OnGrant");

const coordinatorOptions = (command: Command): Command =>
  command
    .option("--server <url>", "the coordinator, as https://host:8443")
    .option("--ca-file <file>", "certificates to trust for it, PEM (default: those of the platform)")
    .option(
      "--token-file <file>",
      "who is asking: a bearer token with audience fenceline, read again when it changes",
    )
    .option("--service-account <[ns/]name>", "who is asking: a service account, by a token from the cluster");

/** Without the dashes a flag of the command could be taken for one of ours. */
const afterDashes = (words: readonly string[], argv: readonly string[]): readonly string[] => {
  const at = argv.indexOf("--");
  if (at === -1 && words.length > 0)
    throw new CliError("usage", `write the command after --, as in: fenceline exec … -- ${words.join(" ")}`);
  return argv.slice(at + 1);
};

/** Help that was asked for is no error. */
const usageError = (error: CommanderError, name: string): CliError | undefined => {
  if (error.exitCode === 0) return undefined;
  const message =
    error.code === "commander.help" ? "no command given" : error.message.replace(/^error: /, "");
  return new CliError("usage", `${printable(message)}: see ${name} --help`);
};
