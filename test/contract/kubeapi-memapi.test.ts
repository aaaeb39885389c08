import { systemClock, systemRandom } from "../../src/runtime/clock.ts";
import { makeMemApi } from "../support/memapi/memapi.ts";
import { kubeApiContract } from "./kubeapi.ts";
import { send } from "./kuberequests.ts";
import { kubeForgetContract, kubeWatchContract } from "./kubewatch.ts";

const api = makeMemApi({ clock: systemClock, random: systemRandom });
const admin = api.transport({ name: "admin" });
let namespaces = 0;

const harness = async () => ({
  admin,
  us: api.transport({ name: "us" }),
  async namespace() {
    const name = `contract-${++namespaces}`;
    await send(admin, "POST", "/api/v1/namespaces", {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name },
    });
    return name;
  },
});

kubeApiContract("in memory", harness);
kubeWatchContract("in memory", harness);
kubeForgetContract("in memory", async () => ({
  ...(await harness()),
  forget: async () => api.compact(),
}));
