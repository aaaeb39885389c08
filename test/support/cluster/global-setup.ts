import type { TestProject } from "vitest/node";
import { forgetStrays } from "./config.ts";
import type { ClusterAccess } from "./cluster.ts";
import type { LabState } from "./lab.ts";
import { chooseCluster, openCluster } from "./which.ts";

declare module "vitest" {
  interface ProvidedContext {
    cluster: { access: ClusterAccess; lab: LabState | null };
  }
}

/** One cluster for all test files of level `api`, for as long as they run. */
export const setup = async (project: TestProject): Promise<() => Promise<void>> => {
  const choice = chooseCluster(process.env);
  forgetStrays();
  const { access, lab, close } = await openCluster(choice);
  project.provide("cluster", { access, lab: lab ?? null });
  return close;
};
