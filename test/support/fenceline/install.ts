/**
 * Fenceline itself, on a cluster of the tests: manifests, a controller as its own process and service account, and
 * credentials for workers. What stands here is what an administrator would do by hand.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { audience, leaderLease, systemAccount, systemNamespace } from "../../../src/api/names.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { childEnvironment } from "../cluster/config.ts";
import { ExecError } from "../cluster/exec.ts";
import { until } from "../cluster/process.ts";
import { type Certificate, makeCertificate } from "../faultproxy/certificate.ts";

const root = path.join(import.meta.dirname, "../../..");
export const fenceline = path.join(root, "bin/fenceline.js");

/** Applies definitions, policies and roles, and returns once all of them are in force. */
export const install = async (cluster: Cluster): Promise<void> => {
  await cluster.kubectl(["apply", "--server-side", "--force-conflicts", "-f", path.join(root, "crds")]);
  await cluster.kubectl([
    "wait",
    "--for=condition=Established",
    "--timeout=30s",
    "-f",
    path.join(root, "crds"),
  ]);
  for (const folder of ["deploy/rbac", "deploy/policies"])
    await cluster.kubectl(["apply", "--server-side", "--force-conflicts", "-f", path.join(root, folder)]);
  await until("the policies to be in force", 30_000, () => refused(cluster));
};

/** Admission learns of a policy a moment after it was applied: what it must refuse tells when. */
const refused = async (cluster: Cluster): Promise<boolean> => {
  const foreign = {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: {
      name: "fenceline-probe",
      namespace: systemNamespace,
      labels: { "fenceline.dev/resource": "probe" },
    },
  };
  try {
    await cluster.kubectl(["create", "--dry-run=server", "-f", "-"], { input: JSON.stringify(foreign) });
    return false;
  } catch (error) {
    if (error instanceof ExecError && error.stderr.includes("ValidatingAdmissionPolicy")) return true;
    throw error;
  }
};

/** A kubeconfig FILE for a service account; `server` and `ca` lead elsewhere, for example through a fault proxy. */
const accountKubeconfig = async (
  cluster: Cluster,
  account: { namespace: string; sa: string },
  through: { server?: string; caFile?: string } = {},
): Promise<string> => {
  const token = await cluster.token({ ...account, expirationSeconds: 86_400 });
  const text = await cluster.kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]);
  const config = JSON.parse(text) as {
    clusters: [{ cluster: Record<string, string> }];
    users: [{ user: Record<string, string> }];
  };
  config.users[0].user = { token };
  if (through.server !== undefined) config.clusters[0].cluster["server"] = through.server;
  if (through.caFile !== undefined) {
    delete config.clusters[0].cluster["certificate-authority-data"];
    config.clusters[0].cluster["certificate-authority"] = through.caFile;
  }
  const file = path.join(
    cluster.access.cache,
    `${account.namespace}-${account.sa}-${crypto.randomUUID()}.kubeconfig`,
  );
  await writeFile(file, JSON.stringify(config), { mode: 0o600 });
  return file;
};

export interface ControllerOptions {
  /** Name of the replica and of its folder. */
  replica?: string;
  /** Where its API server is: default the cluster's own. */
  through?: { server?: string; caFile?: string };
  /** Keeps its certificate in this Secret of the system namespace instead of files. */
  secret?: string;
  /** Default: one of its own. */
  certificate?: Certificate;
  /** More of its configuration, or instead of what stands here. */
  config?: object;
}

/** A running controller process. */
export interface Controller {
  replica: string;
  /** `https://127.0.0.1:PORT` of the API. */
  server: string;
  ops: string;
  caFile: string;
  child: ChildProcess;
  /** Its log so far, a line each. */
  log: readonly string[];
  /** Ends it in order, within its bounds; resolves with the exit code. */
  stop(): Promise<number | null>;
  kill(): Promise<void>;
}

export const coordinatorCertificate = (): Certificate =>
  makeCertificate({ commonName: "coordinator", names: ["localhost", "127.0.0.1"] });

