/**
 * Which API server, and as whom: read from a kubeconfig file or from the pod's service account, as the caller says.
 * Nothing is looked up: neither KUBECONFIG nor a file in HOME.
 */
import { readFileSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import type { Cluster, User } from "@kubernetes/client-node";
import { parseDocument } from "yaml";
import type { z } from "zod";
import {
  clusterEntrySchema,
  contextEntrySchema,
  type KubeconfigUser,
  kubeconfigSchema,
  userEntrySchema,
} from "../api/kubeconfig.ts";
import type { Clock } from "../runtime/clock.ts";
import { type Credentials, type FieldNames, fileTrouble, makeCredentials } from "./credentials.ts";
import { KubeError } from "./errors.ts";

export type KubeSource =
  | { from: "file"; path: string /** Default: the file's current-context. */; context?: string | undefined }
  | {
      from: "cluster";
      /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of the pod. */
      host: string;
      port: string;
      /** Folder of token, ca.crt and namespace. Default: where Kubernetes mounts them. */
      folder?: string | undefined;
    };

export interface Access {
  server: URL;
  /** An HTTP proxy to reach it through. */
  proxy: string | undefined;
  /** Of the context, or of the pod. */
  namespace: string | undefined;
  /** "kubeconfig F, context C", for messages. */
  source: string;
  names: FieldNames;
  credentials: Credentials;
}

const serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

const bad = (message: string, cause?: unknown) => new KubeError("bad_config", message, { cause });

const read = (path: string): string => {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw bad(`kubeconfig ${path}: ${fileTrouble(error)}`, error);
  }
};

/** The first complaint of a schema, with the path to it. */
const complaint = (error: z.ZodError, prefix: string): string => {
  const issue = error.issues[0];
  const path = issue?.path
    .map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`))
    .join("");
  const said = issue?.code === "invalid_type" && issue.message.endsWith("received undefined");
  return `${prefix}${path ?? ""} ${said ? "is missing" : `cannot be used: ${issue?.message}`}`.replace(
    /^\./,
    "",
  );
};

const parseYaml = (path: string, text: string) => {
  const document = parseDocument(text);
  const error = document.errors[0];
  if (error !== undefined) throw bad(`kubeconfig ${path}: not YAML: ${error.message.split("\n")[0]}`);
  const value: unknown = document.toJS();
  if (value === null) throw bad(`kubeconfig ${path}: the file is empty`);
  const parsed = kubeconfigSchema.safeParse(value);
  if (!parsed.success) throw bad(`kubeconfig ${path}: ${complaint(parsed.error, "")}`);
  return parsed.data;
};

/** Kubectl takes paths as relative to the file that names them. */
const beside = (file: string, path: string): string => (isAbsolute(path) ? path : join(dirname(file), path));

const userOf = (name: string, path: string, user: KubeconfigUser): User => {
  const exec = user.exec ?? undefined;
  const at = (file: string | undefined) => file && beside(path, file);
  return {
    name,
    // Data goes before file, as kubectl has it; the library would take the file.
    ...(user["client-certificate-data"] === undefined
      ? { certFile: at(user["client-certificate"]) }
      : { certData: user["client-certificate-data"] }),
    ...(user["client-key-data"] === undefined
      ? { keyFile: at(user["client-key"]) }
      : { keyData: user["client-key-data"] }),
    token: user.token,
    username: user.username,
    password: user.password,
    impersonateUser: user.as,
    authProvider: user["auth-provider"] ?? undefined,
    exec: exec && {
      ...exec,
      command: exec.command.includes("/") ? beside(path, exec.command) : exec.command,
    },
  } as User;
};

const serverUrl = (text: string, what: string): URL => {
  const url = URL.parse(text);
  if (url === null || !["http:", "https:"].includes(url.protocol))
    throw bad(`${what} is not an address: ${JSON.stringify(text)} should look like https://host:6443`);
  return url;
};

