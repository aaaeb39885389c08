import { afterAll, afterEach, beforeAll } from "vitest";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { kubeForgetContract } from "../../contract/kubewatch.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";

let lab: Lab;
beforeAll(async () => {
  lab = await startApi();
});
afterAll(() => lab?.[Symbol.asyncDispose]());
afterEach(() => lab.heal());
collectOnFailure(() => lab);

kubeForgetContract("real", async () => {
  const access = loadKubeConfig({ from: "file", path: lab.kubeconfig, context: lab.context }, systemClock);
  const admin = makeTransport({ access, clock: systemClock });
  return {
    admin,
    us: admin,
    namespace: () => lab.namespace("contract"),
    // What a server has seen since it started is all that it can tell of.
    async forget() {
      await lab.apiserver.stop();
      await lab.apiserver.start();
    },
  };
});
