import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { imageRepository } from "../../../src/api/injection.ts";
import { audience } from "../../../src/api/names.ts";
import { inject } from "../../../src/webhook/inject.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Caller, heldBy, makeCaller } from "../../support/fenceline/caller.ts";
import { patched } from "../../support/jsonpatch.ts";
import { optedIn, settings } from "../../support/pods.ts";
import { type Controller, install, startController, workerToken } from "../../support/fenceline/install.ts";
import { leaseOf, readyResource } from "../coordinator/support.ts";

/** Of its own: a controller leads one cluster. */
let cluster: Lab;
collectOnFailure(() => cluster);
let controller: Controller;

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  controller = await startController(cluster, { replica: "pods" });
});
afterAll(async () => {
  await controller?.stop();
  await cluster?.[Symbol.asyncDispose]();
});

/** A pod that opted in, which no kubelet will ever run, and a caller with its credential. */
const podOf = async (resource: string, name: string): Promise<Caller> => {
  const [namespace = ""] = resource.split("/");
  await workerToken(cluster, namespace, "worker");
  const bare = optedIn({}, { serviceAccountName: "worker", terminationGracePeriodSeconds: 0 });
  const pod = { ...bare, metadata: { ...bare.metadata, name, namespace } };
  const injected = inject(pod, { ...settings, image: `${imageRepository}:1` });
  if (injected.outcome !== "patch") throw new Error(`not injected: ${injected.outcome}`);
  await cluster.apply(patched(pod, injected.patch));
  const bearer = await cluster.kubectl([
    "create",
    "token",
    "worker",
    "-n",
    namespace,
    `--audience=${audience}`,
    "--bound-object-kind=Pod",
    `--bound-object-name=${name}`,
  ]);
  return makeCaller({ server: controller.server, caFile: controller.caFile, bearer: bearer.trim() });
};

/** What its kubelet would report. */
const report = async (resource: string, name: string, status: object): Promise<void> => {
  const [namespace = ""] = resource.split("/");
  await cluster.kubectl([
    "patch",
    "pod",
    name,
    "-n",
    namespace,
    "--subresource=status",
    "--type=merge",
    "-p",
    JSON.stringify({ status }),
  ]);
};

const ended = (name: string, exitCode: number) => ({
  name,
  image: "none",
  imageID: "",
  ready: false,
  restartCount: 0,
  state: { terminated: { exitCode } },
});

describe("FM-34 released from outside", () => {
  it("when the app's containers have ended, though the agent never said so; the next grant comes at once", async () => {
    const resource = await readyResource(cluster, { lease: { durationSeconds: 600 } });
    const first = await podOf(resource, "first");
    const second = await podOf(resource, "second");
    const held = heldBy(await first.acquire(resource));
    await first.renew(resource, held);
    const waiting = second.acquire(resource, { waitMs: 30_000 });

    // A phase alone proves nothing: a silent node's pods are given one too.
    await report(resource, "first", { phase: "Failed" });
    await report(resource, "second", { phase: "Running" });
    expect((await first.renew(resource, held)).status).toBe(200);
    expect((await leaseOf(cluster, resource)).spec.holderIdentity).toContain(held.attempt);

    await report(resource, "first", { containerStatuses: [ended("app", 137)] });
    const granted = await waiting;
    expect(granted.status).toBe(200);
    expect(BigInt(heldBy(granted).token)).toBeGreaterThan(BigInt(held.token));
    const late = await first.renew(resource, held);
    expect(late).toMatchObject({ status: 409, body: { code: "lost", reason: "released" } });
    expect((await first.release(resource, held)).body).toMatchObject({ released: false });

    // A pod that vanished is no proof: its lease runs out.
    const [namespace = ""] = resource.split("/");
    await cluster.kubectl(["delete", "pod", "second", "-n", namespace, "--force", "--grace-period=0"]);
    const third = await podOf(resource, "third");
    const answer = await third.acquire(resource, { waitMs: 1000 });
    expect(answer).toMatchObject({ status: 409, body: { code: "busy" } });
    await Promise.all([first.close(), second.close(), third.close()]);
  });
});
