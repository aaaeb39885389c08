/** Requests as they are, and answers as they come: what the contract of an API server is asked with. */
import type { Transport } from "../../src/kube/types.ts";

export interface ApiHarness {
  /** May do everything. */
  admin: Transport;
  /** Writes status, as only Fenceline's own account may. */
  us: Transport;
  /** A fresh namespace. */
  namespace: () => Promise<string>;
}

export interface Answer {
  status: number;
  reason: string | undefined;
  body: Loose;
}

/** JSON as it comes; what a test looks at, it compares. */
export interface Loose {
  [field: string]: unknown;
  metadata?: {
    uid?: string;
    resourceVersion?: string;
    generation?: number;
    continue?: string;
    deletionTimestamp?: string;
    name?: string;
    annotations?: Record<string, string>;
  };
  spec?: Record<string, unknown>;
  status?: unknown;
  items?: Loose[];
}

export const leases = (namespace: string, name?: string) =>
  `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases${name === undefined ? "" : `/${name}`}`;
export const fenced = (namespace: string, name?: string, sub?: string) =>
  [`/apis/fenceline.dev/v1alpha1/namespaces/${namespace}/fencedresources`, name, sub]
    .filter((part) => part !== undefined)
    .join("/");

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export const send = async (
  transport: Transport,
  method: Method,
  path: string,
  body?: unknown,
): Promise<Answer> => {
  const answer = await transport.request({
    method,
    path,
    ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    ...(method === "PATCH" && { contentType: "application/merge-patch+json" }),
    verb: method.toLowerCase(),
    resource: "contract",
  });
  const parsed: Loose = JSON.parse(answer.body);
  const reason =
    parsed["kind"] === "Status" && typeof parsed["reason"] === "string" ? parsed["reason"] : undefined;
  return { status: answer.status, reason, body: parsed };
};

export const leaseBody = (
  namespace: string,
  name: string,
  spec: Record<string, unknown> = {},
  metadata: object = {},
) => ({
  apiVersion: "coordination.k8s.io/v1",
  kind: "Lease",
  metadata: { namespace, name, ...metadata },
  spec,
});

export const fencedBody = (namespace: string, name: string, more: object = {}, metadata: object = {}) => ({
  apiVersion: "fenceline.dev/v1alpha1",
  kind: "FencedResource",
  metadata: { namespace, name, ...metadata },
  spec: {},
  ...more,
});
