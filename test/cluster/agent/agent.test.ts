import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type AgentOptions, type AgentProcess, endAgents, startAgent } from "../../support/agent/agent.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Controller, install, startController, workerToken } from "../../support/fenceline/install.ts";
import { leaseOf, readyResource } from "../coordinator/support.ts";

/** Of its own: a controller leads one cluster. */
let cluster: Lab;
collectOnFailure(() => cluster);
let controller: Controller;

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  controller = await startController(cluster, { replica: "agents" });
});
afterAll(async () => {
  await controller?.stop();
  await cluster?.[Symbol.asyncDispose]();
});
afterEach(endAgents);

/** An agent as a pod called `who` would have it. */
const agentOf = async (
  resource: string,
  who: string,
  more: Partial<AgentOptions> = {},
): Promise<AgentProcess> => {
  const [namespace = "", name = ""] = resource.split("/");
  return startAgent({
    server: controller.server,
    caFile: controller.caFile,
    tokenFile: await workerToken(cluster, namespace, who),
    namespace,
    resources: name,
    folder: join(cluster.access.cache, `${namespace}-${who}`),
    ...more,
    env: { FENCELINE_LABEL: who, ...more.env },
  });
};

describe("an agent and the coordinator", () => {
  it("acquires and renews through the coordinator alone, and gives back within its 2 s on SIGTERM", async () => {
    const resource = await readyResource(cluster, { lease: { durationSeconds: 3 } });
    const first = await agentOf(resource, "first");
    const { token } = await first.in("held");
    const lease = await leaseOf(cluster, resource);
    expect(lease.metadata.annotations["fenceline.dev/token"]).toBe(token);
    await expect.poll(() => first.file("orders/token")).toBe(token);

    const second = await agentOf(resource, "second");
    await expect
      .poll(() => second.get("/v1/holdings/orders").then(({ body }) => body["waitingFor"]))
      .toBeDefined();
    expect(await second.probe("/startupz")).toBe(503);
    // Longer than a term: it lives by its renewals.
    await expect
      .poll(async () => (await leaseOf(cluster, resource)).spec.renewTime, { timeout: 20_000 })
      .not.toBe(lease.spec.renewTime);

    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(0);
    const next = await second.in("held");
    expect(BigInt(String(next["token"]))).toBeGreaterThan(BigInt(String(token)));
    await expect.poll(() => second.probe("/startupz")).toBe(200);
  });
});
