import type { LeaseObject } from "../api/lease.ts";
import { leaseAnnotations, leaseName, resourceLabel, resourceLabelValue } from "../api/names.ts";
import type { Ended, HolderId, LeaseChange, LeaseView, LossReason } from "../core/lease.ts";
import { leaseFormat } from "../core/lease.ts";
import { parseToken } from "../core/token.ts";
import { formatMicroTime, parseMicroTime } from "../runtime/microtime.ts";
import { leaseKind } from "./kinds.ts";
import type { Draft, KubeClient, WriteResult } from "./types.ts";

/** A Lease as the protocol reads it, with the object that it was read from: what we do not decide is written back. */
export interface FencedLease {
  view: LeaseView;
  object: LeaseObject;
}

/** The resource that a Lease belongs to. */
export interface ResourceName {
  namespace: string;
  name: string;
}

export const keyOf = ({ namespace, name }: ResourceName): `${string}/${string}` => `${namespace}/${name}`;

const reasons: readonly string[] = [
  "deadline",
  "superseded",
  "released",
  "forced",
  "deleted",
] satisfies LossReason[];
const isReason = (text: string): text is LossReason => reasons.includes(text);
const isHolder = (text: string): text is HolderId => text.includes("/");

/** `holder=reason` separated by blanks: flat, and readable by kubectl. What does not parse was not written by us. */
const parseEnded = (text: string | undefined): Ended[] =>
  (text ?? "").split(" ").flatMap((entry) => {
    const cut = entry.lastIndexOf("=");
    const holder = entry.slice(0, Math.max(0, cut));
    const reason = entry.slice(cut + 1);
    return isHolder(holder) && isReason(reason) ? [{ holder, reason }] : [];
  });

const formatEnded = (ended: readonly Ended[]): string =>
  ended.map(({ holder, reason }) => `${holder}=${reason}`).join(" ");

/** Reads a Lease. A holder that is not of our form is a foreign one: it holds, and it matches no attempt. */
export const readLease = (object: LeaseObject, resource: ResourceName): FencedLease => {
  const { metadata, spec } = object;
  const notes = metadata.annotations ?? {};
  const token = parseToken(notes[leaseAnnotations.token] ?? "");
  const ceiling = parseToken(notes[leaseAnnotations.ceiling] ?? "");
  const uid = notes[leaseAnnotations.creditUid];
  const holder = spec.holderIdentity;
  const pod = notes[leaseAnnotations.holderPod];
  const label = notes[leaseAnnotations.holderLabel];
  return {
    object,
    view: {
      uid: metadata.uid,
      resourceVersion: metadata.resourceVersion,
      ours: metadata.labels?.[resourceLabel] === resourceLabelValue(resource.name),
      terminating: metadata.deletionTimestamp !== undefined,
      format: Number(notes[leaseAnnotations.format] ?? leaseFormat),
      holder:
        holder === undefined || holder === "" ? undefined : isHolder(holder) ? holder : `foreign:${holder}/`,
      durationSeconds: spec.leaseDurationSeconds,
      renewTime: spec.renewTime === undefined ? undefined : parseMicroTime(spec.renewTime),
      transitions: spec.leaseTransitions ?? 0,
      credit:
        token === undefined || ceiling === undefined || uid === undefined
          ? undefined
          : { uid, token, ceiling },
      ended: parseEnded(notes[leaseAnnotations.ended]),
      unclean: notes[leaseAnnotations.loss] === "unclean",
      boundary: notes[leaseAnnotations.boundary],
      note: pod === undefined && label === undefined ? undefined : { pod, label },
      forced: notes[leaseAnnotations.forced],
    },
  };
};

const set = (notes: Record<string, string>, name: string, value: string | undefined) => {
  if (value === undefined || value === "") delete notes[name];
  else notes[name] = value;
};

/** leaseTransitions is an int32 of the API that nothing depends on: it stops at its end instead of failing a write. */
const transitionsMax = 2_147_483_647;

/** The body of a PUT: what was read, changed where the protocol decides, conditional on uid and resourceVersion. [R] */
const leaseDraft = ({ object }: FencedLease, change: LeaseChange): Draft<LeaseObject> => {
  const notes = { ...object.metadata.annotations };
  set(notes, leaseAnnotations.format, String(leaseFormat));
  set(notes, leaseAnnotations.token, change.credit?.token.toString());
  set(notes, leaseAnnotations.ceiling, change.credit?.ceiling.toString());
  set(notes, leaseAnnotations.creditUid, change.credit?.uid);
  set(notes, leaseAnnotations.ended, formatEnded(change.ended));
  set(notes, leaseAnnotations.loss, change.unclean ? "unclean" : undefined);
  set(notes, leaseAnnotations.boundary, change.boundary);
  set(notes, leaseAnnotations.holderPod, change.note?.pod);
  set(notes, leaseAnnotations.holderLabel, change.note?.label);
  set(notes, leaseAnnotations.forced, change.forced);
  return {
    ...object,
    metadata: { ...object.metadata, annotations: notes },
    spec: {
      ...object.spec,
      holderIdentity: change.holder ?? "",
      leaseDurationSeconds: change.durationSeconds,
      ...(change.acquireTime === undefined ? {} : { acquireTime: formatMicroTime(change.acquireTime) }),
      renewTime: formatMicroTime(change.renewTime),
      leaseTransitions: Math.min(change.transitions, transitionsMax),
    },
  };
};

/** A Lease of ours without a holder and without credit: the only kind that anyone of us ever creates. [R] */
export const emptyLease = (resource: ResourceName): Draft<LeaseObject> => ({
  metadata: {
    name: leaseName(resource.name),
    namespace: resource.namespace,
    labels: { [resourceLabel]: resourceLabelValue(resource.name) },
    annotations: {
      [leaseAnnotations.resource]: resource.name,
      [leaseAnnotations.format]: String(leaseFormat),
    },
  },
  spec: {},
});

/** Reads and writes of the Leases of resources. Reads are fresh; writes are typed and conditional. */
export interface Leases {
  get(resource: ResourceName, signal?: AbortSignal): Promise<FencedLease | undefined>;
  create(resource: ResourceName, signal?: AbortSignal): Promise<WriteResult<FencedLease>>;
  write(
    resource: ResourceName,
    read: FencedLease,
    change: LeaseChange,
    signal?: AbortSignal,
  ): Promise<WriteResult<FencedLease>>;
}

const typed = (result: WriteResult<LeaseObject>, resource: ResourceName): WriteResult<FencedLease> =>
  result.outcome === "ok" ? { outcome: "ok", object: readLease(result.object, resource) } : result;

export const makeLeases = (client: KubeClient): Leases => {
  return {
    async get(resource, signal) {
      const ref = { namespace: resource.namespace, name: leaseName(resource.name) };
      const result = await client.get(leaseKind, ref, signal);
      return result.outcome === "found" ? readLease(result.object, resource) : undefined;
    },
    create: async (resource, signal) =>
      typed(await client.create(leaseKind, emptyLease(resource), signal), resource),
    write: async (resource, read, change, signal) =>
      typed(await client.update(leaseKind, leaseDraft(read, change), signal), resource),
  };
};
