import { findCgroup, setFrozen, someProcess } from "./cgroup.ts";
import type { Cluster } from "./cluster.ts";
import { ClusterError } from "./config.ts";
import { exec } from "./exec.ts";
import type { Fault, Faults } from "./faults.ts";

export interface CutOptions {
  /** Addresses or networks that it can no longer reach, nor be reached by. Default: all. */
  to?: readonly string[];
}

/** A pod on a node of the lab: as this object is made anew, so is the pod looked up. */
export class PodHandle {
  readonly namespace: string;
  readonly name: string;
  readonly #cluster: Cluster;
  readonly #faults: Faults;
  /** cgroup of a node by its name. */
  readonly #nodeCgroup: (node: string) => string;

  constructor(
    namespace: string,
    name: string,
    at: { cluster: Cluster; faults: Faults; nodeCgroup: (node: string) => string },
  ) {
    this.namespace = namespace;
    this.name = name;
    this.#cluster = at.cluster;
    this.#faults = at.faults;
    this.#nodeCgroup = at.nodeCgroup;
  }

  /** Stops all its processes. The API goes on to say that it runs. */
  async freeze(): Promise<Fault> {
    const cgroup = await this.#cgroup();
    await setFrozen(cgroup, true);
    return this.#faults.add(`pod ${this.name} frozen`, () => thawIfThere(cgroup));
  }

  async thaw(): Promise<void> {
    await setFrozen(await this.#cgroup(), false);
  }

  /** Ends a container's processes, as the kernel does when memory runs out. */
  async kill(container: string): Promise<void> {
    const args = ["get", "pod", this.name, "-n", this.namespace, "-o", "json"];
    const { status } = JSON.parse(await this.#cluster.kubectl(args)) as {
      status: Record<
        "initContainerStatuses" | "containerStatuses",
        { name: string; containerID?: string }[] | undefined
      >;
    };
    const all = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
    const id = all.find(({ name }) => name === container)?.containerID?.replace("containerd://", "");
    const cgroup = id === undefined ? undefined : findCgroup(await this.#cgroup(), id);
    const pid = cgroup === undefined ? undefined : someProcess(cgroup);
    if (pid === undefined)
      throw new ClusterError(`${container} of ${this.namespace}/${this.name} has no process`);
    process.kill(pid, "SIGKILL");
  }

  /** Drops its packets. Loopback inside the pod still works when `to` is given. */
  async cut({ to = ["0.0.0.0/0"] }: CutOptions = {}): Promise<Fault> {
    const pid = someProcess(await this.#cgroup());
    if (pid === undefined) throw new ClusterError(`pod ${this.namespace}/${this.name} has no process`);
    const rules = to.flatMap((address) => [
      ["OUTPUT", "-d", address],
      ["INPUT", "-s", address],
    ]);
    const change = async (action: "-I" | "-D") => {
      for (const [chain = "", ...match] of rules)
        await exec("nsenter", [
          `--target=${pid}`,
          "--net",
          "iptables",
          "-w",
          action,
          chain,
          ...match,
          "-j",
          "DROP",
        ]);
    };
    await change("-I");
    return this.#faults.add(`pod ${this.name} cut`, async () => {
      await change("-D").catch(() => undefined); // its network is gone with the pod
    });
  }

  async #cgroup(): Promise<string> {
    const args = ["get", "pod", this.name, "-n", this.namespace, "-o", "json"];
    const pod = JSON.parse(await this.#cluster.kubectl(args)) as {
      metadata: { uid: string };
      spec: { nodeName?: string };
    };
    if (!pod.spec.nodeName) throw new ClusterError(`pod ${this.namespace}/${this.name} is on no node`);
    const found = findCgroup(this.#nodeCgroup(pod.spec.nodeName), `pod${pod.metadata.uid}`);
    if (!found) throw new ClusterError(`pod ${this.namespace}/${this.name} has no cgroup on its node`);
    return found;
  }
}

const thawIfThere = (cgroup: string) => setFrozen(cgroup, false).catch(() => undefined);
