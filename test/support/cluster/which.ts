import { existsSync } from "node:fs";
import path from "node:path";
import { startApi } from "./api.ts";
import { buildKube } from "./build.ts";
import { Cluster, type ClusterAccess, newRun } from "./cluster.ts";
import { ClusterError } from "./config.ts";
import { ExecError, exec } from "./exec.ts";
import { makeLabFolder, removeLab } from "./folder.ts";
import type { LabState } from "./lab.ts";

/** Which cluster the tests use. Nothing else in the environment or in HOME can name one. */
export type Choice =
  | { kind: "named"; kubeconfig: string; context: string }
  | { kind: "assets"; assets: string }
  | { kind: "kind" }
  | { kind: "build" };

/** A cluster a person names must carry this label on its namespace kube-system. */
const testLabel = { key: "fenceline.dev/test-cluster", value: "yes" } as const;

export const chooseCluster = (env: NodeJS.ProcessEnv): Choice => {
  const kubeconfig = env["FENCELINE_TEST_KUBECONFIG"];
  const context = env["FENCELINE_TEST_CONTEXT"];
  if (kubeconfig && context) return { kind: "named", kubeconfig, context };
  if (kubeconfig || context) {
    const [set, missing] = kubeconfig
      ? ["FENCELINE_TEST_KUBECONFIG", "FENCELINE_TEST_CONTEXT"]
      : ["FENCELINE_TEST_CONTEXT", "FENCELINE_TEST_KUBECONFIG"];
    throw new ClusterError(
      `${set} is set but ${missing} is not: a test cluster is named by both or not at all`,
    );
  }
  const assets = env["KUBEBUILDER_ASSETS"];
  if (assets) return { kind: "assets", assets };
  return env["FENCELINE_TEST_KIND"] === "1" ? { kind: "kind" } : { kind: "build" };
};

/** A cluster that is up, as plain data, and how to end it. */
export interface Opened {
  access: ClusterAccess;
  /** Only for a cluster of our own. */
  lab?: LabState;
  close: () => Promise<void>;
}

/** Opens the chosen cluster at level `api`. */
export const openCluster = async (choice: Choice): Promise<Opened> => {
  if (choice.kind === "named") return openNamed(choice.kubeconfig, choice.context);
  if (choice.kind === "kind") return openKind();
  const lab = await startApi(choice.kind === "assets" ? { assets: choice.assets } : {});
  return { access: lab.access, lab: lab.state, close: () => lab[Symbol.asyncDispose]() };
};

const openNamed = async (kubeconfig: string, context: string): Promise<Opened> => {
  if (!existsSync(kubeconfig))
    throw new ClusterError(`FENCELINE_TEST_KUBECONFIG: there is no file ${kubeconfig}`);
  const folder = await makeLabFolder();
  const access = await reach({ kubeconfig, context, folder, kubectl: await findKubectl() }).catch(
    async (error) => {
      await removeLab(folder);
      throw error;
    },
  );
  const cluster = new Cluster(access);
  const close = async () => {
    await cluster.forget();
    await removeLab(folder);
  };
  await demandLabel(cluster).catch(async (error) => {
    await removeLab(folder);
    throw error;
  });
  return { access, close };
};

const demandLabel = async (cluster: Cluster) => {
  const { key, value } = testLabel;
  const found = await cluster
    .kubectl([
      "get",
      "namespace",
      "kube-system",
      `--output=jsonpath={.metadata.labels.${key.replaceAll(".", String.raw`\.`)}}`,
      "--request-timeout=10s",
    ])
    .catch((error) => {
      throw new ClusterError(`the cluster of context ${cluster.context} cannot be read: ${error.message}`);
    });
  if (found !== value)
    throw new ClusterError(
      `the cluster of context ${cluster.context} is not marked as a test cluster: ` +
        `if its loss would not matter, run kubectl label namespace kube-system ${key}=${value}`,
    );
};

const openKind = async (): Promise<Opened> => {
  await exec("docker", ["info"], { signal: AbortSignal.timeout(10_000) }).catch((error: Error) => {
    throw new ClusterError(`FENCELINE_TEST_KIND=1 needs Docker, which does not answer: ${error.message}`);
  });
  const folder = await makeLabFolder();
  const name = path.basename(folder);
  const kubeconfig = path.join(folder, "kind.kubeconfig");
  const end = async () => {
    await exec("kind", ["delete", "cluster", `--name=${name}`, `--kubeconfig=${kubeconfig}`]);
    await removeLab(folder);
  };
  await exec("kind", [
    "create",
    "cluster",
    `--name=${name}`,
    `--kubeconfig=${kubeconfig}`,
    "--wait=180s",
  ]).catch(async (error: Error) => {
    await removeLab(folder);
    throw new ClusterError(`kind could not make a cluster: ${error.message}`);
  });
  const access = await reach({ kubeconfig, context: `kind-${name}`, folder, kubectl: await findKubectl() });
  return { access, close: end };
};

/** kubectl of the assets or of the machine, else the built one. It is always told file and context. */
const findKubectl = async (): Promise<string> => {
  const assets = process.env["KUBEBUILDER_ASSETS"];
  if (assets) return path.join(assets, "kubectl");
  const own = await exec("kubectl", ["version", "--client"]).catch(() => undefined);
  return own === undefined ? path.join(await buildKube(), "kubectl") : "kubectl";
};

const reach = async (given: {
  kubeconfig: string;
  context: string;
  folder: string;
  kubectl: string;
}): Promise<ClusterAccess> => {
  const { kubeconfig, context, folder, kubectl } = given;
  const server = await exec(kubectl, [
    "config",
    "view",
    `--kubeconfig=${kubeconfig}`,
    `--context=${context}`,
    "--minify",
    "--output=jsonpath={.clusters[0].cluster.server}",
  ]).catch((error) => {
    if (!(error instanceof ExecError)) throw error;
    throw new ClusterError(`${kubeconfig}: ${error.message}`);
  });
  return { kubeconfig, context, server, kubectl, cache: folder, run: newRun(), controllers: true };
};
