import { existsSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { startApi } from "../../support/cluster/api.ts";
import { ExecError } from "../../support/cluster/exec.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";

let lab: Lab;
beforeAll(async () => {
  lab = await startApi();
});
afterEach(() => lab.heal());
afterAll(() => lab[Symbol.asyncDispose]());
collectOnFailure(() => lab);

const answers = (timeout: string) =>
  lab.kubectl(["get", "namespaces", "-o", "name", `--request-timeout=${timeout}`]).then(
    () => "answered",
    (error: Error) => error.message,
  );

test("the API server can be killed, and comes back with what it knew", async () => {
  const namespace = await lab.namespace();
  const fault = await lab.apiserver.kill();
  expect(lab.apiserver.running).toBe(false);
  expect(await answers("5s")).toMatch(/refused/);
  await fault.heal();
  expect(await lab.kubectl(["get", "namespace", namespace, "-o", "name"])).toBe(`namespace/${namespace}\n`);
});

test("a paused API server keeps its port and gives no answer", async () => {
  await lab.apiserver.pause();
  expect(await answers("1s")).toMatch(/timeout|deadline|Client.Timeout/i);
});

test("healing after a test resumes and restarts whatever was broken", async () => {
  await lab.apiserver.pause();
  await lab.etcd.kill();
  await lab.client("kube-controller-manager").kill();
  await lab.heal();
  expect(await answers("10s")).toBe("answered");
  expect(lab.clients.every((component) => component.running)).toBe(true);
});

test("nothing can be written while etcd is paused, and all is well afterwards", async () => {
  const create = () => lab.kubectl(["create", "namespace", "while-paused", "--request-timeout=2s"]);
  const fault = await lab.etcd.pause();
  await expect(create()).rejects.toThrow(ExecError);
  await fault.heal();
  await expect.poll(() => answers("5s"), { timeout: 30_000 }).toBe("answered");
});

test("restoring a snapshot takes resourceVersion back and forgets what came after it", async () => {
  const namespace = await lab.namespace();
  const create = (name: string) => lab.kubectl(["create", "configmap", name, "-n", namespace]);
  const version = async () => {
    const list = await lab.kubectl(["get", "--raw", `/api/v1/namespaces/${namespace}/configmaps?limit=1`]);
    return Number(JSON.parse(list).metadata.resourceVersion);
  };
  await create("before");
  const snapshot = await lab.etcd.snapshot();
  for (const name of ["one", "two", "three", "four", "five"]) await create(name);
  const last = await version();
  await lab.etcd.restore(snapshot);
  expect(await version()).toBeLessThan(last);
  const names = await lab.kubectl(["get", "configmaps", "-n", namespace, "-o", "name"]);
  expect(names).toContain("before");
  expect(names).not.toContain("five");
});

test("a second API server over the same etcd sees what is written through the first", async () => {
  const second = await lab.second();
  const namespace = await lab.namespace();
  const args = [`--kubeconfig=${second.kubeconfig}`, "get", "namespace", namespace, "-o", "name"];
  expect(await lab.kubectl(args)).toBe(`namespace/${namespace}\n`);
  await lab.apiserver.kill();
  expect(await lab.kubectl(args)).toBe(`namespace/${namespace}\n`);
  await second.component.stop();
});

test("logs and events of a failed test go to a folder", async () => {
  const folder = await lab.collect("a name / with: signs");
  expect(folder).toMatch(/a_name_with_signs$/);
  const files = ["etcd.log", "kube-controller-manager.log", "events.txt", "objects.txt"];
  expect(files.filter((file) => !existsSync(`${folder}/${file}`))).toEqual([]);
});
