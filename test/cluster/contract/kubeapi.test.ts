import { afterAll } from "vitest";
import { makeTransport } from "../../../src/kube/transport.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { kubeApiContract } from "../../contract/kubeapi.ts";
import { kubeWatchContract } from "../../contract/kubewatch.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { asController } from "../controller/account.ts";
import { enforced } from "../policies/support.ts";

const cluster = sharedCluster();
await enforced(cluster);
const account = await asController(cluster);
const admin = makeTransport({
  access: loadKubeConfig({ from: "file", path: cluster.kubeconfig, context: cluster.context }, systemClock),
  clock: systemClock,
});
afterAll(async () => {
  await admin.close();
  await account[Symbol.asyncDispose]();
});

const harness = async () => ({
  admin,
  us: account.transport,
  namespace: () => cluster.namespace("contract"),
});

kubeApiContract("real", harness);
kubeWatchContract("real", harness);
