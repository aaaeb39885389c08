/** How the API server is told to ask us about pods. */
import type { JsonSchema } from "./crd.ts";
import { injectLabel, injectPath, webhookName } from "./injection.ts";

/**
 * Only pods with our label are ever sent, and none of kube-system or of our own namespace: nothing that the webhook
 * itself needs can wait for it. `service` is asked on port 8443; its authorities are written into `caBundle` later.
 */
export const injectionWebhook = (options: { systemNamespace: string; service: string }): JsonSchema => ({
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: "MutatingWebhookConfiguration",
  metadata: { name: webhookName, labels: { "app.kubernetes.io/name": "fenceline" } },
  webhooks: [
    {
      name: webhookName,
      admissionReviewVersions: ["v1"],
      sideEffects: "NoneOnDryRun",
      failurePolicy: "Fail",
      // Another webhook may put something before the agent, or add a container that must be told.
      reinvocationPolicy: "IfNeeded",
      matchPolicy: "Equivalent",
      timeoutSeconds: 5,
      clientConfig: {
        service: { namespace: options.systemNamespace, name: options.service, port: 8443, path: injectPath },
      },
      rules: [
        {
          apiGroups: [""],
          apiVersions: ["v1"],
          operations: ["CREATE"],
          resources: ["pods"],
          scope: "Namespaced",
        },
      ],
      objectSelector: { matchLabels: { [injectLabel]: "true" } },
      namespaceSelector: {
        matchExpressions: [
          {
            key: "kubernetes.io/metadata.name",
            operator: "NotIn",
            values: ["kube-system", options.systemNamespace],
          },
        ],
      },
    },
  ],
});
