import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { childEnvironment } from "../../support/cluster/config.ts";
import { exec } from "../../support/cluster/exec.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { type HttpProxy, startHttpProxy } from "../../support/faultproxy/http.ts";

/** The proxy before a real API server, used by a client that is not ours and speaks HTTP/2. */
const cluster = sharedCluster();
let folder: string;
let proxy: HttpProxy;
let namespace: string;

/** kubectl, whose only way to the server leads through the proxy. */
const kubectl = async (...args: string[]): Promise<string> => {
  const kubeconfig = join(folder, "kubeconfig");
  const where = [
    `--kubeconfig=${kubeconfig}`,
    `--cache-dir=${join(folder, "cache")}`,
    `--namespace=${namespace}`,
  ];
  return exec(cluster.access.kubectl, [...where, ...args], { env: childEnvironment() });
};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-proxy-"));
  const from = { from: "file", path: cluster.kubeconfig, context: cluster.context } as const;
  const { server, credentials } = loadKubeConfig(from, systemClock);
  const { tls } = await credentials.current();
  proxy = await startHttpProxy({
    target: server,
    tls: { ca: String(tls.ca), cert: String(tls.cert), key: String(tls.key) },
  });
  await writeFile(join(folder, "kubeconfig"), proxy.kubeconfig());
});
afterAll(async () => {
  await proxy.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  namespace = await cluster.namespace("proxy");
  proxy.heal();
  proxy.reset();
});

it("is used over HTTP/2, and counts what kubectl asks for", async () => {
  const versions = new Set<unknown>();
  using _ = proxy.fault({ resource: "configmaps" }, (call, forward) => {
    versions.add(":path" in call.headers ? 2 : 1);
    return forward();
  });
  await kubectl("create", "configmap", "one", "--from-literal=a=b");
  expect(await kubectl("get", "configmap", "one", "-o", "jsonpath={.data.a}")).toBe("b");
  await kubectl("delete", "configmap", "one", "--wait=false");
  expect(versions).toEqual(new Set([2]));
  expect(proxy.writes()).toEqual({ "create configmaps": 1, "delete configmaps": 1 });
  expect(proxy.total({ verb: "get", resource: "configmaps" })).toBe(1);
});

it("applies a create and loses its answer", async () => {
  const fault = proxy.loseAnswer({ verb: "create", resource: "configmaps" });
  await expect(kubectl("create", "configmap", "one")).rejects.toThrow(/INTERNAL_ERROR|stream error/);
  expect(fault.hits).toBeGreaterThan(0);
  expect(await kubectl("get", "configmap", "one", "-o", "name")).toBe("configmap/one\n");
});

it("answers as the API server does, as far as kubectl can tell", async () => {
  proxy.answer({ verb: "create", resource: "configmaps" }, { status: 403, message: "not today" });
  await expect(kubectl("create", "configmap", "one")).rejects.toThrow("not today");
});

it("streams a watch, and lets a bearer speak for itself", async () => {
  await kubectl("create", "configmap", "late", "--from-literal=a=b");
  const watch = kubectl("wait", "--for=jsonpath={.data.a}=c", "configmap/late", "--timeout=30s");
  await expect
    .poll(() => proxy.total({ verb: "watch", resource: "configmaps" }), { timeout: 10_000 })
    .toBeGreaterThan(0);
  await cluster.kubectl(["patch", "configmap", "late", "-n", namespace, "-p", '{"data":{"a":"c"}}']);
  expect(await watch).toContain("condition met");
  const token = await cluster.token({ namespace, sa: "nobody" });
  await expect(kubectl("get", "configmaps", `--token=${token}`)).rejects.toThrow(
    `"system:serviceaccount:${namespace}:nobody" cannot list resource "configmaps"`,
  );
});
