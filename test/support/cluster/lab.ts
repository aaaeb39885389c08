import { cpSync, writeFileSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import path from "node:path";
import { Cluster, type ClusterAccess } from "./cluster.ts";
import { Component, type ComponentSpec, type Surroundings } from "./component.ts";
import { ClusterError, failureFolder } from "./config.ts";
import { anotherApiserver, kubeconfigFile } from "./controlplane.ts";
import { Faults } from "./faults.ts";
import { removeLab } from "./folder.ts";
import { Pki } from "./pki.ts";
import { freePorts } from "./ports.ts";

/** A lab as plain data. It is also kept in the lab's folder as `lab.json`. */
export interface LabState {
  access: ClusterAccess;
  folder: string;
  tethered: boolean;
  etcd: ComponentSpec;
  apiserver: ComponentSpec;
  /** Controller manager, scheduler, DNS: what watches the API server. In their order of start. */
  clients: ComponentSpec[];
}

/** A copy of etcd's data. */
export type Snapshot = string & { readonly snapshot: unique symbol };

/** etcd, with snapshots. */
export class Etcd extends Component {
  readonly #folder: string;
  readonly #above: () => Component[];
  #snapshots = 0;

  /** `above` are the components that read etcd, in their order of start. */
  constructor(spec: ComponentSpec, at: Surroundings, above: () => Component[]) {
    super(spec, at);
    this.#folder = at.folder;
    this.#above = above;
  }

  /** Copies the data while etcd stands still (about 0.1 s). */
  async snapshot(): Promise<Snapshot> {
    const target = path.join(this.#folder, `snapshot-${++this.#snapshots}`) as Snapshot;
    const pause = await this.pause();
    try {
      await cp(this.#data, target, { recursive: true });
    } finally {
      await pause.heal();
    }
    return target;
  }

  /**
   * What an operator does after a disaster: everything stops, the old data is put in place, everything starts.
   * resourceVersion goes back, and a watch from a higher one is deaf.
   */
  async restore(snapshot: Snapshot): Promise<void> {
    const above = this.#above().filter((component) => component.running);
    for (const component of above.toReversed()) await component.stop();
    await this.stop();
    await rm(this.#data, { recursive: true });
    await cp(snapshot, this.#data, { recursive: true });
    await this.start();
    for (const component of above) await component.start();
  }

  get #data() {
    return path.join(this.#folder, "etcd");
  }
}

/** One API server. */
export interface ApiServer {
  readonly component: Component;
  readonly server: string;
  readonly kubeconfig: string;
}

/** A cluster of our own: it may be broken in every way. */
export class Lab extends Cluster implements AsyncDisposable {
  readonly state: LabState;
  readonly etcd: Etcd;
  readonly apiserver: Component;
  /** Controller manager, scheduler and DNS, as far as they run here. */
  readonly clients: readonly Component[];
  protected readonly surroundings: Surroundings;
  readonly #pki: Pki;
  readonly #more: Component[] = [];

  constructor(state: LabState) {
    super(state.access);
    this.state = state;
    const { folder, tethered } = state;
    this.surroundings = { folder, tethered, faults: new Faults() };
    this.#pki = new Pki(path.join(folder, "pki"));
    this.apiserver = new Component(state.apiserver, this.surroundings);
    this.clients = state.clients.map((spec) => new Component(spec, this.surroundings));
    this.etcd = new Etcd(state.etcd, this.surroundings, () => [
      this.apiserver,
      ...this.#more,
      ...this.clients,
    ]);
  }

  get folder(): string {
    return this.state.folder;
  }

  client(name: "kube-controller-manager" | "kube-scheduler" | "coredns"): Component {
    const found = this.clients.find((component) => component.name === name);
    if (!found) throw new ClusterError(`this cluster runs no ${name}`);
    return found;
  }

  /** Starts everything that is not running. */
  async start(): Promise<void> {
    writeFileSync(path.join(this.folder, "lab.json"), JSON.stringify(this.state, null, 2));
    // The API server waits for etcd by itself.
    await Promise.all([this.etcd.start(), this.apiserver.start()]);
    for (const component of this.clients) await component.start();
    if (this.access.controllers) await this.untilServiceAccount("default");
  }

  /** Starts it. If that fails, its logs are kept, nothing else is left, and the error says where they are. */
  async startOrExplain(): Promise<void> {
    try {
      await this.start();
    } catch (error) {
      const logs = await this.collect(`start-${path.basename(this.folder)}`);
      await this[Symbol.asyncDispose]();
      if (!(error instanceof ClusterError)) throw error;
      throw new ClusterError(error.message.replaceAll(path.join(this.folder, "logs"), logs));
    }
  }

  /** Another API server over the same etcd. */
  async second(): Promise<ApiServer> {
    const [port = 0] = await freePorts(1);
    const component = new Component(anotherApiserver(this.state.apiserver, port), this.surroundings);
    this.#more.push(component);
    await component.start();
    const url = new URL(this.server);
    url.port = String(port);
    const server = url.origin;
    const file = kubeconfigFile(this.folder, component.name);
    return {
      component,
      server,
      kubeconfig: await this.#pki.kubeconfig(file, server, this.#pki.files("admin")),
    };
  }

  override async credentials(user: string, groups: readonly string[] = []): Promise<string> {
    const name = `user-${Buffer.from(JSON.stringify([user, groups]))
      .toString("base64url")
      .slice(0, 100)}`;
    const certificate = await this.#pki.issue(name, user, groups);
    return this.#pki.kubeconfig(kubeconfigFile(this.folder, name), this.server, certificate);
  }

  /** Heals every fault that is still open: for `afterEach`. */
  heal(): Promise<void> {
    return this.surroundings.faults.healAll();
  }

  /** Copies logs, events and pods' states to a folder that outlives the lab, and returns it. */
  async collect(name: string): Promise<string> {
    const target = path.join(failureFolder(), name.replaceAll(/[^\w.-]+/g, "_").slice(0, 120));
    cpSync(path.join(this.folder, "logs"), target, { recursive: true });
    for (const [file, args] of Object.entries(reports)) {
      const text = await this.kubectl([...args, "--request-timeout=5s"]).catch(
        (error: Error) => error.message,
      );
      writeFileSync(path.join(target, file), text);
    }
    return target;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeLab(this.folder);
  }
}

const reports = {
  "events.txt": ["get", "events", "-A", "--sort-by=.lastTimestamp"],
  "objects.txt": ["get", "nodes,pods,leases", "-A", "-o", "wide"],
};
