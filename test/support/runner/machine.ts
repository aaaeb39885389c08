/** What this machine lacks for a test level, and how it gets it. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { describeMissing, type Level as ClusterLevel, missing } from "../cluster/requirements.ts";

/** True on a build server: `CI` is set to anything but nothing, 0 or false. */
export const isStrict = (env: NodeJS.ProcessEnv): boolean =>
  !["", "0", "false"].includes(env["CI"]?.toLowerCase() ?? "");

export interface Machine {
  /** `--setup` was given. */
  asked: boolean;
  strict: boolean;
  root: boolean;
  debian: boolean;
  terminal: boolean;
}

/** May packages be installed without asking? */
export const maySetUp = ({ asked, strict, root, debian, terminal }: Machine): boolean =>
  asked || strict || (root && debian && !terminal);

export const thisMachine = (asked: boolean): Machine => ({
  asked,
  strict: isStrict(process.env),
  root: process.getuid?.() === 0,
  debian: existsSync("/etc/debian_version"),
  terminal: process.stdin.isTTY || process.stdout.isTTY,
});

const aptGet = (...args: string[]): boolean =>
  spawnSync("apt-get", ["-qq", ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
  }).status === 0;

/** Installs what the levels need as packages and this machine lacks, naming each as it goes. */
const install = async (level: ClusterLevel, say: (line: string) => void): Promise<void> => {
  const wanted = (await missing(level)).filter(({ packages }) => packages.length > 0);
  const names = [...new Set(wanted.flatMap(({ packages }) => packages))];
  if (names.length === 0) return;
  for (const { name, reason, packages } of wanted)
    say(`installing ${packages.join(" ")} for ${name}: ${reason}`);
  if (!aptGet("update") || !aptGet("install", "-y", "--no-install-recommends", ...names))
    say(`apt-get could not install ${names.join(" ")}: as root, see what it printed above`);
};

/** Why this machine cannot run a level, in one line that ends with what to do; undefined when it can. */
export const lacks = async (
  level: ClusterLevel,
  machine: Machine,
  say: (line: string) => void,
): Promise<string | undefined> => {
  if (maySetUp(machine)) await install(level, say);
  const left = await missing(level);
  if (left.length === 0) return undefined;
  const flag = left.some(({ packages }) => packages.length > 0)
    ? "; npm test -- --setup installs packages"
    : "";
  return `${describeMissing(left)}${flag}`;
};
