import { spawn } from "node:child_process";
import { existsSync, openSync, closeSync, readFileSync, writeFileSync } from "node:fs";
import https from "node:https";
import path from "node:path";
import { ClusterError, childEnvironment } from "./config.ts";
import type { Fault, Faults } from "./faults.ts";
import { type ProcessId, alive, ended, identify, signal, until } from "./process.ts";

/** How a component is run: plain data, so that another process can take over its handle. */
export interface ComponentSpec {
  name: string;
  argv: string[];
  /** It is ready when this URL answers 200 to the lab's administrator. */
  ready?: string;
}

/** What all components of one lab share. */
export interface Surroundings {
  folder: string;
  /** Components die with the thread that started them. Off in a box, where they die with the box. */
  tethered: boolean;
  faults: Faults;
}

const tls = (folder: string) => ({
  ca: readFileSync(path.join(folder, "pki/ca.crt")),
  cert: readFileSync(path.join(folder, "pki/admin.crt")),
  key: readFileSync(path.join(folder, "pki/admin.key")),
});

const answersOk = (url: string, options: https.RequestOptions) =>
  new Promise<boolean>((resolve) => {
    const request = https.get(url, { ...options, timeout: 2_000, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(false));
  });

/** One process of the control plane, known by its pid file. */
export class Component {
  readonly spec: ComponentSpec;
  readonly #at: Surroundings;

  constructor(spec: ComponentSpec, at: Surroundings) {
    this.spec = spec;
    this.#at = at;
  }

  get name(): string {
    return this.spec.name;
  }

  get logFile(): string {
    return path.join(this.#at.folder, "logs", `${this.name}.log`);
  }

  get process(): ProcessId | undefined {
    return existsSync(this.#pidFile)
      ? (JSON.parse(readFileSync(this.#pidFile, "utf8")) as ProcessId)
      : undefined;
  }

  get running(): boolean {
    return this.process !== undefined && alive(this.process);
  }

  /** Starts it and waits until it is ready (at most 60 s). */
  async start(): Promise<void> {
    if (this.running) throw new ClusterError(`${this.name} is running already`);
    const log = openSync(this.logFile, "a");
    const tether = this.#at.tethered ? ["setpriv", "--pdeathsig", "KILL", "--"] : [];
    const [file = "", ...args] = [...tether, ...this.spec.argv];
    const child = spawn(file, args, {
      env: childEnvironment(),
      cwd: this.#at.folder,
      stdio: ["ignore", log, log],
      detached: !this.#at.tethered,
    });
    closeSync(log);
    child.unref();
    await new Promise((resolve, reject) => child.once("spawn", resolve).once("error", reject));
    const id = identify(child.pid ?? 0);
    if (id) writeFileSync(this.#pidFile, JSON.stringify(id));
    await this.untilReady();
  }

  async untilReady(): Promise<void> {
    const url = this.spec.ready;
    if (url === undefined) return;
    const options = tls(this.#at.folder);
    await until(`${this.name} ready (log: ${this.logFile})`, 60_000, () => {
      if (!this.running) throw new ClusterError(`${this.name} ended: ${this.#lastWords()}`);
      return answersOk(url, options);
    });
  }

  /** SIGKILL. Healing starts it again. */
  async kill(): Promise<Fault> {
    await this.stop();
    return this.#at.faults.add(`${this.name} killed`, async () => {
      if (!this.running) await this.start();
    });
  }

  /** SIGSTOP: connections stay open and nothing answers. Healing lets it run on. */
  async pause(): Promise<Fault> {
    this.#signal("SIGSTOP");
    return this.#at.faults.add(`${this.name} paused`, () => this.resume());
  }

  async resume(): Promise<void> {
    this.#signal("SIGCONT");
  }

  /** SIGKILL, and waits until it is gone. */
  async stop(): Promise<void> {
    const id = this.process;
    if (!id) return;
    signal(id, "SIGKILL");
    await ended(id);
  }

  get #pidFile() {
    return path.join(this.#at.folder, "pids", this.name);
  }

  #signal(name: NodeJS.Signals) {
    if (this.process) signal(this.process, name);
  }

  #lastWords() {
    const lines = readFileSync(this.logFile, "utf8").trim().split("\n");
    return `${lines.findLast((line) => /err|fatal|^[EF]\d{4}/i.test(line)) ?? lines.at(-1)} (log: ${this.logFile})`;
  }
}
