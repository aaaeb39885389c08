/** Fenceline as its users have it: the image on every node, the chart installed by Helm. */
import path from "node:path";
import { systemNamespace } from "../../../src/api/names.ts";
import { buildHelm } from "../cluster/build.ts";
import { childEnvironment } from "../cluster/config.ts";
import { ExecError, exec } from "../cluster/exec.ts";
import type { NodesLab } from "../cluster/nodes.ts";
import { buildImage } from "../image/image.ts";

const chart = path.join(import.meta.dirname, "../../../charts/fenceline");
export const release = "fenceline";

/** Helm on this cluster and no other, with nothing of it kept elsewhere. */
export const helm = async (lab: NodesLab, args: readonly string[]): Promise<string> => {
  const home = path.join(lab.folder, "helm");
  return exec(
    await buildHelm(),
    [...args, "--kubeconfig", lab.kubeconfig, "--kube-context", lab.context, "--namespace", systemNamespace],
    {
      env: childEnvironment({
        HELM_CACHE_HOME: home,
        HELM_CONFIG_HOME: home,
        HELM_DATA_HOME: home,
        KUBECACHEDIR: home,
      }),
    },
  );
};

/** The image of this checkout under a tag, on every node. */
export const loadImage = async (lab: NodesLab, tag: string): Promise<void> => {
  const archive = await buildImage(tag);
  for (const node of lab.nodes) await node.load(archive);
};

/** Installs, or upgrades to, these values, and waits until all of it serves. */
export const upgrade = (lab: NodesLab, tag: string, values: object = {}): Promise<string> =>
  helm(lab, [
    "upgrade",
    release,
    chart,
    "--install",
    "--create-namespace",
    "--wait",
    "--timeout",
    "120s",
    ...Object.entries({ image: { tag }, ...values }).flatMap(([name, value]) => [
      "--set-json",
      `${name}=${JSON.stringify(value)}`,
    ]),
  ]);

/** Installs it unless it is there: test files of one run share it. */
export const installed = async (lab: NodesLab): Promise<void> => {
  const there = await helm(lab, ["status", release]).catch((error: unknown) => {
    if (error instanceof ExecError) return undefined;
    throw error;
  });
  if (there !== undefined) return;
  await loadImage(lab, "0.1.0");
  await upgrade(lab, "0.1.0");
};
