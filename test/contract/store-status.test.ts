import { makeKubeClient } from "../../src/kube/client.ts";
import { systemClock, systemRandom } from "../../src/runtime/clock.ts";
import { makeMemApi } from "../support/memapi/memapi.ts";
import { statusHarness } from "./statusharness.ts";
import { storeContract } from "./store.ts";

const api = makeMemApi({ clock: systemClock, random: systemRandom });
const client = makeKubeClient(api.transport({ name: "store" }));

storeContract("Status on an API server in memory", () => statusHarness(client, { copies: true }));
