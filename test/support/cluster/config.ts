import os from "node:os";
import path from "node:path";

/** Versions and build flags, in this one place: another flag set is another cold build. */
export const versions = { kubernetes: "1.35.4", coredns: "1.12.4", helm: "4.1.4" } as const;

/** Folder of the Go module. */
export const moduleFolder = import.meta.dirname;

const stamp = (name: string) => `-X ${name}.gitVersion=v${versions.kubernetes}`;

export const goEnvironment = { CGO_ENABLED: "0", GOFLAGS: "-buildvcs=false" } as const;

export const goFlags: readonly string[] = [
  "-trimpath",
  "-ldflags",
  `-s -w ${stamp("k8s.io/component-base/version")} ${stamp("k8s.io/client-go/pkg/version")}`,
];

export const components = [
  "etcd",
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "kubelet",
  "kube-proxy",
  "kubectl",
] as const;

/** Where built binaries are kept from run to run. */
export const cacheFolder = (): string =>
  path.join(process.env["XDG_CACHE_HOME"] || path.join(os.homedir(), ".cache"), "fenceline", "cluster");

/** Where running clusters have their folders. Inside a box it lies in the box's own folder. */
export const labsFolder = (): string =>
  process.env["FENCELINE_CLUSTER_DIR"] ||
  path.join(os.tmpdir(), `fenceline-cluster-${process.getuid?.() ?? "user"}`);

/** Where logs of failed tests are put. */
export const failureFolder = (): string =>
  process.env["FENCELINE_TEST_LOGS"] || path.join(os.tmpdir(), "fenceline-test-logs");

/** One clear line for a person: what, where, what to do. Everything else that is thrown is a bug. */
export class ClusterError extends Error {
  override readonly name = "ClusterError";
}

const strays = /^(KUBECONFIG|KUBERC|KUBECACHEDIR|KUBERNETES_.*)$/;

/**
 * The environment for a child process, without anything that could lead it to somebody's real cluster, and
 * without a person's kubectl preferences.
 */
export const childEnvironment = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !strays.test(name))),
  KUBERC: "off",
  ...more,
});

/** Takes the same out of this process, for children that others start. */
export const forgetStrays = (): void => {
  for (const name of Object.keys(process.env)) if (strays.test(name)) delete process.env[name];
};
