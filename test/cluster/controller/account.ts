/** The API server as Fenceline's own service account sees it: with its rights and no others, behind a counting proxy. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemAccount, systemNamespace } from "../../../src/api/names.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import type { KubeClient, Transport } from "../../../src/kube/types.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import type { Cluster } from "../../support/cluster/cluster.ts";
import { type HttpProxy, startHttpProxy } from "../../support/faultproxy/http.ts";

export interface Account extends AsyncDisposable {
  client: KubeClient;
  transport: Transport;
  proxy: HttpProxy;
}

export const asController = async (cluster: Cluster): Promise<Account> => {
  const config = JSON.parse(
    await cluster.kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]),
  );
  const ca = Buffer.from(config.clusters[0].cluster["certificate-authority-data"], "base64").toString();
  const token = await cluster.token({ namespace: systemNamespace, sa: systemAccount });
  const proxy = await startHttpProxy({ target: cluster.server, tls: { ca } });
  const folder = await mkdtemp(join(tmpdir(), "fenceline-account-"));
  const path = join(folder, "kubeconfig");
  await writeFile(path, proxy.kubeconfig({ token }), { mode: 0o600 });
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path }, systemClock),
    clock: systemClock,
  });
  return {
    client: makeKubeClient(transport),
    transport,
    proxy,
    async [Symbol.asyncDispose]() {
      await transport.close();
      await proxy.close();
      await rm(folder, { recursive: true });
    },
  };
};
