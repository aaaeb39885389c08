import { randomBytes } from "node:crypto";
import { expect, vi } from "vitest";
import { confirmDelete, leaseAnnotations, resourceLabel, sequenceName } from "../../../src/api/names.ts";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { crds, install, kubectlWith, policies, rbac, refusal, us } from "../crds/support.ts";

export interface LeaseBody {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid?: string;
    resourceVersion?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
    ownerReferences?: object[];
  };
  spec: { holderIdentity?: string; leaseDurationSeconds?: number };
}

/** A Lease of a fenced resource, or, without label, somebody's. */
export const lease = (
  namespace: string,
  name: string,
  {
    holder,
    notes = {},
    label = name,
  }: { holder?: string; notes?: Record<string, string>; label?: string | null } = {},
): LeaseBody => ({
  apiVersion: "coordination.k8s.io/v1",
  kind: "Lease",
  metadata: {
    name: `fenceline-${name}`,
    namespace,
    ...(label === null ? {} : { labels: { [resourceLabel]: label } }),
    annotations: notes,
  },
  spec: holder === undefined ? {} : { holderIdentity: holder, leaseDurationSeconds: 15 },
});

/** Token and ceiling under a uid, as the annotations of a Lease. */
export const credit = (
  uid: string,
  token: string,
  ceiling = "9223372036854775807",
): Record<string, string> => ({
  [leaseAnnotations.creditUid]: uid,
  [leaseAnnotations.token]: token,
  [leaseAnnotations.ceiling]: ceiling,
});

/** Everything in place, and every policy at work. */
export const enforced = async (cluster: Cluster): Promise<void> => {
  await install(cluster, crds, rbac, policies);
  const probe = lease("default", `probe-${randomBytes(4).toString("hex")}`);
  const stray = lease("default", "stray", { label: null });
  const probes: [object, readonly string[]][] = [
    [probe, []],
    [stray, us],
    [sequence("default/probe"), []],
  ];
  for (const [body, as] of probes)
    await vi.waitFor(
      async () => {
        expect(
          await refusal(kubectlWith(cluster, ["create", "--dry-run=server", "-f", "-", ...as], body)),
        ).toContain("ValidatingAdmissionPolicy");
      },
      { timeout: 20_000, interval: 100 },
    );
};

export const sequence = (resource: `${string}/${string}`, confirmed?: string) => ({
  apiVersion: "fenceline.dev/v1alpha1",
  kind: "FencedSequence",
  metadata: {
    name: sequenceName(resource),
    ...(confirmed === undefined ? {} : { annotations: { [confirmDelete]: confirmed } }),
  },
  spec: { resource },
});

/** Waits until the API server knows of a right: it learns of roles and bindings by watch. */
export const untilMay = async (
  cluster: Cluster,
  as: readonly string[],
  ...question: string[]
): Promise<void> => {
  await vi.waitFor(() => cluster.kubectl(["auth", "can-i", ...question, ...as]), {
    timeout: 20_000,
    interval: 50,
  });
};

/** Somebody with exactly these rights in one namespace, as flags of kubectl. */
export const person = async (
  cluster: Cluster,
  namespace: string,
  name: string,
  rules: { apiGroups: string[]; resources: string[]; resourceNames?: string[]; verbs: string[] }[],
): Promise<string[]> => {
  const user = `${name}-of-${namespace}`;
  const metadata = { namespace, name };
  await cluster.apply(
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata, rules },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata,
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
      subjects: [{ kind: "User", apiGroup: "rbac.authorization.k8s.io", name: user }],
    },
  );
  const as = [`--as=${user}`];
  for (const { apiGroups, resources, resourceNames, verbs } of rules) {
    const what = `${resources[0]}.${apiGroups[0]}`.replace(/\.$/, "");
    const named = resourceNames === undefined ? what : `${what}/${resourceNames[0]}`;
    await untilMay(cluster, as, verbs[0] ?? "get", named, "-n", namespace);
  }
  return as;
};

/** Somebody who has one of the usual roles in one namespace. */
export const bound = async (
  cluster: Cluster,
  namespace: string,
  role: "view" | "edit" | "admin",
): Promise<string[]> => {
  const user = `${role}-of-${namespace}`;
  await cluster.kubectl([
    "create",
    "rolebinding",
    role,
    "-n",
    namespace,
    `--clusterrole=${role}`,
    `--user=${user}`,
  ]);
  const as = [`--as=${user}`];
  await untilMay(cluster, as, "get", "fencedresources.fenceline.dev", "-n", namespace);
  return as;
};
