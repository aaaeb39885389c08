/** Reads and writes of single objects, as the API server's generic registry does them. */
import { isDeepStrictEqual } from "node:util";
import type { Clock, Random } from "../../../src/runtime/clock.ts";
import { type Address, keyOf, tableOf } from "./address.ts";
import type { Commit, History } from "./history.ts";
import { type Resource, resources } from "./kinds.ts";
import {
  compact,
  type Meta,
  metaProblem,
  mergePatch,
  parseBody,
  readSent,
  type Sent,
  type Stored,
} from "./objects.ts";
import { ApiFailure } from "./status.ts";

export interface RegistryDeps {
  history: History;
  clock: Clock;
  random: Random;
  /** Called after each write that changed something. */
  committed: (commit: Commit) => void;
}

/** An address with a name. */
export type Named = Address & { name: string };

export interface Written {
  status: 200 | 201;
  object: unknown;
}

/** What a namespace's deletion takes before its content goes: long enough to run into it. */
const sweepMs = 1_000;

const groupOf = ({ apiVersion }: Resource) => apiVersion.split("/").slice(0, -1).join("");
const titleOf = (resource: Resource) =>
  groupOf(resource) === "" ? resource.plural : `${resource.plural}.${groupOf(resource)}`;

const conflict = ({ resource, name }: Named, why: string) =>
  new ApiFailure("Conflict", `Operation cannot be fulfilled on ${titleOf(resource)} "${name}": ${why}`);
const precondition = (at: Named, what: string, sent: string, found: string) =>
  conflict(at, `Precondition failed: ${what} in precondition: ${sent}, ${what} in object meta: ${found}`);
const invalid = ({ resource, name }: Pick<Named, "resource" | "name">, problem: string) =>
  new ApiFailure("Invalid", `${resource.kind} "${name}" is invalid: ${problem}`);
const notFound = ({ resource, name }: Named) =>
  new ApiFailure("NotFound", `${titleOf(resource)} "${name}" not found`);

