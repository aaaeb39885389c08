import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { type Caller, makeCaller } from "../../support/fenceline/caller.ts";
import { type HttpProxy, startHttpProxy } from "../../support/faultproxy/http.ts";
import {
  type Controller,
  type ControllerOptions,
  startController,
  workerToken,
} from "../../support/fenceline/install.ts";

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

/** A controller whose every request to the API server passes a proxy of its own. */
export const behindProxy = async (
  cluster: Cluster,
  replica: string,
  options: Pick<ControllerOptions, "certificate" | "config"> = {},
): Promise<{ proxy: HttpProxy; controller: Controller }> => {
  const authority = "jsonpath={.clusters[0].cluster.certificate-authority-data}";
  const ca = await cluster.kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", authority]);
  const proxy = await startHttpProxy({
    target: cluster.server,
    tls: { ca: Buffer.from(ca, "base64").toString("utf8") },
  });
  const caFile = path.join(cluster.access.cache, `${replica}-proxy-ca.crt`);
  await writeFile(caFile, proxy.ca);
  const controller = await startController(cluster, {
    ...options,
    replica,
    through: { server: proxy.url.href, caFile },
  });
  return { proxy, controller };
};
