import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type AgentOptions, endAgents, startAgent } from "../../support/agent/agent.ts";
import { type ScriptedCoordinator, startCoordinator } from "../cli/coordinator.ts";

const timeout = 30_000;
let coordinator: ScriptedCoordinator;

beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(async () => {
  endAgents();
  await coordinator[Symbol.asyncDispose]();
});

const agent = (more: Partial<AgentOptions> = {}) =>
  startAgent({ ...coordinator, folder: join(coordinator.folder, "pod"), ...more });

describe("the agent process", { timeout }, () => {
  it("acquires, shows token and state in files and over HTTP, renews, and gives back on SIGTERM", async () => {
    const run = await agent({ env: { FENCELINE_LABEL: "import-7" } });
    expect(await run.in("held")).toMatchObject({
      resource: "shop/orders",
      token: "42",
      guarantee: "Advisory",
    });
    await expect.poll(() => run.file("orders/state")).toBe("held");
    expect(await run.file("orders/token")).toBe("42");
    expect(JSON.parse((await run.file("orders/holding.json")) ?? "")).toMatchObject({
      state: "held",
      token: "42",
    });
    expect(await run.probe("/startupz")).toBe(200);
    expect(await run.probe("/livez")).toBe(200);
    expect((await run.get("/v1/holdings/orders/check")).status).toBe(204);
    expect(coordinator.calls[0]).toMatchObject({
      verb: "acquire",
      bearer: "a-bearer",
      body: { label: "import-7" },
    });
    await expect.poll(() => coordinator.count("renew"), { timeout: 10_000 }).toBeGreaterThan(2);
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(0);
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", body: { token: "42" } });
    expect(await run.file("orders/state")).toBe("released");
    expect(await run.file("orders/token")).toBeUndefined();
  });
});