export const makeRegistry = ({ history, clock, random, committed }: RegistryDeps) => {
  const seconds = () => `${new Date(Number(clock.wall() / 1000n)).toISOString().slice(0, 19)}Z`;

  const find = ({ resource, namespace, name }: Named): Stored | undefined =>
    history.get(tableOf(resource), keyOf(namespace, name));

  const commit = (at: Named, object: Stored, remove = false): Stored => {
    const entry = history.commit(
      tableOf(at.resource),
      keyOf(at.namespace, at.name),
      (resourceVersion) => ({ ...object, metadata: { ...object.metadata, resourceVersion } }),
      remove,
    );
    committed(entry);
    return entry.last;
  };

  const phaseOf = (namespace: string): unknown => {
    const found = history.get("namespaces.v1", namespace);
    if (found === undefined) return undefined;
    return found.metadata.deletionTimestamp === undefined ? "Active" : "Terminating";
  };

  const checkNamespace = ({ resource, namespace }: Address) => {
    if (!resource.namespaced || namespace === undefined) return;
    const phase = phaseOf(namespace);
    if (phase === undefined) throw new ApiFailure("NotFound", `namespaces "${namespace}" not found`);
    if (phase === "Terminating")
      throw new ApiFailure(
        "Forbidden",
        `${titleOf(resource)} is forbidden: unable to create new content in namespace ${namespace} because it is being terminated`,
        { causes: [{ reason: "NamespaceTerminating" }] },
      );
  };

  const fresh = (at: Named, sent: Sent): Stored => {
    checkNamespace(at);
    const { labels, annotations, finalizers, ownerReferences } = sent.metadata;
    const object = at.resource.admit({
      ...withoutStatus(at.resource, sent),
      apiVersion: at.resource.apiVersion,
      kind: at.resource.kind,
      metadata: {
        name: at.name,
        ...compact({ namespace: at.namespace, labels, annotations, finalizers, ownerReferences }),
        uid: random.uuid(),
        resourceVersion: "0",
        creationTimestamp: seconds(),
        ...(at.resource.custom && { generation: 1 }),
      },
    });
    const problem = metaProblem(object.metadata);
    if (problem !== undefined) throw invalid(at, problem);
    return object;
  };

  const create = (at: Address, body: string | undefined): Written => {
    const sent = readSent(parseBody(body));
    checkSent(at, sent);
    const { generateName, resourceVersion } = sent.metadata;
    const name =
      sent.metadata.name ??
      (generateName === undefined ? undefined : generateName + random.uuid().replaceAll("-", "").slice(-5));
    if (name === undefined)
      throw invalid({ ...at, name: "" }, "metadata.name: Required value: name or generateName is required");
    const named = { ...at, name };
    if (resourceVersion !== undefined)
      throw new ApiFailure("InternalError", "resourceVersion should not be set on objects to be created");
    const object = fresh(named, sent);
    if (find(named) !== undefined)
      throw new ApiFailure("AlreadyExists", `${titleOf(at.resource)} "${name}" already exists`);
    return { status: 201, object: commit(named, object) };
  };

  const update = (at: Named, body: string | undefined): Written => {
    const sent = readSent(parseBody(body));
    checkSent(at, sent);
    const before = find(at);
    const { uid } = sent.metadata;
    if (before === undefined && (!at.resource.createOnUpdate || at.sub !== undefined)) throw notFound(at);
    if (uid !== undefined && uid !== before?.metadata.uid)
      throw precondition(at, "UID", uid, before?.metadata.uid ?? "");
    if (before !== undefined) return change(at, before, sent);
    return { status: 201, object: commit(at, fresh(at, sent)) };
  };

  const patch = (at: Named, body: string | undefined, contentType: string | undefined): Written => {
    if (contentType !== "application/merge-patch+json")
      throw new ApiFailure(
        "UnsupportedMediaType",
        `the body of the request was in an unknown format: ${contentType}`,
      );
    const changes = parseBody(body);
    const before = find(at);
    if (before === undefined) throw notFound(at);
    const sent = readSent({ metadata: {}, ...(mergePatch(before, changes) as Record<string, unknown>) });
    checkSent(at, sent);
    const { resourceVersion } = (changes["metadata"] ?? {}) as Record<string, unknown>;
    return change(at, before, sent, resourceVersion === undefined);
  };

  /** `blind`: the version was not named, so it is the one that was just read. */
  const change = (at: Named, before: Stored, sent: Sent, blind = false): Written => {
    const { resourceVersion, uid } = sent.metadata;
    if (!blind) {
      if (resourceVersion === undefined && !at.resource.unconditionalUpdate)
        throw invalid(at, "metadata.resourceVersion: Invalid value: 0: must be specified for an update");
      if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion)
        throw conflict(
          at,
          "the object has been modified; please apply your changes to the latest version and try again",
        );
    }
    if (uid !== undefined && uid !== before.metadata.uid)
      throw invalid(at, `metadata.uid: Invalid value: "${uid}": field is immutable`);
    const after = at.resource.admit(
      at.sub === "status" ? statusOnly(before, sent) : mainOnly(at.resource, before, sent),
    );
    const problem = metaProblem(after.metadata);
    if (problem !== undefined) throw invalid(at, problem);
    if (after.metadata.deletionTimestamp !== undefined && after.metadata.finalizers === undefined)
      return { status: 200, object: commit(at, after, true) };
    // What changes nothing commits nothing, keeps its version, and nobody hears of it.
    if (isDeepStrictEqual(after, before)) return { status: 200, object: before };
    return { status: 200, object: commit(at, after) };
  };

  const remove = (at: Named, body: string | undefined): Written => {
    const options = body === undefined || body === "" ? {} : parseBody(body);
    const wanted = readSent({ metadata: options["preconditions"] ?? {} }).metadata;
    const before = find(at);
    if (before === undefined) throw notFound(at);
    const { uid, resourceVersion, finalizers, deletionTimestamp } = before.metadata;
    if (wanted.uid !== undefined && wanted.uid !== uid) throw precondition(at, "UID", wanted.uid, uid);
    if (wanted.resourceVersion !== undefined && wanted.resourceVersion !== resourceVersion)
      throw precondition(at, "ResourceVersion", wanted.resourceVersion, resourceVersion);
    const waits = finalizers !== undefined || at.resource.plural === "namespaces";
    if (!waits) {
      commit(at, before, true);
      const details = { name: at.name, group: groupOf(at.resource), kind: at.resource.plural, uid };
      return {
        status: 200,
        object: { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", details },
      };
    }
    if (deletionTimestamp !== undefined) return { status: 200, object: before };
    const { generation } = before.metadata;
    const terminating = commit(at, {
      ...before,
      metadata: {
        ...before.metadata,
        ...(generation !== undefined && { generation: generation + 1 }),
        deletionTimestamp: seconds(),
      },
      ...(at.resource.plural === "namespaces" && { status: { phase: "Terminating" } }),
    });
    if (at.resource.plural === "namespaces") clock.timer(sweepMs, () => sweep(at));
    return { status: 200, object: terminating };
  };

  /** What the namespace controller does: deletes all content, then the namespace itself. */
  const sweep = (namespace: Named) => {
    let left = 0;
    for (const resource of resources) {
      if (!resource.namespaced) continue;
      for (const object of history.list(tableOf(resource))) {
        if (object.metadata.namespace !== namespace.name) continue;
        const at = {
          ...namespace,
          resource,
          namespace: namespace.name,
          name: object.metadata.name,
          sub: undefined,
        };
        remove(at, undefined);
        if (find(at) !== undefined) left += 1;
      }
    }
    const last = find(namespace);
    if (last === undefined) return;
    if (left > 0) clock.timer(sweepMs, () => sweep(namespace));
    else commit(namespace, last, true);
  };

  return {
    find,
    create,
    update,
    patch,
    remove,
    get(at: Named): Written {
      const object = find(at);
      if (object === undefined) throw notFound(at);
      return { status: 200, object };
    },
  };
};

