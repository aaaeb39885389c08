import { listSchema } from "../api/k8s.ts";
import { TransportError } from "./errors.ts";
import { badAnswer, errorOf, pathOf, queryOf, statusOf } from "./http.ts";
import { formatJson, parseJson } from "./json.ts";
import type {
  Draft,
  HttpAnswer,
  HttpRequest,
  Kind,
  KubeClient,
  KubeObject,
  ListOptions,
  ListPage,
  Ref,
  Transport,
  WriteResult,
} from "./types.ts";

/** An object as the server wants it. */
const bodyOf = <T extends KubeObject>(kind: Kind<T>, draft: Draft<T>): string =>
  formatJson({
    ...draft,
    apiVersion: kind.group === "" ? kind.version : `${kind.group}/${kind.version}`,
    kind: kind.kind,
  });

export const makeKubeClient = (transport: Transport): KubeClient => {
  /** Sends a read. The caller's own end of patience is the caller's reason, not an error of the server's. */
  const send = async (request: HttpRequest, signal?: AbortSignal): Promise<HttpAnswer> => {
    try {
      return await transport.request(request, signal);
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  };

  const parsed = <T>(request: HttpRequest, answer: HttpAnswer, parse: (value: unknown) => T): T => {
    if (answer.status < 200 || answer.status > 299) throw errorOf(request, answer, transport);
    try {
      return parse(parseJson(answer.body));
    } catch (error) {
      throw badAnswer(request, error);
    }
  };

  const write = async <T>(
    request: HttpRequest,
    parse: (value: unknown) => T,
    signal: AbortSignal | undefined,
  ): Promise<WriteResult<T>> => {
    let answer: HttpAnswer;
    try {
      answer = await transport.request(request, signal);
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      // What no later try can mend is said at once, in the line that names file and field.
      if (!error.sent && error.code === "bad_config") throw error;
      return { outcome: error.sent ? "unknown" : "unavailable", message: error.message };
    }
    if (answer.status >= 200 && answer.status <= 299) {
      try {
        return { outcome: "ok", object: parsed(request, answer, parse) };
      } catch (error) {
        // It was carried out, or a stranger answered: either way we do not know what is there now.
        return { outcome: "unknown", message: error instanceof Error ? error.message : String(error) };
      }
    }
    const { message, reason, retryAfterMs } = errorOf(request, answer, transport);
    const { status } = answer;
    // Without a Status it was somebody between us and the API server: that proves nothing about the object.
    const known = reason !== undefined;
    if (known && (status === 404 || status === 410)) return { outcome: "gone", message };
    if (known && status === 409)
      return { outcome: reason === "AlreadyExists" ? "exists" : "conflict", message };
    if (status === 429) return { outcome: "unavailable", message, retryAfterMs };
    return status >= 400 && status <= 499
      ? { outcome: "refused", status, message }
      : { outcome: "unknown", message };
  };

  const put = async <T extends KubeObject>(
    kind: Kind<T>,
    draft: Draft<T>,
    sub: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<WriteResult<T>> => {
    const { name, namespace, uid, resourceVersion } = draft.metadata;
    // Without them a PUT overwrites what it never read, and on a deleted Lease it makes a new one.
    if (!uid || !resourceVersion)
      return {
        outcome: "refused",
        status: 400,
        message: `update of ${kind.plural} ${name}: not sent: metadata.uid and metadata.resourceVersion of what was read are missing`,
      };
    return write(
      {
        method: "PUT",
        path: pathOf(kind, namespace, name, ...sub),
        body: bodyOf(kind, draft),
        verb: "update",
        resource: [kind.plural, ...sub].join("/"),
      },
      (value) => kind.parse(value),
      signal,
    );
  };

  const mergePatch = <T extends KubeObject>(
    kind: Kind<T>,
    ref: Ref,
    patch: unknown,
    sub: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<WriteResult<T>> =>
    write(
      {
        method: "PATCH",
        path: pathOf(kind, ref.namespace, ref.name, ...sub),
        body: formatJson(patch),
        contentType: "application/merge-patch+json",
        verb: "patch",
        resource: [kind.plural, ...sub].join("/"),
      },
      (value) => kind.parse(value),
      signal,
    );

  return {
    async get<T extends KubeObject>(kind: Kind<T>, ref: Ref, signal?: AbortSignal) {
      const request: HttpRequest = {
        method: "GET",
        path: pathOf(kind, ref.namespace, ref.name),
        verb: "get",
        resource: kind.plural,
      };
      const answer = await send(request, signal);
      // 404 without a Status comes from something that is no API server: that proves nothing about the object.
      if (answer.status === 404 && statusOf(answer.body)?.reason === "NotFound") return { outcome: "absent" };
      return { outcome: "found", object: parsed(request, answer, (value) => kind.parse(value)) };
    },

    async list<T extends KubeObject>(
      kind: Kind<T>,
      options: ListOptions,
      signal?: AbortSignal,
    ): Promise<ListPage<T>> {
      const { namespace, ...query } = options;
      const request: HttpRequest = {
        method: "GET",
        path: pathOf(kind, namespace) + queryOf(query),
        verb: "list",
        resource: kind.plural,
      };
      const page = parsed(request, await send(request, signal), (value) => listSchema.parse(value));
      try {
        return {
          items: (page.items ?? []).map((item) => kind.parse(item)),
          resourceVersion: page.metadata.resourceVersion,
          continue: page.metadata.continue === "" ? undefined : page.metadata.continue,
        };
      } catch (error) {
        throw badAnswer(request, error);
      }
    },

    create: (kind, draft, signal) =>
      write(
        {
          method: "POST",
          path: pathOf(kind, draft.metadata.namespace),
          body: bodyOf(kind, draft),
          verb: "create",
          resource: kind.plural,
        },
        (value) => kind.parse(value),
        signal,
      ),

    update: (kind, draft, signal) => put(kind, draft, [], signal),
    updateStatus: (kind, draft, signal) => put(kind, draft, ["status"], signal),

    patch: (kind, ref, patch, signal) => mergePatch(kind, ref, patch, [], signal),
    patchStatus: (kind, ref, patch, signal) => mergePatch(kind, ref, patch, ["status"], signal),

    remove: (kind, ref, preconditions, signal) =>
      write(
        {
          method: "DELETE",
          path: pathOf(kind, ref.namespace, ref.name),
          body: formatJson({ apiVersion: "v1", kind: "DeleteOptions", preconditions }),
          verb: "delete",
          resource: kind.plural,
        },
        () => undefined,
        signal,
      ),

    async post(path, body, signal) {
      const request: HttpRequest = {
        method: "POST",
        path,
        body: formatJson(body),
        verb: "create",
        resource: path.split("/").at(-1) ?? "",
      };
      return parsed(request, await send(request, signal), (value) => value);
    },
  };
};
