import type { Boundaries } from "../boundary/guard.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { type FencedLease, keyOf, type Leases, type ResourceName } from "../kube/leases.ts";
import type { WriteResult } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Metrics } from "../runtime/metrics.ts";
import type { SequenceStore } from "../store/port.ts";
import { type Refusal, refuse } from "./answers.ts";
import { type Book, type Known, newer } from "./book.ts";

/** FencedResources as this replica sees them. */
export interface Resources {
  /** From the watch; undefined where it shows none. */
  cached(resource: ResourceName): ResourceSpec | undefined;
  /** Read from the API server now. */
  fresh(resource: ResourceName, signal?: AbortSignal): Promise<ResourceSpec | undefined>;
}

export interface Deps {
  leases: Leases;
  resources: Resources;
  /** The store that a resource names; undefined where this installation has none of that kind. */
  storeOf(resource: ResourceSpec): SequenceStore | undefined;
  boundaries: Boundaries;
  book: Book;
  clock: Clock;
  random: Random;
  log: Logger;
  metrics: Metrics;
}

/**
 * Reads a Lease now and notes it. A version older than one that was known before the question was asked proves that the
 * API server went back in time.
 */
export const readFresh = async (
  { leases, book, log }: Pick<Deps, "leases" | "book" | "log">,
  resource: ResourceName,
  signal?: AbortSignal,
): Promise<Known | undefined> => {
  const before = book.get(resource)?.lease.view.resourceVersion;
  const lease: FencedLease | undefined = await leases.get(resource, signal);
  if (lease === undefined) {
    book.drop(resource);
    return undefined;
  }
  if (before !== undefined && newer(before, lease.view.resourceVersion)) {
    log.warn({ resource: keyOf(resource) }, "the API server went back in time");
    book.regressed();
  }
  return book.put(resource, lease);
};

/** Two replicas that met at one Lease part for a moment: 0 to 50 ms. */
export const partMs = (random: Random): number => random.float() * 50;

/** A Lease write that surely did not happen: not now, or never as it stands. */
export const notWritten = (
  { log }: Pick<Deps, "log">,
  resource: ResourceName,
  written: Extract<WriteResult<FencedLease>, { outcome: "refused" | "unavailable" }>,
): Refusal => {
  const key = keyOf(resource);
  if (written.outcome === "unavailable")
    return refuse("store_unavailable", `the API server does not take writes: ${written.message}`, {
      retryAfterMs: written.retryAfterMs ?? 1000,
    });
  log.error({ resource: key, error: written.message }, "the API server refused a Lease write");
  return refuse(
    "store_unavailable",
    `the API server refused to write the Lease of ${key}: ${written.message}`,
  );
};
