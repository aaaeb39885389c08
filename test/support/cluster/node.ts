import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { copyFile, rm } from "node:fs/promises";
import path from "node:path";
import { boxScript, untilIsolated } from "./box.ts";
import { setFrozen } from "./cgroup.ts";
import type { Cluster } from "./cluster.ts";
import { ClusterError, childEnvironment } from "./config.ts";
import { exec } from "./exec.ts";
import type { Fault, Faults } from "./faults.ts";
import { cgroupOf } from "./folder.ts";
import { writeImages } from "./images.ts";
import type { Pki } from "./pki.ts";
import { type ProcessId, ended, identify, signal, until } from "./process.ts";

/** Address of the box on the network of the nodes. */
export const boxAddress = "172.30.0.1";

/** What all nodes of one lab share. */
export interface NodesHome {
  lab: string;
  assets: string;
  /** How many nodes there are. */
  count: number;
  faults: Faults;
  cluster: Cluster;
}

/** One machine of the cluster: own namespaces, own disk, containerd, kubelet and kube-proxy. */
export class Node {
  readonly number: number;
  readonly #home: NodesHome;

  constructor(number: number, home: NodesHome) {
    this.number = number;
    this.#home = home;
  }

  get name(): string {
    return `node${this.number}`;
  }

  get address(): string {
    return `172.30.0.1${this.number}`;
  }

  /** The node's cgroup, relative to each hierarchy of the box. */
  get cgroup(): string {
    return `${cgroupOf(this.#home.lab)}/${this.name}`;
  }

  /** Pulls the cable: nothing in or out, everything on it runs on. */
  async cut(): Promise<Fault> {
    await this.#link("down");
    return this.#home.faults.add(`${this.name} cut`, () => this.#link("up"));
  }

  /** Stops every process on it, as a stalled virtual machine. */
  async freeze(): Promise<Fault> {
    await setFrozen(this.cgroup, true);
    return this.#home.faults.add(`${this.name} frozen`, () => this.thaw());
  }

  thaw(): Promise<void> {
    return setFrozen(this.cgroup, false);
  }

