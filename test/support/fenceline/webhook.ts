/** The webhook in this process, and a cluster that asks it about the pods of some namespaces. */
import { randomBytes } from "node:crypto";
import { injectPath } from "../../../src/api/injection.ts";
import { systemNamespace, systemService } from "../../../src/api/names.ts";
import { injectionWebhook } from "../../../src/api/webhook.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { listen, makeApiServer } from "../../../src/runtime/httpserver.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import type { InjectionSettings } from "../../../src/webhook/inject.ts";
import { addInjection, type RouteDeps } from "../../../src/webhook/route.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { makeCertificate } from "../faultproxy/certificate.ts";

export type Refusal = Parameters<RouteDeps["onRefused"]>[0];

export interface Webhook extends AsyncDisposable {
  url: string;
  caBundle: string;
  refused: Refusal[];
}

/** Serves on a free port of 127.0.0.1. */
export const startWebhook = async (settings: InjectionSettings): Promise<Webhook> => {
  const { cert, key } = makeCertificate({ commonName: "webhook", names: ["127.0.0.1"] });
  const app = await makeApiServer({
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
    certificate: {
      name: "webhook",
      pollMs: 3_600_000,
      read: async () => ({ cert: Buffer.from(cert), key: Buffer.from(key) }),
    },
  });
  const refused: Refusal[] = [];
  addInjection(app, {
    settings,
    clock: systemClock,
    duration: { observe() {} },
    onRefused: (each) => refused.push(each),
  });
  const port = await listen(app, "127.0.0.1", 0);
  return {
    url: `https://127.0.0.1:${port}${injectPath}`,
    caBundle: Buffer.from(cert).toString("base64"),
    refused,
    [Symbol.asyncDispose]: () => app.close(),
  };
};

interface Configuration {
  webhooks: {
    namespaceSelector: { matchExpressions: object[] };
  }[];
}

/** The configuration under another name, for these namespaces alone, and asked at a URL instead of a Service. */
export const scoped = (
  made: object,
  name: string,
  namespaces: readonly string[],
  clientConfig: { url: string; caBundle?: string },
  more: object = {},
): object => {
  const { webhooks } = made as Configuration;
  return {
    ...made,
    metadata: { name },
    webhooks: webhooks.map((webhook) => ({
      ...webhook,
      ...more,
      clientConfig,
      namespaceSelector: {
        matchExpressions: [
          ...webhook.namespaceSelector.matchExpressions,
          { key: "kubernetes.io/metadata.name", operator: "In", values: namespaces },
        ],
      },
    })),
  };
};

/** Has the pods of these namespaces alone sent to `webhook` (others share the cluster). Returns what it is called. */
export const registerWebhook = async (
  cluster: Cluster,
  namespaces: readonly string[],
  { url, caBundle }: Webhook,
  { prefix = "inject", ...more }: { prefix?: string; reinvocationPolicy?: "Never" } = {},
): Promise<string> => {
  const name = `${prefix}-${randomBytes(4).toString("hex")}.fenceline.dev`;
  const made = injectionWebhook({ systemNamespace, service: systemService });
  await cluster.apply(scoped(made, name, namespaces, { url, caBundle }, more));
  return name;
};
