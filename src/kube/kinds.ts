import { type FencedResource, parseFencedResource } from "../api/fencedresource.ts";
import { type FencedSequence, parseFencedSequence } from "../api/fencedsequence.ts";
import {
  type ConfigMapObject,
  configMapSchema,
  type NamespaceObject,
  namespaceSchema,
  type PodObject,
  podSchema,
  type SecretObject,
  secretSchema,
  type WebhookConfiguration,
  webhookConfigurationSchema,
} from "../api/k8s.ts";
import { type LeaseObject, leaseSchema } from "../api/lease.ts";
import { group, version } from "../api/names.ts";
import type { Kind } from "./types.ts";

export const leaseKind: Kind<LeaseObject> = {
  group: "coordination.k8s.io",
  version: "v1",
  kind: "Lease",
  plural: "leases",
  namespaced: true,
  parse: (value) => leaseSchema.parse(value),
};

/** Read only: almost all of a pod is left out. */
export const podKind: Kind<PodObject> = {
  group: "",
  version: "v1",
  kind: "Pod",
  plural: "pods",
  namespaced: true,
  parse: (value) => podSchema.parse(value),
};

/** Read only. */
export const namespaceKind: Kind<NamespaceObject> = {
  group: "",
  version: "v1",
  kind: "Namespace",
  plural: "namespaces",
  namespaced: false,
  parse: (value) => namespaceSchema.parse(value),
};

export const secretKind: Kind<SecretObject> = {
  group: "",
  version: "v1",
  kind: "Secret",
  plural: "secrets",
  namespaced: true,
  parse: (value) => secretSchema.parse(value),
};

/** Changed by patch alone: not all of it is read. */
export const configMapKind: Kind<ConfigMapObject> = {
  group: "",
  version: "v1",
  kind: "ConfigMap",
  plural: "configmaps",
  namespaced: true,
  parse: (value) => configMapSchema.parse(value),
};

export const webhookConfigurationKind: Kind<WebhookConfiguration> = {
  group: "admissionregistration.k8s.io",
  version: "v1",
  kind: "MutatingWebhookConfiguration",
  plural: "mutatingwebhookconfigurations",
  namespaced: false,
  parse: (value) => webhookConfigurationSchema.parse(value),
};

export const fencedResourceKind: Kind<FencedResource> = {
  group,
  version,
  kind: "FencedResource",
  plural: "fencedresources",
  namespaced: true,
  parse: (value) => parseFencedResource(value),
};

export const fencedSequenceKind: Kind<FencedSequence> = {
  group,
  version,
  kind: "FencedSequence",
  plural: "fencedsequences",
  namespaced: false,
  parse: (value) => parseFencedSequence(value),
};