/** Starts `fenceline controller` as its service account, and resolves once it serves. */
export const startController = async (
  cluster: Cluster,
  options: ControllerOptions = {},
): Promise<Controller> => {
  const replica = options.replica ?? "controller-0";
  const folder = path.join(cluster.access.cache, `${replica}-${crypto.randomUUID()}`);
  await mkdir(folder, { recursive: true });
  const file = (name: string) => path.join(folder, name);
  const certificate = options.certificate ?? coordinatorCertificate();
  await writeFile(file("tls.crt"), certificate.cert);
  await writeFile(file("tls.key"), certificate.key, { mode: 0o600 });
  if (options.secret !== undefined)
    await cluster.apply({
      apiVersion: "v1",
      kind: "Secret",
      type: "kubernetes.io/tls",
      metadata: { name: options.secret, namespace: systemNamespace },
      stringData: { "tls.crt": certificate.cert, "tls.key": certificate.key },
    });
  const kubeconfig = await accountKubeconfig(
    cluster,
    { namespace: systemNamespace, sa: systemAccount },
    options.through,
  );
  const config = {
    replica,
    kubeconfig: { file: kubeconfig },
    listen: { host: "127.0.0.1", port: 0 },
    ops: { host: "127.0.0.1", port: 0 },
    certificate:
      options.secret === undefined
        ? { certFile: file("tls.crt"), keyFile: file("tls.key") }
        : { secret: options.secret },
    ...options.config,
  };
  await writeFile(file("config.yaml"), JSON.stringify(config));
  const child = spawn(process.execPath, [fenceline, "controller", "--config", file("config.yaml")], {
    env: childEnvironment(),
    stdio: ["ignore", "ignore", "pipe"],
  });
  const log: string[] = [];
  createInterface({ input: child.stderr }).on("line", (line) => log.push(line));
  const exited = once(child, "exit");
  const serving = await until("the controller to serve", 30_000, () => {
    if (child.exitCode !== null) throw new Error(`the controller ended:\n${log.join("\n")}`);
    return log.find((line) => line.includes('"msg":"serving"'));
  });
  const { port, opsPort } = JSON.parse(serving) as { port: number; opsPort: number };
  return {
    replica,
    server: `https://127.0.0.1:${port}`,
    ops: `http://127.0.0.1:${opsPort}`,
    caFile: file("tls.crt"),
    child,
    log,
    async stop() {
      child.kill("SIGTERM");
      await exited;
      return child.exitCode;
    },
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
  };
};

/**
 * Kills controllers as a crash would, and takes their leadership away with them: the next ones need not wait until its
 * lease has run out.
 */
export const killAll = async (cluster: Cluster, controllers: readonly Controller[]): Promise<void> => {
  await Promise.all(controllers.map((controller) => controller.kill()));
  await cluster.kubectl(["delete", "lease", leaderLease, "-n", systemNamespace, "--ignore-not-found"]);
};

/** A service account that may acquire in its namespace: a FILE with its bearer token for the coordinator. */
export const workerToken = async (cluster: Cluster, namespace: string, sa: string): Promise<string> => {
  const token = await cluster.token({ namespace, sa, audience, expirationSeconds: 3600 });
  const rbac = "rbac.authorization.k8s.io";
  await cluster.apply(
    {
      apiVersion: `${rbac}/v1`,
      kind: "Role",
      metadata: { name: "fenceline-worker", namespace },
      rules: [{ apiGroups: ["fenceline.dev"], resources: ["fencedresources"], verbs: ["get", "acquire"] }],
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: `fenceline-worker-${sa}`, namespace },
      roleRef: { apiGroup: rbac, kind: "Role", name: "fenceline-worker" },
      subjects: [{ kind: "ServiceAccount", name: sa, namespace }],
    },
  );
  const file = path.join(cluster.access.cache, `${namespace}-${sa}.token`);
  await writeFile(file, token, { mode: 0o600 });
  return file;
};
