import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type AgentOptions, type AgentProcess, endAgents, startAgent } from "../../support/agent/agent.ts";
import { fenceline } from "../cli/fenceline.ts";
import {
  granted,
  ok,
  refusal,
  type ScriptedCoordinator,
  shortMs,
  startCoordinator,
} from "../cli/coordinator.ts";

const timeout = 30_000;
let coordinator: ScriptedCoordinator;

beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(async () => {
  endAgents();
  await coordinator[Symbol.asyncDispose]();
});

const agent = (env: Record<string, string>, more: Partial<AgentOptions> = {}) =>
  startAgent({ ...coordinator, folder: join(coordinator.folder, "pod"), ...more, env });

/** `fenceline agent gate` beside `run`: its exit code and last words. */
const gate = async (run: AgentProcess): Promise<{ code: unknown; words: string }> => {
  const own = fenceline(["agent", "gate"], { FENCELINE_LOCAL_PORT: `${run.localPort}` });
  const code = await own.ended;
  return { code, words: own.stderr() };
};

const busy = () => refusal("busy", { holder: "pod:1/2", retryAfterMs: 100 });

describe("waiting for a right", { timeout }, () => {
  it("FM-13 Block: the app is held back until the grant, and told who holds it", async () => {
    coordinator.on["acquire"] = busy;
    const run = await agent({});
    await expect
      .poll(async () => (await run.get("/v1/holdings/orders")).body)
      .toMatchObject({ state: "waiting", waitingFor: "pod:1/2", token: null });
    expect(await run.probe("/startupz")).toBe(503);
    expect(await run.probe("/livez")).toBe(200);
    expect(await run.file("orders/state")).toBe("waiting");
    expect(await run.file("orders/token")).toBeUndefined();
    expect((await run.get("/v1/holdings/orders/check")).body).toMatchObject({
      code: "not_held",
      state: "waiting",
    });
    coordinator.on["acquire"] = () => granted("42");
    await run.in("held");
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    expect(await run.file("orders/token")).toBe("42");
  });

  it("Block asks on where asking again may help some day: a resource that is not there yet, a credential to come", async () => {
    coordinator.on["acquire"] = () => refusal("unknown_resource");
    const run = await agent({});
    await expect.poll(() => coordinator.count("acquire"), { timeout: 10_000 }).toBeGreaterThan(2);
    expect((await run.get("/v1/holdings/orders")).body).toMatchObject({
      state: "waiting",
      trouble: expect.stringContaining("unknown_resource"),
    });
    expect(await run.probe("/livez")).toBe(200);
    coordinator.on["acquire"] = () => granted("42");
    await run.in("held");
  });

  it("FM-13 Fail: busy ends the wait; the gate says so and fails, and the next one asks anew", async () => {
    coordinator.on["acquire"] = busy;
    const run = await agent({ FENCELINE_WAIT: "Fail" });
    const { code, words } = await gate(run);
    expect(code).toBe(3);
    expect(words).toMatch(/^fenceline: shop\/orders: busy: [^\n]*\n$/);
    expect(await run.probe("/startupz")).toBe(200);
    expect(await run.probe("/livez")).toBe(503);
    expect(await run.file("orders/token")).toBeUndefined();
    expect(coordinator.count("acquire")).toBe(1);
    coordinator.on["acquire"] = () => granted("42");
    expect(await gate(run)).toEqual({ code: 0, words: "" });
    expect(await run.probe("/livez")).toBe(200);
    expect(await run.file("orders/token")).toBe("42");
  });

  it("a wait-timeout: held back until then, and failed after it; a grant that comes too late is given back", async () => {
    const late = Promise.withResolvers<void>();
    coordinator.on["acquire"] = async ({ body }) => {
      if (body["waitMs"] === 0) return busy();
      await late.promise;
      return granted("42");
    };
    const run = await agent({ FENCELINE_WAIT_TIMEOUT: "1" });
    expect(await run.probe("/startupz")).toBe(503);
    const waiting = gate(run);
    await expect.poll(() => coordinator.count("acquire"), { timeout: 5000 }).toBe(2);
    coordinator.on["acquire"] = busy;
    late.resolve();
    const { code } = await waiting;
    expect([0, 3, 6]).toContain(code);
  });

  it("Start: the app starts at once and watches its state", async () => {
    coordinator.on["acquire"] = busy;
    const run = await agent({ FENCELINE_WAIT: "Start" });
    expect(await run.probe("/startupz")).toBe(200);
    expect((await run.get("/v1/holdings/orders")).body["state"]).toBe("waiting");
    coordinator.on["acquire"] = () => granted("42");
    await run.in("held");
  });

  it("Start with Terminate: what is lost stays lost until the container starts again", async () => {
    const run = await agent({ FENCELINE_WAIT: "Start" });
    await run.in("held");
    coordinator.on["renew"] = () => refusal("lost", { reason: "superseded" });
    await run.in("lost");
    expect(await run.probe("/livez")).toBe(503);
    expect(coordinator.count("acquire")).toBe(1);
  });

  it("Start with Report: after a loss a new attempt begins by itself, with a higher token", async () => {
    const run = await agent({ FENCELINE_WAIT: "Start", FENCELINE_ON_LOSS: "Report" });
    await run.in("held");
    coordinator.on["acquire"] = () => granted("43");
    coordinator.on["renew"] = ({ body }) =>
      body["token"] === "42" ? refusal("lost", { reason: "superseded" }) : ok(shortMs);
    await expect
      .poll(async () => (await run.get("/v1/holdings/orders")).body, { timeout: 10_000 })
      .toMatchObject({ state: "held", token: "43" });
    await expect.poll(() => run.file("orders/token")).toBe("43");
    expect(run.log()).toContain('"msg":"the right is lost"');
  });

  it("SIGTERM while it waits ends it at once, with 0", async () => {
    coordinator.on["acquire"] = ({ body }) => (body["waitMs"] === 0 ? busy() : "never");
    const run = await agent({});
    await expect.poll(() => coordinator.count("acquire")).toBe(2);
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(0);
  });
});

