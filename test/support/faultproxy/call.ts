import type { IncomingHttpHeaders } from "node:http";

/** As the audit log of Kubernetes names them; other paths have their HTTP method in lower case. */
export type Verb =
  | "get"
  | "list"
  | "watch"
  | "create"
  | "update"
  | "patch"
  | "delete"
  | "deletecollection"
  | "post"
  | "put"
  | "head"
  | "options";

/** What a path of the Kubernetes API is about. */
export interface Target {
  verb: Verb;
  /** `leases`, with its subresource `fencedresources/status`; for a path outside the API the path itself. */
  resource: string;
  /** "" for the core group, undefined outside the API. */
  group?: string;
  namespace?: string;
  name?: string;
}

/** A request that reached the proxy. */
export interface Call extends Target {
  method: string;
  /** With its query, as sent. */
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** Aborted when the client left before the whole answer was sent. */
  gone: AbortSignal;
}

const plainVerbs: Record<string, Verb> = {
  POST: "post",
  PUT: "put",
  HEAD: "head",
  OPTIONS: "options",
  PATCH: "patch",
  DELETE: "delete",
};
const objectVerbs: Record<string, Verb> = { POST: "create", PUT: "update", PATCH: "patch" };

const verbOf = (method: string, named: boolean, query: URLSearchParams): Verb => {
  if (method === "DELETE") return named ? "delete" : "deletecollection";
  const verb = objectVerbs[method];
  if (verb !== undefined) return verb;
  if (["1", "true"].includes(query.get("watch") ?? "")) return "watch";
  return named ? "get" : "list";
};

/** Reads method and path as the API server does (k8s.io/apiserver, RequestInfo). */
export const targetOf = (method: string, path: string): Target => {
  const { pathname, searchParams } = new URL(path, "http://proxy");
  const segments = pathname
    .split("/")
    .filter((segment) => segment !== "")
    .map(decodeURIComponent);
  const [root, ...rest] = segments;
  const group = root === "api" ? "" : rest.shift();
  const [version, ...parts] = rest;
  if ((root !== "api" && root !== "apis") || group === undefined || version === undefined || !parts[0])
    return { verb: plainVerbs[method] ?? "get", resource: pathname };
  const inNamespace =
    parts[0] === "namespaces" && parts.length > 2 && !["status", "finalize"].includes(parts[2] ?? "");
  const [resource = "", name, ...sub] = inNamespace ? parts.slice(2) : parts;
  return {
    verb: verbOf(method, name !== undefined, searchParams),
    resource: [resource, ...sub].join("/"),
    group,
    ...(inNamespace && parts[1] !== undefined && { namespace: parts[1] }),
    ...(name !== undefined && { name }),
  };
};

/** Which requests are meant; a field left out means any. */
export interface Match {
  method?: string;
  /** The whole path with query, or a pattern in it. */
  path?: string | RegExp;
  verb?: Verb | readonly Verb[];
  resource?: string | readonly string[];
  namespace?: string;
  name?: string;
  when?: (call: Call) => boolean;
}

const among = <T>(wanted: T | readonly T[] | undefined, value: T): boolean =>
  wanted === undefined || (Array.isArray(wanted) ? wanted.includes(value) : wanted === value);

export const matches = (match: Match, call: Call): boolean =>
  among(match.method, call.method) &&
  among(match.verb, call.verb) &&
  among(match.resource, call.resource) &&
  among(match.namespace, call.namespace) &&
  among(match.name, call.name) &&
  (match.path instanceof RegExp ? match.path.test(call.path) : among(match.path, call.path)) &&
  (match.when?.(call) ?? true);
