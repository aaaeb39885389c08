/**
 * What the rest of the house sees of Kubernetes: kinds, reads, writes with typed results.
 *
 * The seam below it is {@link Transport}: requests and lines of text. Everything above is the shipped code, also in
 * the simulation, which brings a transport of its own.
 */

/** Metadata that every object carries. Everything else is the kind's own. */
export interface ObjectMeta {
  name: string;
  namespace?: string | undefined;
  uid: string;
  resourceVersion: string;
  generation?: number | undefined;
  creationTimestamp?: string | undefined;
  deletionTimestamp?: string | undefined;
  labels?: Record<string, string> | undefined;
  annotations?: Record<string, string> | undefined;
  /** Kept as they came, because a PUT that leaves them out removes them. */
  finalizers?: string[] | undefined;
  ownerReferences?: unknown[] | undefined;
}

export interface KubeObject {
  metadata: ObjectMeta;
}

/**
 * One kind of object: where it lives, and how an answer is read. What `parse` leaves out is not kept anywhere, and a
 * PUT without it removes it: kinds that are written back keep all that others may have put there.
 */
export interface Kind<T extends KubeObject> {
  /** "" for the core group. */
  group: string;
  version: string;
  kind: string;
  plural: string;
  namespaced: boolean;
  /** Reads one object that the server sent; throws a ZodError on one that is not of this shape. */
  parse(value: unknown): T;
}

/** A named object; `namespace` is left out for cluster-scoped kinds. */
export interface Ref {
  namespace?: string | undefined;
  name: string;
}

/** A read either finds the object or knows that it is not there. Whatever is neither is thrown as a KubeError. */
export type ReadResult<T> = { outcome: "found"; object: T } | { outcome: "absent" };

/**
 * What became of a write.
 *
 * - `ok`: applied; the object as stored.
 * - `conflict`: not applied, the object is not what was read (409, whatever its text says).
 * - `exists`: a create found one of that name (409 AlreadyExists).
 * - `gone`: not applied, there is no such object (404, 410).
 * - `refused`: not applied, and never will be as it stands (400, 401, 403, 413, 422 …).
 * - `unavailable`: surely not applied, and may be tried again as it stands: no connection, or 429. The client itself
 *   never sends a write twice. `retryAfterMs` is what the server asked for.
 * - `unknown`: may or may not have been applied (time-out, reset, 5xx, an answer that cannot be read). Read again
 *   before acting.
 */
export type WriteResult<T> =
  | { outcome: "ok"; object: T }
  | { outcome: "conflict"; message: string }
  | { outcome: "exists"; message: string }
  | { outcome: "gone"; message: string }
  | { outcome: "refused"; status: number; message: string }
  | { outcome: "unavailable"; message: string; retryAfterMs?: number | undefined }
  | { outcome: "unknown"; message: string };

/** A body to write. Metadata of an update carries uid and resourceVersion of what was read. */
export type Draft<T extends KubeObject> = Omit<T, "metadata"> & {
  metadata: Pick<T["metadata"], "name"> & Partial<T["metadata"]>;
};

export interface ListPage<T> {
  items: T[];
  resourceVersion: string;
  /** Set while there is more. */
  continue?: string | undefined;
}

export interface ListOptions {
  namespace?: string | undefined;
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
  limit?: number | undefined;
  continue?: string | undefined;
  resourceVersion?: string | undefined;
  resourceVersionMatch?: "Exact" | "NotOlderThan" | undefined;
}

export interface KubeClient {
  /** Reads from etcd's quorum (no resourceVersion is sent): as fresh as it gets. */
  get<T extends KubeObject>(kind: Kind<T>, ref: Ref, signal?: AbortSignal): Promise<ReadResult<T>>;
  list<T extends KubeObject>(kind: Kind<T>, options: ListOptions, signal?: AbortSignal): Promise<ListPage<T>>;
  create<T extends KubeObject>(kind: Kind<T>, draft: Draft<T>, signal?: AbortSignal): Promise<WriteResult<T>>;
  /** PUT. Refuses, before anything is sent, a draft without metadata.uid or metadata.resourceVersion. */
  update<T extends KubeObject>(kind: Kind<T>, draft: Draft<T>, signal?: AbortSignal): Promise<WriteResult<T>>;
  /** PUT of the status subresource, under the same rule. */
  updateStatus<T extends KubeObject>(
    kind: Kind<T>,
    draft: Draft<T>,
    signal?: AbortSignal,
  ): Promise<WriteResult<T>>;
  /** JSON merge patch of the main resource. */
  patch<T extends KubeObject>(
    kind: Kind<T>,
    ref: Ref,
    patch: unknown,
    signal?: AbortSignal,
  ): Promise<WriteResult<T>>;
  /** JSON merge patch of the status subresource. */
  patchStatus<T extends KubeObject>(
    kind: Kind<T>,
    ref: Ref,
    patch: unknown,
    signal?: AbortSignal,
  ): Promise<WriteResult<T>>;
  remove<T extends KubeObject>(
    kind: Kind<T>,
    ref: Ref,
    preconditions: { uid?: string; resourceVersion?: string },
    signal?: AbortSignal,
  ): Promise<WriteResult<undefined>>;
  /** A virtual resource: TokenReview, SubjectAccessReview, TokenRequest. `path` is absolute. */
  post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown>;
}

export interface HttpRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Absolute path with query, already encoded. */
  path: string;
  body?: string | undefined;
  contentType?: string | undefined;
  /** For counting only. */
  verb: string;
  resource: string;
}

export interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** A watch: whole lines as they come. They end, or throw a TransportError, with the connection. */
export interface WatchAnswer {
  status: number;
  headers: Record<string, string>;
  /** The whole body where the status is not 200; there are no lines then. */
  body?: string | undefined;
  lines: AsyncIterable<string>;
}

/**
 * One way to the API server. `request` and `open` reject with a TransportError when there is no whole answer: its
 * `sent` is false only if the request surely never left.
 */
export interface Transport {
  /** For messages: where the server and the user are named, as "file F, context C". */
  readonly source?: string | undefined;
  request(request: HttpRequest, signal?: AbortSignal): Promise<HttpAnswer>;
  /** Opens a watch on a connection of its own, which `signal` ends. */
  open(request: HttpRequest, signal: AbortSignal): Promise<WatchAnswer>;
}
