import type { FencedResource } from "../api/fencedresource.ts";
import type { StateAnswer } from "../api/http.ts";
import { grantedToken } from "../core/lease.ts";
import { wallTime } from "../core/time.ts";
import { higher, noToken, parseToken } from "../core/token.ts";
import { formatMicroTime } from "../runtime/microtime.ts";
import { type FencedLease, keyOf } from "./leases.ts";

/** What the reader of a state knows beside the two objects. */
export interface Seen {
  /** The lease ran out by the reader's own observation, and nobody took it. */
  expired: boolean;
  waiters: number;
}

/** When a lease ends by the times that its holder wrote. For people: nobody may decide by it. */
const expiryOf = ({ view }: FencedLease): string | null =>
  view.renewTime === undefined || view.durationSeconds === undefined
    ? null
    : formatMicroTime(wallTime(view.renewTime + BigInt(view.durationSeconds) * 1_000_000n));

/** The state of a resource as one flat record: from the Lease where there is one, else from the status' mirrors. */
export const stateOf = (
  resource: FencedResource,
  lease: FencedLease | undefined,
  seen: Seen,
): StateAnswer => {
  const { metadata, spec, status } = resource;
  const view = lease?.view;
  const held = view?.holder !== undefined;
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const failing =
    status?.conditions?.find(({ type, status }) => type !== "Ready" && status !== "True") ?? ready;
  const mirrored = parseToken(status?.tokens?.granted ?? "0") ?? noToken;
  return {
    resource: keyOf(metadata),
    highestToken: String(higher(view === undefined ? noToken : grantedToken(view), mirrored)),
    holder: view?.holder ?? null,
    holderPod: view?.note?.pod ?? null,
    holderLabel: view?.note?.label ?? null,
    acquired: held ? (lease?.object.spec.acquireTime ?? null) : null,
    leaseExpiry: held && lease !== undefined ? expiryOf(lease) : null,
    expired: seen.expired,
    updated: lease?.object.spec.renewTime ?? null,
    transitions: view?.transitions ?? 0,
    waiters: seen.waiters,
    guarantee: status?.guarantee ?? "Advisory",
    ready: ready?.status === "True",
    condition:
      ready?.status === "True"
        ? null
        : failing === undefined
          ? "Ready/Pending"
          : `${failing.type}/${failing.reason}`,
    suspended: spec.suspend,
    durationSeconds: spec.lease.durationSeconds,
    store: spec.tokens.store,
    boundary: spec.boundary.type,
  };
};
