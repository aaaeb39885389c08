/** Configuration of `fenceline controller`: one YAML file, strict, so that a misspelt name is refused and not ignored. */
import { z } from "zod";
import { cpuMessage, memoryMessage, readCpu, readMemory } from "./injection.ts";
import { systemNamespace } from "./names.ts";
import { namespaceText } from "./text.ts";

const address = (port: number) =>
  z
    .strictObject({
      host: z.string().min(1).default("0.0.0.0").describe("Address to bind."),
      port: z
        .int()
        .min(0)
        .max(65_535)
        .default(port)
        .describe(`TCP port; default ${port}, 0 picks a free one.`),
    })
    .default({ host: "0.0.0.0", port });

const path = z.string().min(1);

/** A quantity as people write it, read into a number. */
const quantity = (read: (text: string) => number | undefined, error: string) =>
  z.string({ error }).transform((text, context) => {
    const value = read(text);
    if (value !== undefined) return value;
    context.issues.push({ code: "custom", message: error, input: text });
    return z.NEVER;
  });

const managed = z
  .strictObject({
    names: z
      .array(z.string().min(1).max(253))
      .min(1)
      .describe("DNS names and addresses under which the API is asked: those of the Service."),
    servingSeconds: z
      .int()
      .min(5)
      .default(90 * 86_400)
      .describe("Life of a serving certificate; signed anew at two thirds."),
    authoritySeconds: z
      .int()
      .min(10)
      .default(365 * 86_400)
      .describe("Life of an authority; its successor is announced at two thirds."),
  })
  .describe("Left out: somebody else, as cert-manager, keeps the Secret and the webhook's caBundle.");

const serverMessage = "give https://host:port of the coordinator's Service";

const injection = z.strictObject({
  image: z.string().min(1).max(512).describe("Of the agent: this same image."),
  imagePullPolicy: z.enum(["Always", "IfNotPresent", "Never"]).default("IfNotPresent"),
  server: z
    .string()
    .regex(/^https:\/\/[^/@?#\s]+$/, { error: serverMessage })
    .describe("Where agents find the coordinator: `https://host:port`."),
  cpu: quantity(readCpu, cpuMessage).prefault("20m").describe("What an agent requests."),
  memory: quantity(readMemory, memoryMessage)
    .prefault("96Mi")
    .describe("What an agent requests, and its limit."),
  logLevel: z.enum(["debug", "info", "warn", "error"]).default("info").describe("Of the agents."),
});

export const controllerConfig = z.strictObject({
  namespace: namespaceText
    .default(systemNamespace)
    .describe("Where the leader-election Lease and our Secrets live."),
  replica: z
    .string()
    .min(1)
    .max(253)
    .optional()
    .describe("Name of this replica; default POD_NAME, else the host's name."),
  kubeconfig: z
    .strictObject({ file: path, context: z.string().min(1).optional() })
    .optional()
    .describe("Left out: the service account of the pod."),
  listen: address(8443).describe("The API, over TLS."),
  ops: address(9464).describe("Metrics and health, without TLS."),
  certificate: z
    .union([
      z.strictObject({ certFile: path, keyFile: path }),
      z.strictObject({ secret: z.string().min(1).max(253), managed: managed.optional() }),
    ])
    .describe(
      "Of the API: two PEM files, or a Secret of type kubernetes.io/tls in `namespace`. Reloaded when it changes. The `ca.crt` of a Secret is told to the namespaces that have FencedResources.",
    ),
  database: z
    .union([
      z.strictObject({ urlFile: path, caFile: path.optional() }),
      z.strictObject({
        secret: z.strictObject({ name: z.string().min(1).max(253), key: z.string().min(1).default("url") }),
      }),
    ])
    .optional()
    .describe(
      "The installation's own database, for resources with `tokens.store: PostgreSQL`: files with its URL and the certificates to trust, or a Secret in `namespace` with the URL under `key` and maybe `ca.crt`. Read again every minute.",
    ),
  injection: injection
    .optional()
    .describe("Left out: pods are not injected, and the webhook's path is not there."),
  logLevel: z.enum(["debug", "info", "warn", "error"]).default("info"),
  metricsPerResource: z.boolean().default(false).describe("Also one series of tokens per resource."),
});

export type ControllerConfig = z.infer<typeof controllerConfig>;
