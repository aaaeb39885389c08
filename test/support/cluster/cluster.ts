import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { type ExecOptions, ExecError, exec } from "./exec.ts";
import { childEnvironment } from "./config.ts";
import { Pki } from "./pki.ts";
import { until } from "./process.ts";

/** What another process needs to use a cluster. */
export interface ClusterAccess {
  kubeconfig: string;
  context: string;
  /** URL of the API server. */
  server: string;
  /** The kubectl to use. */
  kubectl: string;
  /** Where kubectl may keep its cache. */
  cache: string;
  /** Marks what this run made: value of the label `fenceline.dev/test-run`. */
  run: string;
  /** Whether a controller manager makes service accounts, collects garbage and ends namespaces. */
  controllers: boolean;
}

export interface TokenRequest {
  namespace: string;
  /** Service account; made if it is not there. Default `default`. */
  sa?: string;
  audience?: string;
  /** At least 600, as the API server demands. */
  expirationSeconds?: number;
  /** Name of a pod of the same account to which the token is bound. */
  pod?: string;
}

export const newRun = (): string => randomBytes(4).toString("hex");

/** A cluster that tests may use but not break: ours or somebody's. */
export class Cluster {
  readonly access: ClusterAccess;

  constructor(access: ClusterAccess) {
    this.access = access;
  }

  get kubeconfig(): string {
    return this.access.kubeconfig;
  }

  get context(): string {
    return this.access.context;
  }

  get server(): string {
    return this.access.server;
  }

  /** Arguments that name the cluster and nothing else. */
  get kubectlArguments(): string[] {
    const { kubeconfig, context, cache } = this.access;
    return [
      `--kubeconfig=${kubeconfig}`,
      `--context=${context}`,
      `--cache-dir=${path.join(cache, "kubectl-cache")}`,
    ];
  }

  /** Runs kubectl against this cluster and returns what it prints. Throws ExecError with its message. */
  kubectl(args: readonly string[], options: ExecOptions = {}): Promise<string> {
    return exec(this.access.kubectl, [...this.kubectlArguments, ...args], {
      ...options,
      env: childEnvironment(options.env),
    });
  }

  /** `kubectl apply` (server-side) of one or more objects. */
  async apply(...objects: readonly object[]): Promise<void> {
    const list = { apiVersion: "v1", kind: "List", items: objects };
    await this.kubectl(["apply", "--server-side", "--force-conflicts", "-f", "-"], {
      input: JSON.stringify(list),
    });
  }

  /** A fresh namespace, usable at once. */
  async namespace(prefix = "test"): Promise<string> {
    const name = `${prefix}-${randomBytes(4).toString("hex")}`;
    const metadata = { name, labels: { "fenceline.dev/test-run": this.access.run } };
    await this.kubectl(["create", "-f", "-"], {
      input: JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata }),
    });
    if (this.access.controllers) await this.untilServiceAccount(name);
    return name;
  }

  /** A token for a service account, by TokenRequest. */
  async token({
    namespace,
    sa = "default",
    audience,
    expirationSeconds,
    pod,
  }: TokenRequest): Promise<string> {
    await this.kubectl(["create", "serviceaccount", sa, "-n", namespace]).catch((error) => {
      if (!(error instanceof ExecError && error.stderr.includes("already exists"))) throw error;
    });
    const args = ["create", "token", sa, "-n", namespace];
    if (audience !== undefined) args.push(`--audience=${audience}`);
    if (expirationSeconds !== undefined) args.push(`--duration=${expirationSeconds}s`);
    if (pod !== undefined) args.push("--bound-object-kind=Pod", `--bound-object-name=${pod}`);
    return (await this.kubectl(args)).trim();
  }

  /**
   * A kubeconfig for another user, by a client certificate that the cluster itself signs. It has the same
   * context name.
   */
  async credentials(user: string, groups: readonly string[] = []): Promise<string> {
    const folder = await mkdtemp(path.join(this.access.cache, "user-"));
    const pki = new Pki(folder);
    const request = {
      apiVersion: "certificates.k8s.io/v1",
      kind: "CertificateSigningRequest",
      metadata: { generateName: "fenceline-test-" },
      spec: {
        request: Buffer.from(await pki.request("client", user, groups)).toString("base64"),
        signerName: "kubernetes.io/kube-apiserver-client",
        expirationSeconds: 86_400,
        usages: ["client auth"],
      },
    };
    const created = await this.kubectl(["create", "-o", "name", "-f", "-"], {
      input: JSON.stringify(request),
    });
    const name = created.trim();
    await this.kubectl(["certificate", "approve", name]);
    const certificate = await until(`certificate of ${user}`, 30_000, () =>
      this.kubectl(["get", name, "--output=jsonpath={.status.certificate}"]).then((text) => text || false),
    );
    await this.kubectl(["delete", name]);
    const config = JSON.parse(
      await this.kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]),
    );
    const key = (await readFile(pki.files("client").key)).toString("base64");
    config.users[0].user = { "client-certificate-data": certificate, "client-key-data": key };
    const file = path.join(folder, "kubeconfig");
    await writeFile(file, JSON.stringify(config), { mode: 0o600 });
    return file;
  }

  /** Deletes the namespaces that this run made. Needed on a cluster that outlives it. */
  async forget(): Promise<void> {
    await this.kubectl([
      "delete",
      "namespaces",
      "-l",
      `fenceline.dev/test-run=${this.access.run}`,
      "--wait=false",
    ]);
  }

  protected async untilServiceAccount(namespace: string): Promise<void> {
    // A controller manager that lost its API server comes back in its own time.
    await until(`service account default in ${namespace}`, 120_000, () =>
      this.kubectl(["get", "serviceaccount", "default", "-n", namespace]).catch((error) => {
        if (error instanceof ExecError) return false;
        throw error;
      }),
    );
  }
}
