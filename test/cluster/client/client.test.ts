import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { lead } from "../../../src/client/election.ts";
import {
  acquire,
  type Client,
  connect,
  exitCodeOf,
  HoldBusy,
  HoldLost,
  HoldRefused,
  withHolding,
} from "../../../src/client/holding.ts";
import { startApi } from "../../support/cluster/api.ts";
import { childEnvironment } from "../../support/cluster/config.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { pathOf } from "../../support/fenceline/caller.ts";
import { type Controller, install, startController, workerToken } from "../../support/fenceline/install.ts";
import { callerFor, leaseOf, readyResource } from "../coordinator/support.ts";

/** Of its own: a controller leads one cluster. */
let cluster: Lab;
collectOnFailure(() => cluster);
let controller: Controller;
const clients: Client[] = [];
const campaigners: ChildProcess[] = [];

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  controller = await startController(cluster);
});
afterAll(async () => {
  for (const child of campaigners) child.kill("SIGKILL");
  for (const client of clients) client.close();
  await controller?.kill();
  await cluster?.[Symbol.asyncDispose]();
});

const accessTo = async (resource: string) => ({
  server: controller.server,
  caFile: controller.caFile,
  tokenFile: await workerToken(cluster, resource.split("/")[0] ?? "", "worker"),
});

const clientFor = async (resource: string): Promise<Client> => {
  const client = connect(await accessTo(resource));
  clients.push(client);
  return client;
};

const force = async (resource: string): Promise<void> => {
  const [namespace = ""] = resource.split("/");
  await cluster.apply({
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: { name: "operator", namespace },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "fenceline-admin" },
    subjects: [{ kind: "ServiceAccount", name: "operator", namespace }],
  });
  const operator = await callerFor(cluster, controller, resource, "operator");
  await expect
    .poll(() => operator.post(`${pathOf(resource)}/force-release`, { reason: "stuck since noon" }))
    .toMatchObject({ status: 200, body: { released: true } });
  await operator.close();
};

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => `no failure, but ${String(value)}`,
    (error: unknown) => error,
  );

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

it("S1-03 acquires, renews, gives back, and the next one has a higher token", async () => {
  const resource = await readyResource(cluster, { lease: { durationSeconds: 5 } });
  const client = await clientFor(resource);
  const holding = await acquire(client, resource, { label: "import job" });
  expect(holding).toMatchObject({ resource, token: 1n, guarantee: "Advisory" });
  const busy = await failureOf(acquire(client, resource, { waitMs: 0 }));
  expect(busy).toBeInstanceOf(HoldBusy);
  expect(exitCodeOf(busy)).toBe(3);
  const before = (await leaseOf(cluster, resource)).spec.renewTime;
  await expect.poll(async () => (await leaseOf(cluster, resource)).spec.renewTime).not.toBe(before);
  expect(holding.state()).toBe("held");
  expect(await holding.release()).toEqual({ kind: "released" });
  expect(await withHolding(client, resource, async ({ token }) => token)).toBe(2n);
  expect((await leaseOf(cluster, resource)).spec.holderIdentity ?? "").toBe("");
});

it("S1-40 a right that an operator takes away aborts the work, and its success does not count", async () => {
  const resource = await readyResource(cluster);
  const client = await clientFor(resource);
  const begun = Promise.withResolvers<void>();
  const running = failureOf(
    withHolding(client, resource, async (_, signal) => {
      begun.resolve();
      await aborted(signal);
      return "done";
    }),
  );
  await begun.promise;
  await force(resource);
  const error = await running;
  expect(error).toBeInstanceOf(HoldLost);
  expect(error).toMatchObject({ reason: "forced" });
  expect(exitCodeOf(error)).toBe(4);
});

it("says what is refused", async () => {
  const resource = await readyResource(cluster);
  const client = await clientFor(resource);
  const error = await failureOf(acquire(client, resource.replace(/orders$/, "nothing")));
  expect(error).toBeInstanceOf(HoldRefused);
  expect(exitCodeOf(error)).toBe(1);
});

/** A process of its own that campaigns; resolves with its token once it leads. */
const campaigner = async (resource: string): Promise<{ child: ChildProcess; token: bigint }> => {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "campaigner.ts"), resource, JSON.stringify(await accessTo(resource))],
    { env: childEnvironment(), stdio: ["ignore", "pipe", "inherit"] },
  );
  campaigners.push(child);
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  return { child, token: BigInt(String(line)) };
};

it("S1-03 the leader's process dies, and who waits leads with a higher token", async () => {
  const resource = await readyResource(cluster, { lease: { durationSeconds: 3 } });
  const first = await campaigner(resource);
  const client = await clientFor(resource);
  const stop = new AbortController();
  const tokens: bigint[] = [];
  const campaign = lead(
    client,
    resource,
    async ({ token }, signal) => {
      tokens.push(token);
      await aborted(signal);
    },
    { signal: stop.signal, label: "second" },
  );
  first.child.kill("SIGKILL");
  await expect.poll(() => tokens.length, { timeout: 40_000 }).toBe(1);
  expect(tokens[0]).toBeGreaterThan(first.token);
  // Taken away, it campaigns again; at the end it gives back.
  await force(resource);
  await expect.poll(() => tokens.length, { timeout: 40_000 }).toBe(2);
  expect(tokens[1]).toBeGreaterThan(tokens[0] ?? 0n);
  stop.abort();
  await campaign;
  expect((await leaseOf(cluster, resource)).spec.holderIdentity ?? "").toBe("");
});
