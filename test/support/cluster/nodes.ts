import { writeFileSync } from "node:fs";
import path from "node:path";
import { findAssets } from "./api.ts";
import { surroundingBox } from "./box.ts";
import { buildCoreDns } from "./build.ts";
import { newRun } from "./cluster.ts";
import { ClusterError } from "./config.ts";
import {
  type ComponentFlags,
  type ControlPlane,
  apiserverSpec,
  controllerManagerSpec,
  etcdSpec,
  issueCertificates,
  kubeconfigFile,
  schedulerSpec,
} from "./controlplane.ts";
import { makeLabFolder } from "./folder.ts";
import { Lab, type LabState } from "./lab.ts";
import { Node, boxAddress } from "./node.ts";
import { Pki } from "./pki.ts";
import { PodHandle } from "./pod.ts";
import { freePorts } from "./ports.ts";

export interface NodesState extends LabState {
  assets: string;
  /** How many nodes. */
  nodes: number;
}

/** A cluster with nodes, in the box around this process. */
export class NodesLab extends Lab {
  declare readonly state: NodesState;
  readonly nodes: readonly Node[];

  constructor(state: NodesState) {
    super(state);
    const home = {
      lab: this.folder,
      assets: state.assets,
      count: state.nodes,
      faults: this.surroundings.faults,
      cluster: this,
    };
    this.nodes = Array.from({ length: state.nodes }, (_, index) => new Node(index + 1, home));
  }

  /** Nodes are counted from 1. */
  node(number: number): Node {
    const found = this.nodes[number - 1];
    if (!found) throw new ClusterError(`there is no node ${number}: this cluster has ${this.nodes.length}`);
    return found;
  }

  pod(namespace: string, name: string): PodHandle {
    const nodeCgroup = (node: string) => this.node(Number(node.replace("node", ""))).cgroup;
    return new PodHandle(namespace, name, { cluster: this, faults: this.surroundings.faults, nodeCgroup });
  }

  override async start(): Promise<void> {
    const boots = Promise.all(this.nodes.map((node) => node.boot()));
    await super.start();
    for (const node of this.nodes) node.apiserverIsReady();
    await boots;
    await Promise.all(this.nodes.map((node) => node.untilReady()));
  }
}

export interface NodesOptions {
  /** How many nodes: 1 to 9. Default 1. */
  nodes?: number;
  flags?: ComponentFlags;
  id?: string;
}

/** A lost node is noticed, and its pods replaced, within seconds instead of minutes. */
const quickFlags: Required<ComponentFlags> = {
  apiserver: ["--default-not-ready-toleration-seconds=2", "--default-unreachable-toleration-seconds=2"],
  controllerManager: ["--node-monitor-grace-period=6s", "--node-monitor-period=1s"],
};

/** Level `nodes`: control plane, DNS and nodes that run pods. Call it in a box (see `runInBox`). */
export const startNodes = async ({ nodes = 1, flags = {}, id }: NodesOptions = {}): Promise<NodesLab> => {
  if (!surroundingBox())
    throw new ClusterError("pods run in a box only: start this with npm run cluster -- run COMMAND");
  if (!Number.isInteger(nodes) || nodes < 1 || nodes > 9)
    throw new ClusterError(`a cluster has 1 to 9 nodes, not ${nodes}`);
  const assets = await findAssets();
  const coredns = await buildCoreDns();
  const folder = await makeLabFolder(id);
  const pki = new Pki(path.join(folder, "pki"));
  const plane: ControlPlane = {
    assets,
    folder,
    pki,
    nodesAddress: boxAddress,
    flags: {
      apiserver: [...quickFlags.apiserver, ...(flags.apiserver ?? [])],
      controllerManager: [...quickFlags.controllerManager, ...(flags.controllerManager ?? [])],
    },
  };
  await issueCertificates(plane);
  const [etcdPort = 0, peerPort = 0, apiPort = 0, managerPort = 0, schedulerPort = 0] = await freePorts(5);
  const server = `https://${boxAddress}:${apiPort}`;
  await Promise.all(
    ["admin", "controller-manager", "scheduler"].map((user) =>
      pki.kubeconfig(kubeconfigFile(folder, user), server, pki.files(user)),
    ),
  );
  const corefile = path.join(folder, "Corefile");
  writeFileSync(corefile, dns(kubeconfigFile(folder, "admin")));
  const lab = new NodesLab({
    access: {
      kubeconfig: kubeconfigFile(folder, "admin"),
      context: "lab",
      server,
      kubectl: path.join(assets, "kubectl"),
      cache: folder,
      run: newRun(),
      controllers: true,
    },
    folder,
    tethered: false,
    assets,
    nodes,
    etcd: etcdSpec(plane, etcdPort, peerPort),
    apiserver: apiserverSpec(plane, etcdPort, apiPort),
    clients: [
      controllerManagerSpec(plane, managerPort),
      schedulerSpec(plane, schedulerPort),
      { name: "coredns", argv: [coredns, "-conf", corefile] },
    ],
  });
  await Promise.all(lab.nodes.map((node) => node.prepare(pki, server)));
  await lab.startOrExplain();
  return lab;
};

const dns = (kubeconfig: string) => `.:53 {
  bind ${boxAddress}
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig ${kubeconfig} lab
  }
  cache 2
}
`;
