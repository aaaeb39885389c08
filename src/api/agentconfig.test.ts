import { describe, expect, it } from "vitest";
import {
  AgentConfigError,
  agentArgs,
  agentContainer,
  agentEnv,
  appDir,
  appEnv,
  gateArgs,
  gateContainer,
  localPort,
  lossActions,
  probePaths,
  probePort,
  readAgentConfig,
  readResources,
  resourcesMax,
  startedPath,
  stateDir,
  waits,
} from "./agentconfig.ts";

const env = {
  FENCELINE_SERVER: "https://fenceline.fenceline-system.svc:8443",
  FENCELINE_NAMESPACE: "shop",
  FENCELINE_RESOURCES: "stock, orders,orders",
  FENCELINE_TOKEN_FILE: "/credential/token",
  FENCELINE_CA_FILE: "/credential/ca.crt",
};

describe("the agent's environment", () => {
  it("has defaults for all that may be left out; resources are sorted, each once", () => {
    expect(readAgentConfig(env)).toEqual({
      server: "https://fenceline.fenceline-system.svc:8443",
      namespace: "shop",
      resources: ["orders", "stock"],
      wait: "Block",
      waitTimeoutMs: undefined,
      onLoss: "Terminate",
      label: undefined,
      tokenFile: "/credential/token",
      caFile: "/credential/ca.crt",
      dir: "/var/run/fenceline",
      stateDir: "/var/lib/fenceline",
      localPort: 7473,
      probePort: 7474,
      logLevel: "info",
    });
  });

  it("takes what is given, and an empty text for nothing", () => {
    const more = { FENCELINE_WAIT: "Fail", FENCELINE_WAIT_TIMEOUT: "30", FENCELINE_ON_LOSS: "" };
    expect(readAgentConfig({ ...env, ...more })).toMatchObject({
      wait: "Fail",
      waitTimeoutMs: 30_000,
      onLoss: "Terminate",
    });
  });

  it.each([
    ["FENCELINE_SERVER", undefined],
    ["FENCELINE_SERVER", "http://coordinator:8443"],
    ["FENCELINE_SERVER", "https://me:secret@coordinator"],
    ["FENCELINE_NAMESPACE", "Shop"],
    ["FENCELINE_RESOURCES", undefined],
    ["FENCELINE_TOKEN_FILE", undefined],
    ["FENCELINE_CA_FILE", ""],
    ["FENCELINE_WAIT", "Skip"],
    ["FENCELINE_WAIT_TIMEOUT", "1.5"],
    ["FENCELINE_WAIT_TIMEOUT", "0"],
    ["FENCELINE_ON_LOSS", "report"],
    ["FENCELINE_PROBE_PORT", "70000"],
    ["FENCELINE_LOG_LEVEL", "trace"],
  ])("names the variable that cannot be used: %s=%s", (name, value) => {
    expect(() => readAgentConfig({ ...env, [name]: value })).toThrow(
      expect.objectContaining({ message: expect.stringContaining(name) }),
    );
    expect(() => readAgentConfig({ ...env, [name]: value })).toThrow(AgentConfigError);
  });
});

describe("the resources of a pod", () => {
  it.each(["", " , ", "Orders", "a/b", "../etc", "..", ".", "-a", "a".repeat(254)])("refuses %j", (text) => {
    expect(() => readResources(text)).toThrow(AgentConfigError);
  });

  it("are 8 at most", () => {
    expect(readResources("h,g,f,e,d,c,b,a")).toHaveLength(8);
    expect(() => readResources("i,h,g,f,e,d,c,b,a")).toThrow("9 resources");
  });
});

describe("the surface that users meet", () => {
  it("has the names of the reference", () => {
    expect([agentContainer, gateContainer]).toEqual(["fenceline-agent", "fenceline-gate"]);
    expect([agentArgs, gateArgs]).toEqual([["agent"], ["agent", "gate"]]);
    expect([localPort, probePort]).toEqual([7473, 7474]);
    expect(probePaths).toEqual({ startup: "/startupz", live: "/livez" });
    expect(startedPath("app")).toBe("/started/app");
    expect([appDir, stateDir]).toEqual(["/var/run/fenceline", "/var/lib/fenceline"]);
    expect(appEnv).toEqual({ dir: "FENCELINE_DIR", agentUrl: "FENCELINE_AGENT_URL" });
    expect([waits, lossActions]).toEqual([
      ["Block", "Fail", "Start"],
      ["Terminate", "Report"],
    ]);
    expect(resourcesMax).toBe(8);
    expect(Object.values(agentEnv).every((name) => name.startsWith("FENCELINE_"))).toBe(true);
  });
});