const fromFile = (path: string, wanted: string | undefined, clock: Clock): Access => {
  const config = parseYaml(path, read(path));
  const name = wanted ?? config["current-context"];
  if (name === undefined || name === "")
    throw bad(`kubeconfig ${path}: current-context is not set: set it, or name a context`);

  const find = <T>(
    list: "contexts" | "clusters" | "users",
    wanted: string,
    from: string,
    schema: z.ZodType<T>,
  ): T => {
    const entry = config[list].find((entry) => entry.name === wanted);
    if (entry === undefined) {
      const known = config[list].map((entry) => entry.name).join(", ") || "none";
      throw bad(`kubeconfig ${path}: ${list} has no ${JSON.stringify(wanted)}${from}; it has: ${known}`);
    }
    const parsed = schema.safeParse(entry);
    if (!parsed.success) throw bad(`kubeconfig ${path}: ${complaint(parsed.error, `${list}[${wanted}]`)}`);
    return parsed.data;
  };
  const { context } = find("contexts", name, "", contextEntrySchema);
  const named = `, which context ${JSON.stringify(name)} names`;
  const { cluster } = find("clusters", context.cluster, named, clusterEntrySchema);
  const { user } = context.user
    ? find("users", context.user, named, userEntrySchema)
    : { user: {} as KubeconfigUser };

  const source = `kubeconfig ${path}, context ${name}`;
  const clusterField = `kubeconfig ${path}: clusters[${context.cluster}].cluster`;
  const userField = `kubeconfig ${path}: users[${context.user ?? ""}].user`;
  const names: FieldNames = {
    server: `${clusterField}.server`,
    ca: `${clusterField}.certificate-authority`,
    serverName: `${clusterField}.tls-server-name`,
    certificate: `${userField}.client-certificate`,
    key: `${userField}.client-key`,
    token: user.tokenFile === undefined ? `${userField}.token` : `${userField}.tokenFile`,
    user: userField,
  };
  const server = serverUrl(cluster.server, names.server);
  const proxy = cluster["proxy-url"];
  if (proxy !== undefined) {
    const url = URL.parse(proxy);
    if (url === null || !["http:", "https:"].includes(url.protocol))
      throw bad(`${clusterField}.proxy-url is not supported: ${JSON.stringify(proxy)} is not an http proxy`);
  }
  const ca = cluster["certificate-authority-data"];
  const entry: Cluster = {
    name: context.cluster,
    server: cluster.server,
    skipTLSVerify: cluster["insecure-skip-tls-verify"] ?? false,
    ...(ca !== undefined && { caData: ca }),
    ...(ca === undefined &&
      cluster["certificate-authority"] !== undefined && {
        caFile: beside(path, cluster["certificate-authority"]),
      }),
    ...(cluster["tls-server-name"] !== undefined && { tlsServerName: cluster["tls-server-name"] }),
  };
  const credentials = makeCredentials({
    cluster: entry,
    user: userOf(context.user ?? "", path, user),
    tokenFile:
      user.token === undefined && user.tokenFile !== undefined ? beside(path, user.tokenFile) : undefined,
    names,
    clock,
  });
  if (server.protocol === "http:" && credentials.any)
    throw bad(`${names.server} is plain http, and ${userField} holds credentials: write https`);
  return { server, proxy, namespace: context.namespace, source, names, credentials };
};

const fromCluster = (source: Extract<KubeSource, { from: "cluster" }>, clock: Clock): Access => {
  const { host, port, folder = serviceAccountFolder } = source;
  const tokenFile = join(folder, "token");
  let namespace: string;
  try {
    namespace = readFileSync(join(folder, "namespace"), "utf8").trim();
  } catch (error) {
    throw bad(
      `service account ${join(folder, "namespace")}: ${fileTrouble(error)}: let the pod mount its service account, or name a kubeconfig`,
      error,
    );
  }
  const address = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  const names: FieldNames = {
    server: "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT",
    ca: `service account ${join(folder, "ca.crt")}`,
    serverName: "KUBERNETES_SERVICE_HOST",
    certificate: `service account ${folder}`,
    key: `service account ${folder}`,
    token: `service account ${tokenFile}`,
    user: `service account ${folder}`,
  };
  return {
    server: serverUrl(address, names.server),
    proxy: undefined,
    namespace,
    source: `service account ${folder}`,
    names,
    credentials: makeCredentials({
      cluster: { name: "cluster", server: address, skipTLSVerify: false, caFile: join(folder, "ca.crt") },
      user: { name: "pod" },
      tokenFile,
      names,
      clock,
    }),
  };
};

/** Throws a KubeError `bad_config` whose one line names file and field. */
export const loadKubeConfig = (source: KubeSource, clock: Clock): Access =>
  source.from === "file" ? fromFile(source.path, source.context, clock) : fromCluster(source, clock);
