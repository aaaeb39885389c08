import { randomBytes } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { confirmDelete, sequenceName } from "../../../src/api/names.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { kubectlWith, patchStatus, refusal, resource as fencedResource, us } from "../crds/support.ts";
import { enforced, lease, sequence, untilMay } from "./support.ts";

const cluster = sharedCluster();
let resource: `${string}/${string}`;
let name: string;

beforeAll(() => enforced(cluster));
beforeEach(() => {
  resource = `shop/orders-${randomBytes(4).toString("hex")}`;
  name = sequenceName(resource);
});

const create = (as: readonly string[] = us) =>
  kubectlWith(cluster, ["create", "-f", "-", ...as], sequence(resource));
const uid = () => cluster.kubectl(["get", "fs", name, "--output=jsonpath={.metadata.uid}"]);
const remove = (as: readonly string[] = []) => cluster.kubectl(["delete", "fs", name, ...as]);
const confirm = (as: readonly string[] = []) =>
  cluster.kubectl(["annotate", "fs", name, `${confirmDelete}=${resource}`, ...as]);

/** May do everything to sequences, and has not the verb force. */
const keeper = async (): Promise<string[]> => {
  const user = `keeper-${randomBytes(4).toString("hex")}`;
  const kinds = "fencedsequences.fenceline.dev,fencedsequences.fenceline.dev/status";
  await cluster.kubectl(["create", "clusterrole", user, "--verb=*", `--resource=${kinds}`]);
  await cluster.kubectl(["create", "clusterrolebinding", user, `--clusterrole=${user}`, `--user=${user}`]);
  const as = [`--as=${user}`];
  await untilMay(cluster, as, "update", "fencedsequences.fenceline.dev", "--subresource=status");
  return as;
};

test("made by us alone", async () => {
  expect(await refusal(create([]))).toContain(
    "sequences are made by Fenceline alone: make a FencedResource instead",
  );
  await create();
});

describe("deleted", () => {
  test("only after the command of the message was given, by ourselves too", async () => {
    await create();
    const command = `kubectl annotate fencedsequence ${name} ${confirmDelete}=${resource}`;
    for (const as of [[], us])
      expect(await refusal(remove(as))).toContain(
        `tokens of ${resource} may go back without this sequence. If that is wanted: ${command}`,
      );
    await cluster.kubectl(command.split(" ").slice(1));
    await remove();
    expect(await refusal(uid())).toContain("NotFound");
  });

  test("not with the confirmation of another one", async () => {
    await create();
    await cluster.kubectl(["annotate", "fs", name, `${confirmDelete}=shop/other`]);
    expect(await refusal(remove())).toContain("may go back without this sequence");
  });

  test("by us, with a confirmation of our own", async () => {
    await create();
    await confirm(us);
    expect(await remove(us)).toContain("deleted");
  });

  test("only with the verb force", async () => {
    await create();
    await confirm();
    const as = await keeper();
    expect(await refusal(remove(as))).toContain(
      `may not delete the sequence of ${resource}: it needs the verb force on this FencedResource`,
    );
  });

  test("never together with others", async () => {
    await create();
    await cluster.kubectl(["label", "fs", name, `test=${name.slice(0, 40)}`]);
    const path = `/apis/fenceline.dev/v1alpha1/fencedsequences?labelSelector=test%3D${name.slice(0, 40)}`;
    for (const as of [[], us])
      expect(await refusal(cluster.kubectl(["delete", "--raw", path, ...as]))).toContain(
        "may go back without this sequence",
      );
    expect(await uid()).not.toBe("");
  });

  test("not by the garbage collector", async () => {
    await create();
    const owner = { apiVersion: "v1", kind: "ConfigMap", name: "gone", uid: crypto.randomUUID() };
    const owned = JSON.stringify({ metadata: { ownerReferences: [owner] } });
    await cluster.kubectl(["patch", "fs", name, "--type=merge", "-p", owned]);
    const collector = ["--as=system:serviceaccount:kube-system:generic-garbage-collector"];
    expect(await refusal(remove(collector))).toContain("may not delete the sequence of");
  });
});

describe("the definition of the kind", () => {
  const kind = "fencedsequences.fenceline.dev";
  const dryRun = ["--dry-run=server"];
  const everyDefinition =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All&labelSelector=app.kubernetes.io%2Fname%3Dfenceline";

  test("deleted only when confirmed, alone or with others", async () => {
    const message = `tokens of every resource may go back without their sequences. If that is wanted: kubectl annotate crd ${kind} ${confirmDelete}=${kind}`;
    expect(await refusal(cluster.kubectl(["delete", "crd", kind, ...dryRun]))).toContain(message);
    expect(await refusal(cluster.kubectl(["delete", "--raw", everyDefinition]))).toContain(message);
    await cluster.kubectl(["annotate", "crd", kind, `${confirmDelete}=${kind}`]);
    try {
      await cluster.kubectl(["delete", "crd", kind, ...dryRun]);
    } finally {
      await cluster.kubectl(["annotate", "crd", kind, `${confirmDelete}-`]);
    }
  });

  test("other kinds are deleted as ever", async () => {
    expect(await cluster.kubectl(["delete", "crd", "fencedresources.fenceline.dev", ...dryRun])).toContain(
      "deleted",
    );
  });
});

const status = async () => ({ base: "0", ceiling: "64", uid: await uid(), issuer: "a" });

describe("status", () => {
  const message = "status is written by Fenceline alone: change spec instead";
  test("of a sequence: written by us alone", async () => {
    await create();
    for (const as of [[], await keeper()])
      expect(await refusal(patchStatus(cluster, ["fs", name], await status(), as))).toContain(message);
    await patchStatus(cluster, ["fs", name], await status());
  });

  test("FM-13 of a resource: written by us alone", async () => {
    const ns = await cluster.namespace("shop");
    await kubectlWith(cluster, ["create", "-f", "-"], fencedResource(ns, "orders"));
    const target = ["fr", "orders", "-n", ns];
    expect(await refusal(patchStatus(cluster, target, { guarantee: "Fenced" }, []))).toContain(message);
    await patchStatus(cluster, target, { guarantee: "Fenced" });
  });

  test("of a sequence: never under the uid of another one, as in a backup put back", async () => {
    await create();
    expect(
      await refusal(patchStatus(cluster, ["fs", name], { ...(await status()), uid: crypto.randomUUID() })),
    ).toContain("status.uid must be the object's own metadata.uid");
  });
});

test("FM-28 a namespace goes with its resources and Leases; the sequence stays", async () => {
  const ns = await cluster.namespace("shop");
  resource = `${ns}/orders`;
  name = sequenceName(resource);
  await create();
  await kubectlWith(cluster, ["create", "-f", "-"], fencedResource(ns, "orders"));
  await kubectlWith(cluster, ["create", "-f", "-", ...us], lease(ns, "orders"));
  await cluster.kubectl(["delete", "namespace", ns, "--timeout=60s"]);
  expect(await refusal(cluster.kubectl(["get", "namespace", ns]))).toContain("NotFound");
  expect(await uid()).not.toBe("");
});
