import { defineConfig } from "vitest/config";

/** One project per level; test/run.ts decides which levels this machine can run. */
const level = (name: string, include: string[], more: object = {}) => ({
  // A busy machine may take its time; what never comes fails all the same.
  test: { name, include, expect: { poll: { timeout: 10_000 } }, testTimeout: 20_000, ...more },
});

export default defineConfig({
  test: {
    reporters: ["default"],
    projects: [
      level("unit", ["src/**/*.test.ts", "test/unit/**/*.test.ts"]),
      level("contract", ["test/contract/**/*.test.ts"]),
      level("sim", ["test/sim/**/*.test.ts"]),
      // One search at a time: each may take gigabytes.
      level("model", ["test/model/**/*.test.ts"], { fileParallelism: false, testTimeout: 300_000 }),
      level("postgres", ["test/postgres/**/*.test.ts"], {
        globalSetup: ["test/support/postgres/global-setup.ts"],
        maxWorkers: 2,
        testTimeout: 60_000,
        hookTimeout: 60_000,
      }),
      level("cluster", ["test/cluster/**/*.test.ts"], {
        globalSetup: ["test/support/cluster/global-setup.ts"],
        // They wait for leases, back-off and restarts most of the time.
        maxWorkers: 2,
        testTimeout: 60_000,
        hookTimeout: 120_000,
      }),
      level("e2e", ["test/e2e/**/*.test.ts"], {
        globalSetup: ["test/support/cluster/global-setup-nodes.ts", "test/support/postgres/global-setup.ts"],
        // Its files break the nodes they share.
        fileParallelism: false,
        // The life of an installation takes minutes: it is part of the long run.
        exclude: process.env["FENCELINE_LONG"] === "1" ? [] : ["test/e2e/fenceline/zz-lifecycle.test.ts"],
        testTimeout: 180_000,
        hookTimeout: 300_000,
      }),
    ],
  },
});
