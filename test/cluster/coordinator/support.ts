import { readFile } from "node:fs/promises";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { type Caller, makeCaller } from "../../support/fenceline/caller.ts";
import { type Controller, workerToken } from "../../support/fenceline/install.ts";

/** Applies a FencedResource `orders` in a fresh namespace and waits until it is ready. Returns `namespace/orders`. */
export const readyResource = async (cluster: Cluster, spec: object = {}): Promise<`${string}/${string}`> => {
  const namespace = await cluster.namespace("shop");
  await cluster.apply({
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    metadata: { name: "orders", namespace },
    spec,
  });
  await cluster.kubectl(["wait", "fr/orders", "-n", namespace, "--for=condition=Ready", "--timeout=30s"]);
  return `${namespace}/orders`;
};

/** A caller of `controller` as a service account that may acquire in the resource's namespace. */
export const callerFor = async (
  cluster: Cluster,
  controller: Controller,
  resource: string,
  sa = "worker",
): Promise<Caller> => {
  const [namespace = ""] = resource.split("/");
  const bearer = await readFile(await workerToken(cluster, namespace, sa), "utf8");
  return makeCaller({ server: controller.server, caFile: controller.caFile, bearer });
};

interface LeaseJson {
  metadata: { uid: string; resourceVersion: string; annotations: Record<string, string> };
  spec: { holderIdentity?: string; renewTime?: string; acquireTime?: string; leaseTransitions?: number };
}

export const leaseOf = async (cluster: Cluster, resource: string): Promise<LeaseJson> => {
  const [namespace = "", name] = resource.split("/");
  return JSON.parse(
    await cluster.kubectl(["get", "lease", `fenceline-${name}`, "-n", namespace, "-o", "json"]),
  ) as LeaseJson;
};
