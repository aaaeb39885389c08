import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { childEnvironment } from "../../support/cluster/config.ts";
import { exec } from "../../support/cluster/exec.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { chooseCluster, openCluster } from "../../support/cluster/which.ts";

const cluster = sharedCluster();

const named = () => openCluster({ kind: "named", kubeconfig: cluster.kubeconfig, context: cluster.context });
const label = (change: string) => cluster.kubectl(["label", "namespace", "kube-system", change]);
const namespaces = () => cluster.kubectl(["get", "namespaces", "-o", "name"]);

describe("the choice", () => {
  test.each([
    [{}, { kind: "build" }],
    [{ KUBECONFIG: "/somewhere", KUBERNETES_SERVICE_HOST: "10.0.0.1" }, { kind: "build" }],
    [{ KUBEBUILDER_ASSETS: "/assets" }, { kind: "assets", assets: "/assets" }],
    [{ FENCELINE_TEST_KIND: "1" }, { kind: "kind" }],
    [
      { FENCELINE_TEST_KIND: "1", KUBEBUILDER_ASSETS: "/assets" },
      { kind: "assets", assets: "/assets" },
    ],
    [
      { FENCELINE_TEST_KUBECONFIG: "/file", FENCELINE_TEST_CONTEXT: "lab", KUBEBUILDER_ASSETS: "/assets" },
      { kind: "named", kubeconfig: "/file", context: "lab" },
    ],
  ])("%j is %j", (env, choice) => {
    expect(chooseCluster(env)).toEqual(choice);
  });

  test.each([{ FENCELINE_TEST_KUBECONFIG: "/file" }, { FENCELINE_TEST_CONTEXT: "lab" }])(
    "half a name is refused: %j",
    (env) => {
      expect(() => chooseCluster(env)).toThrow(/is set but .* is not/);
    },
  );
});

describe("a named cluster", () => {
  test("is refused before the first write unless a person labelled it", async () => {
    const before = await namespaces();
    await expect(named()).rejects.toThrow(
      /kubectl label namespace kube-system fenceline.dev\/test-cluster=yes/,
    );
    expect(await namespaces()).toBe(before);
  });

  test("with the label is used, and what the run made in it is taken away", async () => {
    await label("fenceline.dev/test-cluster=yes");
    const opened = await named();
    await cluster.kubectl(["create", "namespace", "of-this-run"]);
    await cluster.kubectl([
      "label",
      "namespace",
      "of-this-run",
      `fenceline.dev/test-run=${opened.access.run}`,
    ]);
    await opened.close();
    await label("fenceline.dev/test-cluster-");
    await expect.poll(namespaces, { timeout: 30_000 }).not.toContain("of-this-run");
  });

  test("a file or context that is not there is one clear line", async () => {
    const nowhere = openCluster({ kind: "named", kubeconfig: "/nowhere", context: "lab" });
    await expect(nowhere).rejects.toThrow("FENCELINE_TEST_KUBECONFIG: there is no file /nowhere");
    const other = openCluster({ kind: "named", kubeconfig: cluster.kubeconfig, context: "other" });
    await expect(other).rejects.toThrow(/context .*other/);
  });
});

describe("a stray configuration", () => {
  let home: string;
  let calls = 0;
  const trap = net.createServer((socket) => {
    calls++;
    socket.destroy();
  });

  beforeEach(async () => {
    calls = 0;
    home = mkdtempSync(path.join(os.tmpdir(), "fenceline-stray-"));
    await new Promise<void>((resolve) => trap.listen(0, "127.0.0.1", resolve));
    const { port } = trap.address() as net.AddressInfo;
    const kubeconfig = path.join(home, "config");
    const stray = {
      "current-context": "stray",
      contexts: [{ name: "stray", context: { cluster: "stray", user: "stray" } }],
      clusters: [{ name: "stray", cluster: { server: `https://127.0.0.1:${port}` } }],
      users: [{ name: "stray", user: { token: "stray" } }],
    };
    await exec("mkdir", [path.join(home, ".kube")]);
    for (const file of [kubeconfig, path.join(home, ".kube", "config")])
      writeFileSync(file, JSON.stringify(stray));
    vi.stubEnv("HOME", home);
    vi.stubEnv("KUBECONFIG", kubeconfig);
    vi.stubEnv("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    vi.stubEnv("KUBERNETES_SERVICE_PORT", String(port));
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    trap.close();
    rmSync(home, { recursive: true });
  });

  test("is in no child's environment", async () => {
    expect(await exec("env", [])).not.toMatch(/KUBECONFIG|KUBERNETES_/);
    expect(Object.keys(childEnvironment())).not.toContain("KUBECONFIG");
  });

  test("is never read: only the test cluster is spoken to", async () => {
    const namespace = await cluster.namespace();
    await cluster.token({ namespace });
    expect(
      await cluster.kubectl(["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]),
    ).toBe(cluster.server);
    expect(calls).toBe(0);
  });
});
