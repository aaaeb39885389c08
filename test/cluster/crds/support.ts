import { expect } from "vitest";
import { systemAccount, systemNamespace } from "../../../src/api/names.ts";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { ExecError } from "../../support/cluster/exec.ts";

/** Paths from the root of the checkout, where tests run. */
export const crds = ["crds/"];
export const rbac = ["deploy/rbac/"];
export const policies = ["deploy/policies/"];

/** Applies manifests and waits until the kinds in them are served. */
export const install = async (cluster: Cluster, ...folders: string[][]): Promise<void> => {
  for (const folder of folders.flat())
    await cluster.kubectl(["apply", "--server-side", "--force-conflicts", "-f", folder]);
  await cluster.kubectl([
    "wait",
    "--for=condition=Established",
    "--timeout=30s",
    "crd",
    "-l",
    "app.kubernetes.io/name=fenceline",
  ]);
};

/** Our service account, with every right: what is refused is refused by policy, not by RBAC. */
export const us = [
  `--as=system:serviceaccount:${systemNamespace}:${systemAccount}`,
  "--as-group=system:masters",
];

/** `kubectl` with an object as input. */
export const kubectlWith = (cluster: Cluster, args: readonly string[], input: object): Promise<string> =>
  cluster.kubectl(args, { input: JSON.stringify(input) });

/** Merges into the status of one object, as our service account or as somebody else. */
export const patchStatus = (
  cluster: Cluster,
  target: readonly string[],
  status: object | null,
  user: readonly string[] = us,
): Promise<string> => {
  const body = JSON.stringify({ status });
  return cluster.kubectl(["patch", ...target, "--subresource=status", "--type=merge", "-p", body, ...user]);
};

/** What kubectl says when it is refused; fails where it is not. */
export const refusal = async (run: Promise<string>): Promise<string> => {
  const outcome = await run.then(
    (out) => `not refused: ${out}`,
    (error: unknown) => {
      if (error instanceof ExecError) return error.stderr.trim();
      throw error;
    },
  );
  expect(outcome).not.toMatch(/^not refused/);
  return outcome;
};

/** A FencedResource with this spec. */
export const resource = (namespace: string, name: string, spec: object = {}) => ({
  apiVersion: "fenceline.dev/v1alpha1",
  kind: "FencedResource",
  metadata: { namespace, name },
  spec,
});
