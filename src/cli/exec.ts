/**
 * `fenceline exec`: a command that runs only while its right is held.
 *
 * | state | grant | no grant | signal | command ends | right lost |
 * | --- | --- | --- | --- | --- | --- |
 * | waiting | running | 121 … 124 | give up, 128+n | – | 122 |
 * | running | – | – | handed on | what it left is stopped, release, its code | stop it, 122 |
 * | stopping | – | – | handed on | 122 | – |
 *
 * The command is stopped before the right is given back: after the release another one may hold it.
 */
import { peopleText, resourceText } from "../api/text.ts";
import { type Holding, makeHolder, type ReleaseEnd } from "../holder/holder.ts";
import type { HoldView } from "../holder/right.ts";
import type { WaitEnd } from "../holder/wait.ts";
import { silentLogger } from "../runtime/logger.ts";
import { type Running, runCommand } from "./command.ts";
import { type CoordinatorAccess, type CoordinatorFlags, reach } from "./coordinator.ts";
import type { CliDeps } from "./deps.ts";
import { CliError, exitCode, signalCode } from "./errors.ts";
import { advisory, printable } from "./text.ts";

export interface ExecFlags extends CoordinatorFlags {
  resource: string;
  /** Seconds; `--no-wait` gives false. Left out: for as long as it takes. */
  wait?: string | false;
  /** Seconds between SIGTERM and SIGKILL. */
  grace: string;
  label?: string;
}

/** How long a coordinator that never answered is believed in, in milliseconds. */
const contactMs = 10_000;

const handedOn = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

const secondsOf = (flag: string, text: string): number => {
  const seconds = /^\d{1,7}(\.\d{1,3})?$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(seconds)) throw new CliError("usage", `${flag} ${text}: give seconds, as in 30`);
  return seconds;
};

const checkedLabel = (label: string | undefined): string | undefined => {
  if (label === undefined || peopleText.safeParse(label).success) return label;
  throw new CliError("usage", `--label: give 1 to 128 printable characters`);
};

const checkedResource = (text: string): string => {
  if (resourceText.safeParse(text).success) return text;
  throw new CliError("usage", `${text} is no resource: write namespace/name`);
};

const checkedCommand = (argv: readonly string[]): readonly string[] => {
  if (argv.length === 0 || argv[0] === "")
    throw new CliError("usage", "which command? write it after --, as in: fenceline exec … -- ./import.sh");
  return argv;
};

/** Resolves with the exit code. */
export const exec = async (flags: ExecFlags, argv: readonly string[], deps: CliDeps): Promise<number> => {
  const resource = checkedResource(flags.resource);
  const command = checkedCommand(argv);
  const label = checkedLabel(flags.label);
  const graceMs = secondsOf("--grace", flags.grace) * 1000;
  const waitMs =
    flags.wait === undefined ? undefined : flags.wait === false ? 0 : secondsOf("--wait", flags.wait) * 1000;
  const access = await reach(flags, resource.split("/")[0] ?? "", deps);
  try {
    return await hold({ resource, command, label, graceMs, waitMs, access }, deps);
  } finally {
    await access.close();
  }
};

interface Plan {
  resource: string;
  command: readonly string[];
  label: string | undefined;
  graceMs: number;
  waitMs: number | undefined;
  access: CoordinatorAccess;
}

const hold = async (plan: Plan, deps: CliDeps): Promise<number> => {
  const { resource, label, waitMs } = plan;
  const { clock, random, process } = deps;
  const say = (text: string): void => void deps.stderr.write(`fenceline: ${resource}: ${printable(text)}\n`);

  let running: Running | undefined;
  let interrupted: NodeJS.Signals | undefined;
  const giveUp = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    if (running !== undefined) return running.signal(signal);
    interrupted ??= signal;
    giveUp.abort();
  };
  // A stopped exec cannot renew: its command stops with it, and both go on together.
  const onStop = (): void => {
    running?.signal("SIGSTOP");
    process.kill(process.pid, "SIGSTOP");
  };
  const onContinue = (): void => {
    holding.view();
    running?.signal("SIGCONT");
  };
  for (const signal of handedOn) process.on(signal, onSignal);
  process.on("SIGTSTP", onStop);
  process.on("SIGCONT", onContinue);

  const holder = makeHolder({ client: plan.access.client, clock, random, log: silentLogger });
  const holding = holder.hold({ resource, label, waitMs, contactMs }, giveUp.signal);
  holding.subscribe(narrator(say));
  try {
    const end = await holding.granted;
    if (interrupted !== undefined) {
      await holding.release();
      return signalCode(interrupted);
    }
    if (end.kind !== "granted") {
      await holding.release();
      return exitCode(withoutGrant(end, say), true);
    }
    say(
      `granted token ${end.token} (${end.guarantee === "Advisory" ? `Advisory: ${advisory}` : end.guarantee})`,
    );
    return await run(plan, end.token, holding, say, deps, (started) => {
      running = started;
      if (interrupted !== undefined) started.signal(interrupted);
    });
  } finally {
    for (const signal of handedOn) process.off(signal, onSignal);
    process.off("SIGTSTP", onStop);
    process.off("SIGCONT", onContinue);
  }
};

