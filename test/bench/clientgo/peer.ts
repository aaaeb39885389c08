/** The peer of the coordinator's bench: client-go's leader election, in processes that can be killed and stopped. */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { buildProgram } from "../../support/cluster/build.ts";
import { childEnvironment } from "../../support/cluster/config.ts";

/** Builds the candidate, or finds it built. Returns its binary. */
export const buildPeer = (): Promise<string> => buildProgram("clientgo-peer", import.meta.dirname);

/** A line of the candidate: see main.go. `at` is in seconds since 1970. */
export interface PeerEvent {
  at: number;
  id: string;
  event: "leading" | "newLeader" | "gap" | "stopped" | "exit";
  leader?: string;
  seconds?: number;
}

export interface CandidateOptions {
  binary: string;
  kubeconfig: string;
  context?: string;
  namespace: string;
  /** Of the Lease. */
  name: string;
  id: string;
  /** Seconds, where they are not the usual ones: 15, 10, 2. */
  timings?: { lease: number; deadline: number; retry: number };
}

/** One running candidate. It dies with this process. */
export class Candidate implements AsyncDisposable {
  readonly #child;
  readonly #events: PeerEvent[] = [];
  readonly #ended: Promise<void>;
  #wake = () => {};
  #errors = "";

  constructor({ binary, kubeconfig, context, namespace, name, id, timings }: CandidateOptions) {
    const flags: Record<string, string | undefined> = {
      kubeconfig,
      context,
      namespace,
      name,
      id,
      ...(timings && {
        lease: `${timings.lease}s`,
        deadline: `${timings.deadline}s`,
        retry: `${timings.retry}s`,
      }),
    };
    const args = Object.entries(flags).flatMap(([flag, value]) =>
      value === undefined ? [] : [`-${flag}=${value}`],
    );
    this.#child = spawn("setpriv", ["--pdeathsig", "KILL", binary, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: childEnvironment(),
    });
    this.#child.stderr.on(
      "data",
      (data: Buffer) => (this.#errors = `${this.#errors}${data.toString()}`.slice(-4096)),
    );
    createInterface(this.#child.stdout).on("line", (line) => {
      this.#events.push(JSON.parse(line) as PeerEvent);
      this.#wake();
    });
    this.#ended = new Promise((resolve) => {
      this.#child.on("close", () => {
        resolve();
        this.#wake();
      });
      this.#child.on("error", (error) => (this.#errors += error.message));
    });
  }

  /** The first event of that kind, as soon as there is one. Rejects when the candidate ends before, or too late. */
  async event(kind: PeerEvent["event"], timeoutMs = 60_000): Promise<PeerEvent> {
    const late = AbortSignal.timeout(timeoutMs);
    for (;;) {
      const found = this.#events.find(({ event }) => event === kind);
      if (found !== undefined) return found;
      if (late.aborted || this.#child.exitCode !== null || this.#child.signalCode !== null)
        throw new Error(`the client-go candidate gave no "${kind}" ${this.#errors.trim()}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        late.addEventListener("abort", () => resolve(), { once: true });
      });
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }
}

/** How the leader goes: killed, stopped (and continued once the other leads), or told to end. */
export type Parting = "SIGKILL" | "SIGSTOP" | "SIGTERM";

export interface Takeover {
  /** From the signal until the other leads, in milliseconds. */
  takeoverMs: number;
  /** After SIGSTOP only: how long the woken old leader went on as one, although the other led, in milliseconds. */
  workedOnMs?: number;
}

/** One takeover between two candidates on a Lease of their own, `afterMs` after both were there. */
export const takeover = async (
  parting: Parting,
  options: Omit<CandidateOptions, "name" | "id">,
  afterMs: number,
): Promise<Takeover> => {
  const name = `peer-${randomUUID()}`;
  await using first = new Candidate({ ...options, name, id: "first" });
  await first.event("leading");
  await using second = new Candidate({ ...options, name, id: "second" });
  await second.event("newLeader");
  await sleep(afterMs);
  const gone = Date.now();
  first.signal(parting);
  const takeoverMs = (await second.event("leading", 120_000)).at * 1000 - gone;
  if (parting !== "SIGSTOP") return { takeoverMs };
  const woken = Date.now();
  first.signal("SIGCONT");
  return { takeoverMs, workedOnMs: (await first.event("stopped", 120_000)).at * 1000 - woken };
};
