/** The administrator's way to the API server, with a fault proxy in between that counts. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeKubeClient } from "../../../src/kube/client.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import type { KubeClient } from "../../../src/kube/types.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { type HttpProxy, startHttpProxy } from "../../support/faultproxy/http.ts";

export interface Connection extends AsyncDisposable {
  client: KubeClient;
  proxy: HttpProxy;
  /** Path of a kubeconfig that leads through the proxy. */
  kubeconfig: string;
}

const pem = (base64: string) => Buffer.from(base64, "base64").toString();

export const connect = async (cluster: { server: string; kubeconfig: string }): Promise<Connection> => {
  const { clusters, users } = JSON.parse(await readFile(cluster.kubeconfig, "utf8"));
  const proxy = await startHttpProxy({
    target: cluster.server,
    tls: {
      ca: pem(clusters[0].cluster["certificate-authority-data"]),
      cert: pem(users[0].user["client-certificate-data"]),
      key: pem(users[0].user["client-key-data"]),
    },
  });
  const folder = await mkdtemp(join(tmpdir(), "fenceline-machinery-"));
  const kubeconfig = join(folder, "kubeconfig");
  await writeFile(kubeconfig, proxy.kubeconfig({}), { mode: 0o600 });
  const access = loadKubeConfig({ from: "file", path: kubeconfig }, systemClock);
  const transport = makeTransport({ access, clock: systemClock });
  return {
    client: makeKubeClient(transport),
    proxy,
    kubeconfig,
    async [Symbol.asyncDispose]() {
      await transport.close();
      await proxy.close();
      await rm(folder, { recursive: true });
    },
  };
};
