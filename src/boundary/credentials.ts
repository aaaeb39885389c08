/** Logins of boundaries, out of Secrets in the resource's own namespace. */
import { systemAccount } from "../api/names.ts";
import { KubeError } from "../kube/errors.ts";
import { secretKind } from "../kube/kinds.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Login } from "./connections.ts";

export type Credential =
  | { kind: "read"; login: Login; version: string }
  | { kind: "unready"; reason: "SecretForbidden" | "SecretMissing" | "SecretInvalid"; message: string };

export interface SecretRef {
  name: string;
  key: string;
}

/** Certificates to trust for the same server, where the Secret has them. */
const caKey = "ca.crt";

const forbidden = (namespace: string, name: string, system: string): string =>
  `Fenceline may not read Secret ${namespace}/${name}. Give it a Role for it: ` +
  `kubectl create role fenceline-database -n ${namespace} --verb=get --resource=secrets --resource-name=${name}; ` +
  `kubectl create rolebinding fenceline-database -n ${namespace} --role=fenceline-database --serviceaccount=${system}:${systemAccount}`;

/** Throws a KubeError where the API server does not answer. */
export const readCredential = async (
  client: Pick<KubeClient, "get">,
  system: string,
  namespace: string,
  { name, key }: SecretRef,
  signal?: AbortSignal,
): Promise<Credential> => {
  const unready = (reason: Extract<Credential, { kind: "unready" }>["reason"], message: string) =>
    ({ kind: "unready", reason, message }) as const;
  try {
    const found = await client.get(secretKind, { namespace, name }, signal);
    if (found.outcome === "absent")
      return unready("SecretMissing", `there is no Secret ${namespace}/${name}: make it, with key ${key}`);
    const { data, metadata } = found.object;
    const text = (of: string) =>
      data?.[of] === undefined ? undefined : Buffer.from(data[of], "base64").toString("utf8");
    const url = text(key);
    if (url === undefined)
      return unready("SecretInvalid", `Secret ${namespace}/${name} has no key ${key}: put the URL there`);
    return {
      kind: "read",
      login: { url, ca: text(caKey) },
      version: `${metadata.uid}/${metadata.resourceVersion}`,
    };
  } catch (error) {
    if (error instanceof KubeError && error.code === "forbidden")
      return unready("SecretForbidden", forbidden(namespace, name, system));
    throw error;
  }
};
