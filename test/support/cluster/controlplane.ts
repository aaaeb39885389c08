import { existsSync } from "node:fs";
import path from "node:path";
import type { ComponentSpec } from "./component.ts";
import type { Pki } from "./pki.ts";

/** Extra command line flags per component. */
export interface ComponentFlags {
  apiserver?: readonly string[];
  controllerManager?: readonly string[];
}

export interface ControlPlane {
  /** Folder with one executable per component. */
  assets: string;
  folder: string;
  pki: Pki;
  /** Where nodes find the API server; without it there are no nodes and only this machine can reach it. */
  nodesAddress?: string;
  flags?: ComponentFlags;
}

const serviceRange = "10.96.0.0/16";
const firstService = "10.96.0.1";

/** Certificates of the control plane. */
export const issueCertificates = async ({ pki, nodesAddress }: ControlPlane): Promise<void> => {
  await pki.create();
  const names = ["DNS:localhost", "DNS:kubernetes.default.svc", "IP:127.0.0.1", `IP:${firstService}`];
  if (nodesAddress) names.push(`IP:${nodesAddress}`);
  await Promise.all([
    pki.issue("apiserver", "kube-apiserver", [], names),
    pki.issue("admin", "admin", ["system:masters"]),
    pki.issue("kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"]),
    pki.issue("front-proxy", "front-proxy-client"),
    pki.issue("controller-manager", "system:kube-controller-manager"),
    pki.issue("scheduler", "system:kube-scheduler"),
    pki.issue("kube-proxy", "system:kube-proxy"),
  ]);
};

export const etcdSpec = (
  { assets, folder }: ControlPlane,
  port: number,
  peerPort: number,
): ComponentSpec => ({
  name: "etcd",
  argv: [
    path.join(assets, "etcd"),
    `--data-dir=${path.join(folder, "etcd")}`,
    `--listen-client-urls=http://127.0.0.1:${port}`,
    `--advertise-client-urls=http://127.0.0.1:${port}`,
    `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
    "--unsafe-no-fsync",
    "--log-level=warn",
  ],
});

export const apiserverSpec = (plane: ControlPlane, etcdPort: number, port: number): ComponentSpec => {
  const { assets, folder, pki, nodesAddress, flags } = plane;
  const pair = (name: string, certificate: string, key: string) => {
    const files = pki.files(name);
    return [`--${certificate}=${files.certificate}`, `--${key}=${files.key}`];
  };
  const reach = nodesAddress
    ? [`--advertise-address=${nodesAddress}`, "--bind-address=0.0.0.0"]
    : ["--advertise-address=127.0.0.1", "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"];
  return {
    name: `kube-apiserver-${port}`,
    ready: `https://127.0.0.1:${port}/readyz`,
    argv: [
      path.join(assets, "kube-apiserver"),
      `--etcd-servers=http://127.0.0.1:${etcdPort}`,
      `--secure-port=${port}`,
      `--cert-dir=${path.join(folder, `kube-apiserver-${port}`)}`,
      ...reach,
      `--service-cluster-ip-range=${serviceRange}`,
      "--authorization-mode=Node,RBAC",
      "--allow-privileged",
      `--client-ca-file=${pki.caFile}`,
      ...pair("apiserver", "tls-cert-file", "tls-private-key-file"),
      "--service-account-issuer=https://kubernetes.default.svc",
      `--service-account-key-file=${pki.tokenKeyFile}`,
      `--service-account-signing-key-file=${pki.tokenKeyFile}`,
      "--kubelet-preferred-address-types=InternalIP",
      `--kubelet-certificate-authority=${pki.caFile}`,
      ...pair("kubelet-client", "kubelet-client-certificate", "kubelet-client-key"),
      `--requestheader-client-ca-file=${pki.caFile}`,
      "--requestheader-allowed-names=front-proxy-client",
      "--requestheader-username-headers=X-Remote-User",
      "--requestheader-group-headers=X-Remote-Group",
      "--requestheader-extra-headers-prefix=X-Remote-Extra-",
      ...pair("front-proxy", "proxy-client-cert-file", "proxy-client-key-file"),
      ...(flags?.apiserver ?? []),
    ],
  };
};

/** Another API server over the same etcd. */
export const anotherApiserver = (spec: ComponentSpec, port: number): ComponentSpec => {
  const old = /\d+$/.exec(spec.name)?.[0] ?? "";
  const moved = (text: string) => text.replaceAll(old, String(port));
  const argv = spec.argv.map((arg) => (/^--(secure-port|cert-dir)=/.test(arg) ? moved(arg) : arg));
  return { name: moved(spec.name), argv, ready: moved(spec.ready ?? "") };
};

/** Without these rates (20/s) its controllers take 4 s longer to start. */
const rates = ["--kube-api-qps=500", "--kube-api-burst=1000"];

export const hasControllerManager = (assets: string): boolean =>
  existsSync(path.join(assets, "kube-controller-manager"));

export const controllerManagerSpec = (plane: ControlPlane, port: number): ComponentSpec => {
  const { assets, pki, flags } = plane;
  return {
    name: "kube-controller-manager",
    argv: [
      path.join(assets, "kube-controller-manager"),
      ...asUser(plane, "controller-manager"),
      `--service-account-private-key-file=${pki.tokenKeyFile}`,
      `--root-ca-file=${pki.caFile}`,
      `--cluster-signing-cert-file=${pki.caFile}`,
      `--cluster-signing-key-file=${pki.caKeyFile}`,
      "--use-service-account-credentials",
      `--flex-volume-plugin-dir=${path.join(plane.folder, "plugins")}`,
      ...serving(port),
      ...(flags?.controllerManager ?? []),
    ],
  };
};

export const schedulerSpec = (plane: ControlPlane, port: number): ComponentSpec => ({
  name: "kube-scheduler",
  argv: [path.join(plane.assets, "kube-scheduler"), ...asUser(plane, "scheduler"), ...serving(port)],
});

export const kubeconfigFile = (folder: string, name: string): string =>
  path.join(folder, `${name}.kubeconfig`);

const asUser = ({ folder }: ControlPlane, name: string) => {
  const file = kubeconfigFile(folder, name);
  return ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(
    (flag) => `--${flag}=${file}`,
  );
};

const serving = (port: number) => [
  "--leader-elect=false",
  "--bind-address=127.0.0.1",
  `--secure-port=${port}`,
  ...rates,
];
