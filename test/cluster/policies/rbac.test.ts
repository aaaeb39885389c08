import { readFile } from "node:fs/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { systemAccount, systemNamespace } from "../../../src/api/names.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { crds, install, rbac } from "../crds/support.ts";
import { bound } from "./support.ts";

const cluster = sharedCluster();
let ns: string;

beforeAll(async () => {
  await install(cluster, crds, rbac);
  ns = await cluster.namespace("shop");
});

/** `yes` or `no`; kubectl ends with code 1 for no. */
const may = (as: readonly string[], verb: string, ...what: string[]): Promise<string> =>
  cluster.kubectl(["auth", "can-i", verb, ...what, ...as]).then(
    (out) => out.trim(),
    () => "no",
  );

describe("decision 13: what people get through the usual roles", () => {
  test.each<["view" | "edit" | "admin", Record<string, string>]>([
    ["view", { get: "yes", watch: "yes", create: "no", acquire: "no", force: "no", reconcile: "no" }],
    ["edit", { get: "yes", watch: "yes", create: "yes", acquire: "yes", force: "no", reconcile: "no" }],
    ["admin", { get: "yes", watch: "yes", create: "yes", acquire: "yes", force: "yes", reconcile: "yes" }],
  ])("%s", async (role, expected) => {
    const as = await bound(cluster, ns, role);
    const rights = async () =>
      Object.fromEntries(
        await Promise.all(
          Object.keys(expected).map(async (verb) => [
            verb,
            await may(as, verb, "fencedresources.fenceline.dev/orders", "-n", ns),
          ]),
        ),
      );
    // The roles are put together by a controller.
    await expect.poll(rights, { timeout: 20_000 }).toEqual(expected);
    expect(await may(as, "update", "fencedresources.fenceline.dev", "--subresource=status", "-n", ns)).toBe(
      "no",
    );
  });
});

test("our account has what it needs and not what it does not", async () => {
  const as = [`--as=system:serviceaccount:${systemNamespace}:${systemAccount}`];
  const rights = async (questions: string[][]) =>
    Promise.all(
      questions.map(
        async ([verb = "", ...what]) => `${verb} ${what.join(" ")}: ${await may(as, verb, ...what)}`,
      ),
    );
  const needed = [
    ["update", "leases.coordination.k8s.io", "-n", ns],
    ["watch", "fencedresources.fenceline.dev", "-A"],
    ["patch", "fencedresources.fenceline.dev", "--subresource=status", "-n", ns],
    ["update", "fencedsequences.fenceline.dev", "--subresource=status"],
    ["create", "events.events.k8s.io", "-n", ns],
    ["create", "tokenreviews.authentication.k8s.io"],
    ["create", "subjectaccessreviews.authorization.k8s.io"],
    ["get", "namespaces/kube-system"],
    ["watch", "pods", "-n", ns],
    ["update", "secrets/fenceline-tls", "-n", systemNamespace],
    ["create", "secrets", "-n", systemNamespace],
    ["update", "mutatingwebhookconfigurations.admissionregistration.k8s.io/inject.fenceline.dev"],
    ["patch", "configmaps/fenceline-ca", "-n", ns],
  ];
  const not = [
    ["delete", "leases.coordination.k8s.io", "-n", ns],
    ["get", "secrets", "-n", ns],
    ["get", "secrets/other", "-n", systemNamespace],
    ["update", "fencedresources.fenceline.dev", "-n", ns],
    ["update", "pods", "-n", ns],
    ["delete", "pods", "-n", ns],
    ["create", "secrets", "-n", ns],
    ["get", "configmaps/other", "-n", ns],
    ["update", "mutatingwebhookconfigurations.admissionregistration.k8s.io/other"],
    ["list", "namespaces"],
    ["impersonate", "users"],
    ["create", "serviceaccounts", "--subresource=token", "-n", ns],
  ];
  expect(await rights(needed)).toEqual(needed.map(([verb, ...what]) => `${verb} ${what.join(" ")}: yes`));
  expect(await rights(not)).toEqual(not.map(([verb, ...what]) => `${verb} ${what.join(" ")}: no`));
});

test("no right of anybody is a wildcard", async () => {
  for (const file of ["controller.yaml", "people.yaml"]) {
    const documents = parseAllDocuments(await readFile(`deploy/rbac/${file}`, "utf8"));
    for (const rule of documents.flatMap((document) => (document.toJS() as { rules?: object[] }).rules ?? []))
      expect(`${file}: ${JSON.stringify(rule)}`).not.toContain('"*"');
  }
});
