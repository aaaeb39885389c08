import { describe, expect, it } from "vitest";
import type { PodObject } from "../api/k8s.ts";
import { workIsOver } from "./pods.ts";

interface Of {
  pod?: "Never" | "OnFailure" | "Always";
  own?: string;
  rules?: unknown[];
  phase?: string;
  /** Exit codes of the app's containers; undefined: it runs, or nobody knows. */
  exits?: (number | undefined)[];
}

const podOf = ({ pod = "Never", own, rules, phase = "Running", exits = [0] }: Of): PodObject => ({
  metadata: { name: "import", namespace: "shop", uid: "u", resourceVersion: "1" },
  spec: {
    restartPolicy: pod,
    initContainers: [{ name: "fenceline-agent", restartPolicy: "Always" }],
    containers: exits.map((_, index) => ({
      name: `app-${index}`,
      ...(own === undefined ? {} : { restartPolicy: own }),
      ...(rules === undefined ? {} : { restartPolicyRules: rules }),
    })),
  },
  status: {
    phase,
    initContainerStatuses: [{ name: "fenceline-agent", state: {} }],
    containerStatuses: exits.map((exitCode, index) => ({
      name: `app-${index}`,
      state: exitCode === undefined ? {} : { terminated: { exitCode } },
    })),
  },
});

describe("FM-34 whether a pod's work is over", () => {
  it.each<[string, Of, boolean]>([
    ["it ended, and is never started again", {}, true],
    ["it failed, and is never started again", { exits: [1] }, true],
    ["one of two still runs", { exits: [0, undefined] }, false],
    ["both have ended", { exits: [0, 137] }, true],
    ["it succeeded, and only a failure is tried again", { pod: "OnFailure" }, true],
    ["it failed, and is tried again", { pod: "OnFailure", exits: [1] }, false],
    ["it ended, and is always started again", { pod: "Always" }, false],
    [
      "the pod as a whole has ended, whatever its policy",
      { pod: "Always", phase: "Failed", exits: [143] },
      true,
    ],
    [
      "a phase that a silent node was given: its containers may run",
      { phase: "Failed", exits: [undefined] },
      false,
    ],
    ["the container's own policy counts before the pod's", { pod: "Always", own: "Never" }, true],
    ["rules of its own may start it again", { rules: [{ action: "Restart" }] }, false],
  ])("%s", (_name, of, over) => {
    expect(workIsOver(podOf(of))).toBe(over);
  });

  it("a pod without any status says nothing", () => {
    const { status: _, ...pod } = podOf({});
    expect(workIsOver(pod)).toBe(false);
  });
});
