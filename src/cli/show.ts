/** FencedResources beside their Leases, as people read them. */
import type { FencedResource } from "../api/fencedresource.ts";
import type { StateAnswer } from "../api/http.ts";
import type { LeaseObject } from "../api/lease.ts";
import { leaseName, resourceLabel } from "../api/names.ts";
import type { WallTime } from "../core/time.ts";
import { fencedResourceKind, leaseKind } from "../kube/kinds.ts";
import { readLease, type ResourceName } from "../kube/leases.ts";
import { stateOf } from "../kube/state.ts";
import type { Kind, KubeClient, KubeObject } from "../kube/types.ts";
import { parseMicroTime } from "../runtime/microtime.ts";
import { CliError } from "./errors.ts";
import { type Paint, printable, span } from "./text.ts";

/** One resource: what people declared, and what the Lease says now. */
export interface Shown {
  resource: FencedResource;
  lease: LeaseObject | undefined;
  state: StateAnswer;
}

/** The time of a text with or without a fraction; undefined where it is none. */
export const timeOf = (text: string | null | undefined): WallTime | undefined =>
  text === null || text === undefined
    ? undefined
    : parseMicroTime(text.replace(/(:\d\d)(Z|[+-]\d\d:\d\d)$/, "$1.000000$2"));

/** Seconds from `earlier` to `later`. */
export const secondsBetween = (earlier: WallTime, later: WallTime): number => Number(later - earlier) / 1e6;

/**
 * The state by the two objects. Whether a lease has run out is told by this machine's wall clock, or by what the
 * controller saw: good enough to be read, and nothing is decided by it.
 */
export const shown = (resource: FencedResource, lease: LeaseObject | undefined, now: WallTime): Shown => {
  const { metadata, status } = resource;
  const fenced = lease === undefined ? undefined : readLease(lease, metadata);
  const fresh = stateOf(resource, fenced, { expired: false, waiters: status?.waiters ?? 0 });
  const expiry = timeOf(fresh.leaseExpiry);
  const seenExpired =
    status?.holder?.identity === fresh.holder && status.holder.display.endsWith("(expired)");
  const expired = fresh.holder !== null && (seenExpired || (expiry !== undefined && expiry < now));
  return { resource, lease, state: { ...fresh, expired } };
};

const all = async <T extends KubeObject>(
  client: KubeClient,
  kind: Kind<T>,
  options: { namespace: string | undefined; labelSelector?: string },
): Promise<T[]> => {
  const items: T[] = [];
  let next: string | undefined;
  do {
    const page = await client.list(kind, { ...options, limit: 500, continue: next });
    items.push(...page.items);
    next = page.continue;
  } while (next !== undefined);
  return items;
};

/** Every resource of a namespace, or of all; sorted by name. */
export const readAll = async (
  client: KubeClient,
  namespace: string | undefined,
  now: () => WallTime,
): Promise<Shown[]> => {
  const resources = await all(client, fencedResourceKind, { namespace });
  if (resources.length === 0) return [];
  const leases = await all(client, leaseKind, { namespace, labelSelector: resourceLabel });
  const byName = new Map(
    leases.map((lease) => [`${lease.metadata.namespace}/${lease.metadata.name}`, lease]),
  );
  const time = now();
  return resources
    .map((resource) => {
      const { metadata } = resource;
      return shown(resource, byName.get(`${metadata.namespace}/${leaseName(metadata.name)}`), time);
    })
    .toSorted((a, b) => (a.state.resource < b.state.resource ? -1 : 1));
};

export const readOne = async (
  client: KubeClient,
  name: ResourceName,
  now: () => WallTime,
): Promise<Shown> => {
  const found = await client.get(fencedResourceKind, name);
  if (found.outcome === "absent")
    throw new CliError("failed", `there is no FencedResource ${name.namespace}/${name.name}`);
  const lease = await client.get(leaseKind, { namespace: name.namespace, name: leaseName(name.name) });
  return shown(found.object, lease.outcome === "found" ? lease.object : undefined, now());
};

/** What the HOLDER column says. */
export const holderText = ({ holder, holderLabel, holderPod, expired }: StateAnswer): string =>
  holder === null ? "" : `${holderLabel ?? holderPod ?? holder}${expired ? " (expired)" : ""}`;

export interface TableOptions {
  namespaces: boolean;
  wide: boolean;
  paint: Paint;
  now: WallTime;
}

export const heads = ({ namespaces, wide }: TableOptions): string[] => [
  ...(namespaces ? ["NAMESPACE"] : []),
  "NAME",
  "HOLDER",
  "TOKEN",
  "GUARANTEE",
  "READY",
  "AGE",
  ...(wide ? ["MARK", "WAITERS", "STORE", "BOUNDARY"] : []),
];

/** The columns of `kubectl get fr`, with holder and token from the Lease itself. */
export const cells = (
  { resource, state }: Shown,
  { namespaces, wide, paint, now }: TableOptions,
): string[] => {
  const { metadata, status } = resource;
  const created = timeOf(metadata.creationTimestamp);
  const ready = status?.conditions?.find(({ type }) => type === "Ready")?.status ?? "";
  const holder = printable(holderText(state));
  return [
    ...(namespaces ? [metadata.namespace] : []),
    metadata.name,
    state.expired ? paint("yellow", holder) : holder,
    state.highestToken === "0" ? "" : state.highestToken,
    state.guarantee,
    ready === "False" ? paint("red", ready) : printable(ready),
    created === undefined ? "" : span(secondsBetween(created, now)),
    ...(wide
      ? [printable(status?.boundary?.grantedMark ?? ""), String(state.waiters), state.store, state.boundary]
      : []),
  ];
};