export type Registry = ReturnType<typeof makeRegistry>;

const checkSent = (at: Address, { metadata }: Sent) => {
  if (at.name !== undefined && metadata.name !== at.name)
    throw new ApiFailure(
      "BadRequest",
      `the name of the object (${metadata.name ?? ""}) does not match the name on the URL (${at.name})`,
    );
  if (metadata.namespace !== undefined && metadata.namespace !== at.namespace)
    throw new ApiFailure(
      "BadRequest",
      "the namespace of the provided object does not match the namespace sent on the request",
    );
};

const withoutStatus = (resource: Resource, { status, ...rest }: Sent): Sent =>
  resource.custom || status === undefined ? rest : { ...rest, status };

/** A write of the main resource: what is status stays, and the rest of it counts as a new generation. */
const mainOnly = (resource: Resource, before: Stored, sent: Sent): Stored => {
  const { labels, annotations, finalizers, ownerReferences } = sent.metadata;
  const { name, namespace, uid, resourceVersion, generation, creationTimestamp, deletionTimestamp } =
    before.metadata;
  const some = finalizers?.length === 0 ? undefined : finalizers;
  const metadata = {
    name,
    ...compact({ namespace, labels, annotations, finalizers: some, ownerReferences }),
    uid,
    resourceVersion,
    ...compact({ generation, deletionTimestamp }),
    creationTimestamp,
  };
  const kept = { ...withoutStatus(resource, sent), apiVersion: resource.apiVersion, kind: resource.kind };
  if (!resource.custom) return { ...kept, metadata };
  const after = {
    ...kept,
    metadata,
    ...(before["status"] !== undefined && { status: before["status"] }),
  };
  const same = isDeepStrictEqual(bare(resource.admit(after)), bare(before));
  const counted: Meta = { ...metadata, ...(!same && { generation: (generation ?? 0) + 1 }) };
  return { ...after, metadata: counted };
};

const bare = ({ metadata: _metadata, status: _status, ...rest }: Stored) => rest;

const statusOnly = (before: Stored, { status }: Sent): Stored => {
  const { status: _before, ...rest } = before;
  return { ...rest, ...(status !== undefined && status !== null && { status }) };
};
