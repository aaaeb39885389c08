/** Values of the Helm chart. `charts/fenceline/values.yaml` holds the same defaults, for people to read. */
import { z } from "zod";
import { imageRepository } from "./injection.ts";

const quantity = z.union([z.string().min(1), z.int().positive()]);
const amounts = z.strictObject({ cpu: quantity.optional(), memory: quantity.optional() });
const texts = z.record(z.string(), z.string());
/** What Kubernetes itself knows best. */
const objects = z.array(z.looseObject({}));
const level = z.enum(["debug", "info", "warn", "error"]);
const name = z.string().regex(/^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$/);

export const chartValues = z.strictObject({
  image: z
    .strictObject({
      repository: z.string().min(1).default(imageRepository).describe("Also the agents', and the policy's."),
      tag: z.string().default("").describe("Default: the chart's appVersion."),
      pullPolicy: z.enum(["Always", "IfNotPresent", "Never"]).default("IfNotPresent"),
    })
    .describe("The one image."),
  imagePullSecrets: z
    .array(z.strictObject({ name: z.string().min(1) }))
    .describe("Of our own pods; an injected pod needs its own."),
  replicas: z.int().min(1).max(9).describe("All coordinate, one of them is the leader."),
  logLevel: level,
  metricsPerResource: z.boolean().describe("Also one series of tokens per resource."),
  resources: z.strictObject({ requests: amounts.optional(), limits: amounts.optional() }),
  agent: z
    .strictObject({
      cpu: z.string().min(1).describe("What an agent requests."),
      memory: z.string().min(1).describe("What an agent requests, and its limit."),
      logLevel: level,
    })
    .describe("The sidecar; a pod's annotations may ask for other amounts."),
  secretNamespaces: z
    .array(name.min(1))
    .describe("Namespaces whose Secrets may be read: those with resources guarded in PostgreSQL."),
  database: z
    .strictObject({
      existingSecret: name.describe(
        "Secret of our namespace with the URL of the central database; empty: none.",
      ),
      key: z.string().min(1),
    })
    .describe("For resources with `tokens.store: PostgreSQL`."),
  certManager: z
    .strictObject({
      enabled: z.boolean().describe("cert-manager keeps the certificate; else the controller does."),
      issuerRef: z.strictObject({ name: z.string(), kind: z.string(), group: z.string() }),
    })
    .describe("Rendered only: not tried against a real cert-manager."),
  serviceMonitor: z.strictObject({ enabled: z.boolean(), labels: texts }),
  networkPolicy: z.strictObject({
    enabled: z.boolean(),
    egress: objects.describe("More that our pods may reach, as egress rules: the databases."),
  }),
  podDisruptionBudget: z.strictObject({ enabled: z.boolean() }),
  tolerations: objects,
  affinity: z.looseObject({}).describe("Empty: replicas prefer different nodes."),
  nodeSelector: texts,
  priorityClassName: z.string(),
  extraLabels: texts.describe("On every object of the chart that is not a policy or a definition."),
  podAnnotations: texts,
});