describe("several resources", { timeout }, () => {
  const resources = "stock,orders";

  it("are asked for in the order of their names, held and renewed while waiting for the next", async () => {
    coordinator.on["acquire"] = ({ resource }) => (resource === "shop/orders" ? granted("7") : busy());
    const run = await agent({}, { resources });
    await run.in("held", "orders");
    await expect.poll(() => coordinator.count("renew"), { timeout: 10_000 }).toBeGreaterThan(2);
    expect(await run.probe("/startupz")).toBe(503);
    expect((await run.get("/v1/holdings")).body["holdings"]).toMatchObject([
      { resource: "shop/orders", state: "held", token: "7" },
      { resource: "shop/stock", state: "waiting", token: null },
    ]);
    coordinator.on["acquire"] = () => granted("8");
    await run.in("held", "stock");
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(0);
    expect(
      coordinator.calls
        .filter(({ verb }) => verb === "release")
        .map(({ resource }) => resource)
        .toSorted(),
    ).toEqual(["shop/orders", "shop/stock"]);
  });

  it("are all given back when the wait ends without one", async () => {
    coordinator.on["acquire"] = ({ resource }) => (resource === "shop/orders" ? granted("7") : busy());
    const run = await agent({ FENCELINE_WAIT: "Fail" }, { resources });
    expect(await gate(run)).toMatchObject({ code: 3, words: expect.stringContaining("shop/stock: busy") });
    await expect.poll(() => coordinator.count("release")).toBe(1);
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", resource: "shop/orders" });
    await expect.poll(() => run.file("orders/state")).toBe("released");
    expect(await run.file("orders/token")).toBeUndefined();
  });

  it("one lost before the app was let start: all begin anew", async () => {
    coordinator.on["acquire"] = ({ resource }) => (resource === "shop/orders" ? granted("7") : busy());
    coordinator.on["renew"] = () => refusal("lost", { reason: "forced" });
    const run = await agent({}, { resources });
    await expect
      .poll(
        () =>
          coordinator.calls.filter(({ verb, resource }) => verb === "acquire" && resource === "shop/orders")
            .length,
        {
          timeout: 10_000,
        },
      )
      .toBeGreaterThan(1);
    expect(await run.probe("/livez")).toBe(200);
  });

  it("one lost afterwards: the liveness probe fails, and the container's next start begins anew with both", async () => {
    const run = await agent({}, { resources });
    await run.in("held", "stock");
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    await run.probe("/started/app");
    coordinator.on["renew"] = ({ resource }) =>
      resource === "shop/orders" ? refusal("lost", { reason: "forced" }) : ok(shortMs);
    await run.in("lost", "orders");
    expect(await run.probe("/livez")).toBe(503);
    expect((await run.get("/v1/holdings/stock")).body["state"]).toBe("held");
    coordinator.on["acquire"] = () => granted("50");
    coordinator.on["renew"] = () => ok(shortMs);
    await run.probe("/started/app");
    await run.in("held", "orders");
    await expect
      .poll(async () => (await run.get("/v1/holdings/stock")).body, { timeout: 10_000 })
      .toMatchObject({ state: "held", token: "50" });
    const returned = coordinator.calls.findIndex(
      ({ verb, resource }) => verb === "release" && resource === "shop/stock",
    );
    const asked = coordinator.calls.findLastIndex(
      ({ verb, resource }) => verb === "acquire" && resource === "shop/orders",
    );
    expect(returned).toBeGreaterThan(0);
    expect(returned).toBeLessThan(asked);
  });

  it("Start with Report: the others run out before all begin anew", async () => {
    coordinator.on["acquire"] = () => granted("7", shortMs);
    coordinator.on["renew"] = () => ok(shortMs);
    const run = await agent({ FENCELINE_WAIT: "Start", FENCELINE_ON_LOSS: "Report" }, { resources });
    await run.in("held", "stock");
    coordinator.on["renew"] = ({ resource }) =>
      resource === "shop/orders" ? refusal("lost", { reason: "forced" }) : ok(shortMs);
    await run.in("lost", "orders");
    await run.in("uncertain", "stock");
    coordinator.on["acquire"] = () => granted("8");
    coordinator.on["renew"] = () => ok(shortMs);
    await expect
      .poll(async () => (await run.get("/v1/holdings/stock")).body, { timeout: 10_000 })
      .toMatchObject({ state: "held", token: "8" });
    expect(coordinator.count("release")).toBe(0);
  });
});
