/** Configuration of `fenceline controller`: one YAML file, strict, so that a misspelt name is refused and not ignored. */
import { z } from "zod";
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
      z.strictObject({ secret: z.string().min(1).max(253) }),
    ])
    .describe(
      "Of the API: two PEM files, or a Secret of type kubernetes.io/tls in `namespace`. Reloaded when it changes.",
    ),
  logLevel: z.enum(["debug", "info", "warn", "error"]).default("info"),
  metricsPerResource: z.boolean().default(false).describe("Also one series of tokens per resource."),
});

export type ControllerConfig = z.infer<typeof controllerConfig>;
