import { afterAll } from "vitest";
import { statusHarness } from "../../contract/statusharness.ts";
import { storeContract } from "../../contract/store.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { asController } from "../controller/account.ts";
import { enforced } from "../policies/support.ts";

const cluster = sharedCluster();
await enforced(cluster);
const account = await asController(cluster);
afterAll(() => account[Symbol.asyncDispose]());

// The policies let nobody write what a copy would look like.
storeContract("Status on the API server", () => statusHarness(account.client, { copies: false }));
