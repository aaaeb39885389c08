import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { connect } from "./connect.ts";

const cluster = sharedCluster();
const processes: ChildProcess[] = [];

afterEach(async () => {
  for (const child of processes.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }
});

const start = (kubeconfig: string, namespace: string, identity: string, seconds: number) => {
  const script = fileURLToPath(new URL("candidate.ts", import.meta.url));
  const child = spawn(process.execPath, [script, kubeconfig, namespace, identity, String(seconds)], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  processes.push(child);
  let output = "";
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  return {
    identity,
    output: () => output,
    async end(signal: "SIGTERM" | "SIGKILL") {
      const exit = once(child, "exit");
      child.kill(signal);
      const [code] = await exit;
      return code;
    },
  };
};

const holder = async (namespace: string): Promise<string> =>
  cluster
    .kubectl(["get", "lease", "leader", "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}"])
    .catch(() => "");

describe("leader election between processes", () => {
  it("one of two leads, as kubectl get lease shows; when it is killed the other takes over", async () => {
    await using connection = await connect(cluster);
    const namespace = await cluster.namespace("leader");
    const all = ["one", "two"].map((name) => start(connection.kubeconfig, namespace, name, 6));
    await expect.poll(() => holder(namespace), { timeout: 30_000 }).toMatch(/^(one|two)$/);
    const leading = () => all.find(({ output }) => output().includes('"msg":"leading"'));
    await expect.poll(leading, { timeout: 10_000 }).toBeDefined();
    const leader = leading();
    const other = all.find((candidate) => candidate !== leader);
    if (!leader || !other) throw new Error("nobody said that it leads");
    expect(await cluster.kubectl(["get", "lease", "leader", "-n", namespace])).toMatch(
      new RegExp(`NAME +HOLDER +AGE\\nleader +${leader.identity} `),
    );
    expect(other.output()).not.toContain('"msg":"leading"');

    await leader.end("SIGKILL");
    await expect.poll(() => holder(namespace), { timeout: 40_000, interval: 200 }).toBe(other.identity);
    await expect.poll(() => other.output(), { timeout: 10_000 }).toContain('"msg":"leading"');
    expect(await other.end("SIGTERM")).toBe(143);
    expect(await holder(namespace)).toBe("");
  });

  it("a standby's SIGTERM writes nothing, and leaves the leader as it is", async () => {
    await using ofLeader = await connect(cluster);
    await using ofStandby = await connect(cluster);
    const namespace = await cluster.namespace("leader");
    const leader = start(ofLeader.kubeconfig, namespace, "leader", 15);
    await expect.poll(() => holder(namespace), { timeout: 30_000 }).toBe("leader");
    const standby = start(ofStandby.kubeconfig, namespace, "standby", 15);
    await expect
      .poll(() => ofStandby.proxy.total({ verb: "get", resource: "leases" }), { timeout: 30_000 })
      .toBeGreaterThan(1);

    expect(await standby.end("SIGTERM")).toBe(143);
    expect(ofStandby.proxy.writes()).toEqual({});
    expect(ofStandby.proxy.counts()).toEqual({ "get leases": expect.any(Number) });
    expect(await holder(namespace)).toBe("leader");

    // The leader's own gives the Lease back with one write.
    const before = ofLeader.proxy.total({ verb: "update", resource: "leases" });
    expect(await leader.end("SIGTERM")).toBe(143);
    expect(await holder(namespace)).toBe("");
    expect(ofLeader.proxy.total({ verb: "update", resource: "leases" }) - before).toBeLessThanOrEqual(2);
    expect(leader.output()).toContain("leadership released");
  });
});
