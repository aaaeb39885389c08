import { expect, test } from "vitest";
import { Cluster } from "../../support/cluster/cluster.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";

const cluster = sharedCluster();

test("a fresh namespace per test, with its default service account", async () => {
  const [one, two] = await Promise.all([cluster.namespace(), cluster.namespace("shop")]);
  expect(one).not.toBe(two);
  expect(two).toMatch(/^shop-/);
  expect(await cluster.kubectl(["get", "serviceaccounts", "-n", one, "-o", "name"])).toBe(
    "serviceaccount/default\n",
  );
});

test("a token for an audience, that the cluster itself judges by TokenReview", async () => {
  const namespace = await cluster.namespace();
  const token = await cluster.token({
    namespace,
    sa: "worker",
    audience: "fenceline",
    expirationSeconds: 600,
  });
  const review = {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec: { token, audiences: ["fenceline"] },
  };
  const answer = await cluster.kubectl(["create", "-o", "json", "-f", "-"], {
    input: JSON.stringify(review),
  });
  expect(JSON.parse(answer)).toMatchObject({
    status: { authenticated: true, user: { username: `system:serviceaccount:${namespace}:worker` } },
  });
});

test("credentials of another user", async () => {
  const kubeconfig = await cluster.credentials("alice", ["shop/editors"]);
  const answer = await cluster.kubectl([
    `--kubeconfig=${kubeconfig}`,
    `--context=${cluster.context}`,
    "auth",
    "whoami",
    "-o",
    "json",
  ]);
  expect(JSON.parse(answer)).toMatchObject({
    status: { userInfo: { username: "alice", groups: ["shop/editors", "system:authenticated"] } },
  });
});

test("on a cluster that is not ours, another user's certificate is signed by the cluster", async () => {
  const kubeconfig = await new Cluster(cluster.access).credentials("bob", ["shop"]);
  const args = [`--kubeconfig=${kubeconfig}`, `--context=${cluster.context}`, "auth", "whoami", "-o", "json"];
  expect(JSON.parse(await cluster.kubectl(args))).toMatchObject({
    status: { userInfo: { username: "bob", groups: ["shop", "system:authenticated"] } },
  });
});
