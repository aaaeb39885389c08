import type { FencedResource } from "../api/fencedresource.ts";
import type { FencedSequence } from "../api/fencedsequence.ts";
import type { LeaseObject } from "../api/lease.ts";
import { leaseName } from "../api/names.ts";
import type { Boundaries } from "../boundary/guard.ts";
import type { ResourceSpec } from "../core/resource.ts";
import type { EventRecorder } from "../kube/events.ts";
import { type FencedLease, type Leases, readLease, type ResourceName } from "../kube/leases.ts";
import type { KubeClient, KubeObject, Ref } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Metrics } from "../runtime/metrics.ts";
import type { SequenceStore } from "../store/port.ts";
import type { Memory } from "./memory.ts";

/** What a watch shows: a reflector. */
export interface Cache<T extends KubeObject> {
  get(ref: Ref): T | undefined;
  list(): T[];
  synced(): Promise<void>;
  epoch(): number;
}

export interface ControllerDeps {
  client: Pick<KubeClient, "update" | "updateStatus">;
  leases: Leases;
  /** The store that a resource names; undefined where this installation has none of that kind. */
  storeOf(resource: ResourceSpec): SequenceStore | undefined;
  boundaries: Boundaries;
  events: Pick<EventRecorder, "record">;
  /** Identity of this cluster. */
  issuer: string;
  caches: {
    resources: Cache<FencedResource>;
    /** Those with our label. */
    leases: Cache<LeaseObject>;
    sequences: Cache<FencedSequence>;
  };
  clock: Clock;
  random: Random;
  log: Logger;
  metrics: Metrics;
}

/** One look at one resource. */
export interface Look {
  deps: ControllerDeps;
  object: FencedResource;
  resource: ResourceSpec;
  memory: Memory;
  /** How often the API server went back in time so far. */
  restores: number;
  /** Aborted with the leadership: nothing more is written. */
  signal: AbortSignal;
}

/** The Lease of a resource as the watch shows it. */
export const cachedLease = (
  { leases }: Pick<ControllerDeps["caches"], "leases">,
  resource: ResourceName,
): FencedLease | undefined => {
  const object = leases.get({ namespace: resource.namespace, name: leaseName(resource.name) });
  return object === undefined ? undefined : readLease(object, resource);
};
