/** Which API server a command talks to, as kubectl would choose it. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { makeKubeClient } from "../kube/client.ts";
import { type KubeSource, loadKubeConfig } from "../kube/config.ts";
import { makeTransport } from "../kube/transport.ts";
import type { KubeClient, Transport } from "../kube/types.ts";
import type { CliDeps } from "./deps.ts";
import { CliError } from "./errors.ts";

/** Flags of every command on a cluster. */
export interface ClusterFlags {
  namespace?: string;
  context?: string;
  kubeconfig?: string;
}

export interface Connection {
  client: KubeClient;
  transport: Transport;
  /** `-n`, else that of the context, else `default`. */
  namespace: string;
  close: () => Promise<void>;
}

const sourceOf = ({ kubeconfig, context }: ClusterFlags, env: CliDeps["env"]): KubeSource => {
  if (kubeconfig !== undefined) return { from: "file", path: kubeconfig, context };
  const named = env["KUBECONFIG"];
  if (named?.includes(":"))
    throw new CliError("usage", "KUBECONFIG names several files: name the one to use by --kubeconfig");
  if (named) return { from: "file", path: named, context };
  const home = join(env["HOME"] ?? "/", ".kube/config");
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env;
  if (existsSync(home)) return { from: "file", path: home, context };
  if (host && port) return { from: "cluster", host, port };
  throw new CliError("usage", `no cluster: ${home} is not there; name a file by --kubeconfig`);
};

export const connect = (flags: ClusterFlags, { env, clock }: Pick<CliDeps, "env" | "clock">): Connection => {
  const access = loadKubeConfig(sourceOf(flags, env), clock);
  const transport = makeTransport({ access, clock, userAgent: "fenceline-cli" });
  return {
    client: makeKubeClient(transport),
    transport,
    namespace: flags.namespace ?? access.namespace ?? "default",
    close: () => transport.close(),
  };
};
