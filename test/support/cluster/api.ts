import path from "node:path";
import { buildKube } from "./build.ts";
import { newRun } from "./cluster.ts";
import {
  type ComponentFlags,
  type ControlPlane,
  apiserverSpec,
  controllerManagerSpec,
  etcdSpec,
  hasControllerManager,
  issueCertificates,
  kubeconfigFile,
} from "./controlplane.ts";
import { makeLabFolder } from "./folder.ts";
import { Lab } from "./lab.ts";
import { Pki } from "./pki.ts";
import { freePorts } from "./ports.ts";

export interface ApiOptions {
  /** Extra flags, for example `["--min-request-timeout=5"]`. */
  flags?: ComponentFlags;
  /** Folder with etcd, kube-apiserver and kubectl. Default: KUBEBUILDER_ASSETS, else the build. */
  assets?: string;
  /** Name of the lab's folder. Default: random. */
  id?: string;
}

/** The folder of components to use. */
export const findAssets = async (): Promise<string> => process.env["KUBEBUILDER_ASSETS"] || buildKube();

/**
 * Level `api`: etcd, API server and (where there is one) controller manager as ordinary processes on free
 * ports of 127.0.0.1. Needs no root. They end with this process, however it ends.
 */
export const startApi = async (options: ApiOptions = {}): Promise<Lab> => {
  const assets = options.assets ?? (await findAssets());
  const folder = await makeLabFolder(options.id);
  const pki = new Pki(path.join(folder, "pki"));
  const plane: ControlPlane = { assets, folder, pki, flags: options.flags ?? {} };
  const controllers = hasControllerManager(assets);
  await issueCertificates(plane);
  const [etcdPort = 0, peerPort = 0, apiPort = 0, managerPort = 0] = await freePorts(4);
  const server = `https://127.0.0.1:${apiPort}`;
  const users = ["admin", ...(controllers ? ["controller-manager"] : [])];
  await Promise.all(
    users.map((user) => pki.kubeconfig(kubeconfigFile(folder, user), server, pki.files(user))),
  );
  const lab = new Lab({
    access: {
      kubeconfig: kubeconfigFile(folder, "admin"),
      context: "lab",
      server,
      kubectl: path.join(assets, "kubectl"),
      cache: folder,
      run: newRun(),
      controllers,
    },
    folder,
    tethered: true,
    etcd: etcdSpec(plane, etcdPort, peerPort),
    apiserver: apiserverSpec(plane, etcdPort, apiPort),
    clients: controllers ? [controllerManagerSpec(plane, managerPort)] : [],
  });
  await lab.startOrExplain();
  return lab;
};
