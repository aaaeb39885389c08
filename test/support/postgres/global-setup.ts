import type { TestProject } from "vitest/node";
import { type Lab, makeLab } from "./lab.ts";

declare module "vitest" {
  interface ProvidedContext {
    postgres: Lab;
  }
}

/** One folder and one template for all test files of level `postgres`. */
export const setup = async (project: TestProject): Promise<() => Promise<void>> => {
  const lab = await makeLab();
  project.provide("postgres", { folder: lab.folder, template: lab.template });
  return async () => {
    await lab[Symbol.asyncDispose]();
  };
};
