/** A ValidatingAdmissionPolicy in short, and how it becomes a manifest. */
import type { JsonSchema } from "./crd.ts";
import { group } from "./names.ts";

interface Named {
  name: string;
  expression: string;
}

export interface Validation {
  expression: string;
  message?: string;
  messageExpression?: string;
  reason?: "Forbidden" | "Invalid";
}

export interface Policy {
  name: string;
  /** For the reader of the manifest. */
  comment: string;
  rules: { group: string; version: string; resources: string[]; operations: string[] }[];
  objectSelector?: JsonSchema;
  matchConditions?: Named[];
  variables?: Named[];
  validations: Validation[];
  /** What a refusal does. Left out: the write is refused. A warning lets it through, and so does a rule that fails. */
  action?: "Warn";
}

/** Text as a CEL literal. */
export const cel = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

/** CEL: one annotation as text, "" where it is missing. */
export const note = (object: "object" | "oldObject", key: string): string =>
  `${object}.metadata.?annotations[?${cel(key)}].orValue('')`;

/** CEL: the same field of both objects, or missing in both. */
export const same = (path: string): string => `object.${path} == oldObject.${path}`;

export const both = (...parts: string[]): string => parts.join(" && ");

/** The policy and its binding, as objects of the API. */
export const manifest = (policy: Policy): JsonSchema[] => {
  const metadata = {
    name: `${policy.name}.${group}`,
    labels: { "app.kubernetes.io/name": "fenceline" },
  };
  const head = { apiVersion: "admissionregistration.k8s.io/v1" };
  return [
    {
      ...head,
      kind: "ValidatingAdmissionPolicy",
      metadata: { ...metadata, annotations: { "kubernetes.io/description": policy.comment } },
      spec: {
        failurePolicy: policy.action === "Warn" ? "Ignore" : "Fail",
        matchConstraints: {
          ...(policy.objectSelector === undefined ? {} : { objectSelector: policy.objectSelector }),
          resourceRules: policy.rules.map((rule) => ({
            apiGroups: [rule.group],
            apiVersions: [rule.version],
            operations: rule.operations,
            resources: rule.resources,
          })),
        },
        ...(policy.matchConditions === undefined ? {} : { matchConditions: policy.matchConditions }),
        ...(policy.variables === undefined ? {} : { variables: policy.variables }),
        validations: policy.validations,
      },
    },
    {
      ...head,
      kind: "ValidatingAdmissionPolicyBinding",
      metadata,
      spec: { policyName: metadata.name, validationActions: [policy.action ?? "Deny"] },
    },
  ];
};