  /** Ends everything on it at once. Its disk stays. Healing boots it and waits until it is Ready. */
  async powerOff(): Promise<Fault> {
    const id = this.#process;
    if (id) {
      signal(id, "SIGKILL");
      await ended(id);
    }
    return this.#home.faults.add(`${this.name} powered off`, async () => {
      await this.boot();
      await this.untilReady();
    });
  }

  /** Loads the images of a docker archive, as a pull would. */
  async load(archive: string): Promise<void> {
    const id = this.#process;
    if (id === undefined) throw new ClusterError(`${this.name} is not running`);
    const name = path.basename(archive);
    await copyFile(archive, path.join(this.#folder, name));
    await exec("nsenter", [
      `--target=${id.pid}`,
      "--mount",
      "--net",
      "--pid",
      "--",
      "ctr",
      "--namespace=k8s.io",
      "images",
      "import",
      `/run/node/${name}`,
    ]);
    await rm(path.join(this.#folder, name));
  }

  /** Starts it, on the disk it has. */
  async boot(): Promise<void> {
    const { lab, assets, count } = this.#home;
    const log = openSync(path.join(lab, "logs", `${this.name}.log`), "a");
    const args = [boxScript, "node", this.cgroup, lab, assets, String(this.number), String(count)];
    const child = spawn("bash", args, {
      env: childEnvironment(),
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    child.unref();
    const id = identify(child.pid ?? 0);
    if (!id) throw new ClusterError(`${this.name} did not start`);
    writeFileSync(this.#pidFile, JSON.stringify(id));
    await untilIsolated(id);
    const link = `n${this.number}`;
    await exec("ip", ["link", "delete", link]).catch(() => undefined); // of an earlier life
    await exec("ip", ["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", String(id.pid)]);
    await exec("ip", ["link", "set", link, "master", "fl0", "up"]);
    await exec("ip", ["route", "replace", `10.244.${this.number}.0/24`, "via", this.address]);
    // Services are reached through the first node's kube-proxy.
    if (this.number === 1) await exec("ip", ["route", "replace", "10.96.0.0/16", "via", this.address]);
  }

  /** Waits until the API says that it is Ready (at most 60 s). */
  async untilReady(): Promise<void> {
    await this.#untilCondition("True", 60_000);
  }

  /** Waits until the API no longer says that it is Ready (at most 60 s). */
  async untilNotReady(): Promise<void> {
    await this.#untilCondition("Unknown", 60_000);
  }

  get #folder() {
    return path.join(this.#home.lab, this.name);
  }

  get #pidFile() {
    return path.join(this.#home.lab, "pids", this.name);
  }

  get #process(): ProcessId | undefined {
    return existsSync(this.#pidFile)
      ? (JSON.parse(readFileSync(this.#pidFile, "utf8")) as ProcessId)
      : undefined;
  }

  async #link(state: "up" | "down") {
    await exec("ip", ["link", "set", `n${this.number}`, state]);
  }

  async #untilCondition(status: string, timeoutMs: number) {
    const path = '{.status.conditions[?(@.type=="Ready")].status}';
    await until(
      `${this.name} Ready=${status}`,
      timeoutMs,
      async () => {
        const args = ["get", "node", this.name, `--output=jsonpath=${path}`, "--ignore-not-found"];
        return (await this.#home.cluster.kubectl(args)) === status;
      },
      100,
    );
  }

  /** Makes its disk. */
  async prepare(pki: Pki, server: string): Promise<void> {
    for (const folder of [
      "run",
      "log/pods",
      "log/containers",
      "lib/kubelet",
      "lib/containerd",
      "lib/cni",
      "cni",
    ])
      mkdirSync(path.join(this.#folder, folder), { recursive: true });
    const client = await pki.issue(`${this.name}-client`, `system:node:${this.name}`, ["system:nodes"]);
    await pki.issue(`${this.name}-serving`, this.name, [], [`IP:${this.address}`, `DNS:${this.name}`]);
    const file = (name: string) => path.join(this.#folder, name);
    await pki.kubeconfig(file("kubelet.kubeconfig"), server, client);
    await pki.kubeconfig(file("kube-proxy.kubeconfig"), server, pki.files("kube-proxy"));
    for (const [name, source] of Object.entries({
      "ca.crt": pki.caFile,
      "serving.crt": pki.files(`${this.name}-serving`).certificate,
      "serving.key": pki.files(`${this.name}-serving`).key,
    }))
      writeFileSync(file(name), readFileSync(source));
    writeFileSync(file("resolv.conf"), ""); // no DNS query leaves the cluster
    writeFileSync(file("kubelet.json"), JSON.stringify(kubeletConfiguration));
    writeFileSync(file("cni/10-bridge.conflist"), JSON.stringify(podNetwork(this.number)));
    writeFileSync(file("containerd.toml"), containerdConfiguration);
    await writeImages(file("images.tar"));
  }

  /** Lets its kubelet start. */
  apiserverIsReady(): void {
    writeFileSync(path.join(this.#folder, "apiserver-ready"), "");
  }
}

const kubeletConfiguration = {
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
  failCgroupV1: false,
  cgroupDriver: "cgroupfs",
  failSwapOn: false,
  enforceNodeAllocatable: [],
  containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
  clusterDNS: [boxAddress],
  clusterDomain: "cluster.local",
  resolvConf: "/run/node/resolv.conf",
  volumePluginDir: "/var/lib/kubelet/plugins-exec",
  authentication: {
    anonymous: { enabled: false },
    webhook: { enabled: true },
    x509: { clientCAFile: "/run/node/ca.crt" },
  },
  authorization: { mode: "Webhook" },
  tlsCertFile: "/run/node/serving.crt",
  tlsPrivateKeyFile: "/run/node/serving.key",
  // The defaults evict pods and images from a machine whose disk is merely full.
  evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
  imageGCHighThresholdPercent: 100,
  imageGCLowThresholdPercent: 99,
  syncFrequency: "10s",
  nodeStatusUpdateFrequency: "1s",
  kubeAPIQPS: 500,
  kubeAPIBurst: 1000,
};

/** Without masquerading, so that pods of different nodes see each other's address. */
const podNetwork = (n: number) => ({
  cniVersion: "0.4.0",
  name: "pod",
  plugins: [
    {
      type: "bridge",
      bridge: "cni0",
      isGateway: true,
      hairpinMode: true,
      ipam: {
        type: "host-local",
        ranges: [[{ subnet: `10.244.${n}.0/24` }]],
        routes: [{ dst: "0.0.0.0/0" }],
      },
    },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
});

const containerdConfiguration = `version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/node/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`;
