import type { ResourceSpec } from "../core/resource.ts";
import { defaultRenewInterval } from "../core/timing.ts";
import { noToken, parseToken } from "../core/token.ts";
import type { FencedResource } from "./fencedresource.ts";

/** What the protocol needs of a FencedResource that the server sent, defaults filled in. */
export const resourceSpec = ({ metadata, spec, status }: FencedResource): ResourceSpec => ({
  namespace: metadata.namespace,
  name: metadata.name,
  uid: metadata.uid,
  deleted: metadata.deletionTimestamp !== undefined,
  suspended: spec.suspend,
  durationSeconds: spec.lease.durationSeconds,
  renewIntervalSeconds: spec.lease.renewIntervalSeconds ?? defaultRenewInterval(spec.lease.durationSeconds),
  lockDelaySeconds: spec.lease.lockDelaySeconds,
  floor: parseToken(spec.tokens.floor) ?? noToken,
  reserve: BigInt(spec.tokens.reserve),
  store: spec.tokens.store,
  guarantee: status?.guarantee ?? "Advisory",
  boundary: {
    type: spec.boundary.type,
    advance: spec.boundary.advance,
    text: JSON.stringify(spec.boundary),
  },
});