const run = async (
  { resource, command, graceMs }: Plan,
  token: bigint,
  holding: Holding,
  say: (text: string) => void,
  deps: CliDeps,
  onStart: (running: Running) => void,
): Promise<number> => {
  const env = { ...deps.env, FENCELINE_TOKEN: token.toString(), FENCELINE_RESOURCE: resource };
  const lost = new Promise<"lost">((resolve) => {
    if (holding.view().state === "lost") resolve("lost");
    holding.lost.addEventListener("abort", () => resolve("lost"));
  });
  if (holding.lost.aborted) {
    await holding.release();
    return exitCode("lost", true);
  }
  let running: Running;
  try {
    running = await runCommand(command, { ...deps, env });
  } catch (error) {
    await holding.release();
    throw error;
  }
  onStart(running);
  const first = await Promise.race([running.exited, lost]);
  if (first !== "lost" && holding.view().state !== "lost" && running.alive())
    say("the command ended and left processes behind: stopping them before the right is given back");
  if (running.alive()) await running.stop(graceMs);
  const code = first === "lost" ? exitCode("lost", true) : first;
  const isLost = holding.view().state === "lost";
  const released = await holding.release();
  tellRelease(released, token, isLost, say);
  // The end of the right came before the end of the work, and nobody had told.
  const goneBefore = released.kind === "gone" && released.reason !== "released";
  return isLost || goneBefore ? exitCode("lost", true) : code;
};

const tellRelease = (
  released: ReleaseEnd,
  token: bigint,
  isLost: boolean,
  say: (text: string) => void,
): void => {
  if (released.kind === "released") return isLost ? undefined : say(`released token ${token}`);
  if (released.kind === "unknown")
    return say(`token ${token} may not be given back (${released.detail}): it ends with its lease`);
  if (released.kind === "gone" && !isLost)
    say(`the right was gone before the command ended (${released.reason})`);
};

const withoutGrant = (end: Exclude<WaitEnd, { kind: "granted" }>, say: (text: string) => void) => {
  switch (end.kind) {
    case "busy":
      say(`busy: ${end.detail}`);
      return "busy";
    case "lost":
      say(`lost before it was held (${end.reason})`);
      return "lost";
    case "refused":
      say(`refused (${end.code}): ${end.detail}`);
      return "failed";
    case "unreachable":
      say(`the coordinator cannot be reached: ${end.detail}`);
      return "unreachable";
    case "given_up":
      return "busy";
    default: {
      const never: never = end;
      return never;
    }
  }
};

/** Tells what happens while it waits and while it holds, each thing once. */
const narrator = (say: (text: string) => void): ((view: HoldView) => void) => {
  let said = "";
  const once = (text: string): void => {
    if (text !== said) say(text);
    said = text;
  };
  let doubted = false;
  return (view) => {
    switch (view.state) {
      case "waiting":
        if (view.trouble !== undefined) once(`not yet: ${view.trouble}: asking again`);
        else if (view.waitingFor !== undefined) once(`waiting for ${view.waitingFor}`);
        return;
      case "held":
        if (doubted) once("renewed again");
        doubted = false;
        return;
      case "uncertain":
        if (!doubted)
          once(`not renewed (${view.trouble}): the right ends in ${Math.round(view.safeForMs / 1000)} s`);
        doubted = true;
        return;
      case "lost":
        once(`lost (${view.reason}): stopping the command`);
        return;
      case "released":
        return;
      default:
        view.state satisfies never;
    }
  };
};
