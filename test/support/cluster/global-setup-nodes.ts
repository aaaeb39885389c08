import type { TestProject } from "vitest/node";
import { surroundingBox } from "./box.ts";
import { ClusterError, forgetStrays } from "./config.ts";
import { type NodesState, startNodes } from "./nodes.ts";

declare module "vitest" {
  interface ProvidedContext {
    nodes: NodesState;
  }
}

/** One cluster with two nodes for all test files of level `nodes`, in the box around this run. */
export const setup = async (project: TestProject): Promise<() => Promise<void>> => {
  if (!surroundingBox())
    throw new ClusterError("pods run in a box: npm run cluster -- run npx vitest run --project e2e");
  forgetStrays();
  const lab = await startNodes({ nodes: 2 });
  project.provide("nodes", lab.state);
  return () => lab[Symbol.asyncDispose]();
};
