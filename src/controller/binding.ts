/**
 * The Lease of a resource, from the controller's side.
 *
 * | Lease of our name | binding |
 * | --- | --- |
 * | none | made, without holder and credit |
 * | labelled as ours | bound |
 * | without our label, nobody holds it | adopted: labelled and emptied, then bound |
 * | without our label, held | ForeignLease, untouched |
 * | with our label, of another resource | ForeignLease, untouched |
 * | being deleted | LeaseMissing |
 * | of a newer format | NewerFormat |
 */
import type { LeaseObject } from "../api/lease.ts";
import { type ConditionReason, group, leaseName, resourceLabel, resourceLabelValue } from "../api/names.ts";
import { leaseFormat } from "../core/lease.ts";
import { leaseKind } from "../kube/kinds.ts";
import { emptyLease, type FencedLease, type Leases, readLease, type ResourceName } from "../kube/leases.ts";
import type { Draft, KubeClient, WriteResult } from "../kube/types.ts";

export type Binding =
  | { kind: "bound"; lease: FencedLease }
  | { kind: "unbound"; reason: ConditionReason<"LeaseBound">; message: string };

const unbound = (reason: ConditionReason<"LeaseBound">, message: string): Binding => ({
  kind: "unbound",
  reason,
  message,
});

/** What to do about a Lease that is there. */
export const judgeLease = (lease: FencedLease, resource: ResourceName): Binding | { kind: "adopt" } => {
  const { view, object } = lease;
  const name = `${resource.namespace}/${object.metadata.name}`;
  const label = object.metadata.labels?.[resourceLabel];
  if (view.ours) {
    if (view.terminating)
      return unbound(
        "LeaseMissing",
        `Lease ${name} is being deleted: remove its finalizers, and a new one is made`,
      );
    return view.format > leaseFormat
      ? unbound("NewerFormat", `Lease ${name} has format ${view.format}: upgrade Fenceline`)
      : { kind: "bound", lease };
  }
  if (label !== undefined)
    return unbound("ForeignLease", `Lease ${name} belongs to another resource (${label}): rename this one`);
  if (view.terminating)
    return unbound("ForeignLease", `Lease ${name} is somebody else's and is being deleted`);
  if (view.holder === undefined) return { kind: "adopt" };
  return unbound(
    "ForeignLease",
    `Lease ${name} is somebody else's (held by ${object.spec.holderIdentity}) and stays as it is: delete it, or rename this resource`,
  );
};

/** A Lease that nobody holds made ours: labelled, and nothing in it that could pass for a token. */
export const adopted = ({ metadata }: LeaseObject, resource: ResourceName): Draft<LeaseObject> => {
  const foreign = Object.entries(metadata.annotations ?? {}).filter(([key]) => !key.startsWith(`${group}/`));
  const ours = emptyLease(resource);
  return {
    ...ours,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, [resourceLabel]: resourceLabelValue(resource.name) },
      annotations: { ...Object.fromEntries(foreign), ...ours.metadata.annotations },
    },
  };
};

/** A Lease write that says nothing about the resource: the run is repeated. */
const hindered = (what: string, result: { outcome: string; message?: string }): Error =>
  new Error(`${what}: ${result.outcome}${result.message === undefined ? "" : `: ${result.message}`}`);

/** Finds, makes or adopts the Lease; `cached` is the one that the watch shows. Throws where only another try can tell. */
export const bindLease = async (
  { leases, client }: { leases: Leases; client: Pick<KubeClient, "update"> },
  resource: ResourceName,
  cached: FencedLease | undefined,
  signal: AbortSignal,
): Promise<Binding> => {
  // The watch shows labelled Leases only: the one that it does not show may be somebody else's.
  const lease = cached ?? (await leases.get(resource, signal));
  if (lease === undefined) {
    const made = await leases.create(resource, signal);
    return settled(made, "make the Lease", resource);
  }
  const judged = judgeLease(lease, resource);
  if (judged.kind !== "adopt") return judged;
  const written = await client.update(leaseKind, adopted(lease.object, resource), signal);
  const read: WriteResult<FencedLease> =
    written.outcome === "ok" ? { outcome: "ok", object: readLease(written.object, resource) } : written;
  return settled(read, "adopt the Lease", resource);
};

const settled = (result: WriteResult<FencedLease>, what: string, resource: ResourceName): Binding => {
  if (result.outcome === "ok") return { kind: "bound", lease: result.object };
  if (result.outcome !== "refused") throw hindered(what, result);
  const name = `${resource.namespace}/${leaseName(resource.name)}`;
  return { kind: "unbound", reason: "LeaseRefused", message: `cannot ${what} ${name}: ${result.message}` };
};
