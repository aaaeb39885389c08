/**
 * A small world on one fake clock: an API server in memory, coordinators on it, and by hand what the controller would do.
 * Everything from the transport upwards is the shipped code.
 */
import type { FencedResource } from "../../src/api/fencedresource.ts";
import type { LeaseObject } from "../../src/api/lease.ts";
import { apiVersion, leaseAnnotations, leaseName, resourceLabel, sequenceName } from "../../src/api/names.ts";
import { resourceSpec } from "../../src/api/resourcespec.ts";
import { makeBoundaries } from "../../src/boundary/registry.ts";
import { makeBook } from "../../src/coordinator/book.ts";
import { type CoordinatorOptions, makeCoordinator } from "../../src/coordinator/coordinator.ts";
import type { Resources } from "../../src/coordinator/deps.ts";
import type { Token } from "../../src/core/token.ts";
import { noToken } from "../../src/core/token.ts";
import { makeKubeClient } from "../../src/kube/client.ts";
import { fencedResourceKind, fencedSequenceKind, leaseKind, namespaceKind } from "../../src/kube/kinds.ts";
import { type FencedLease, keyOf, makeLeases, readLease, type ResourceName } from "../../src/kube/leases.ts";
import { makeReflector } from "../../src/kube/reflector.ts";
import type { WriteResult } from "../../src/kube/types.ts";
import { silentLogger } from "../../src/runtime/logger.ts";
import { makeMetrics } from "../../src/runtime/metrics.ts";
import type { SequenceStore } from "../../src/store/port.ts";
import { makeStatusStore } from "../../src/store/status.ts";
import { makeFakeClock, makeFakeRandom, settle } from "./clock.ts";
import { makeFakeBoundary } from "./fakeboundary.ts";
import { makeMemApi } from "./memapi/memapi.ts";

const issuer = "this-cluster";

/** The object of a write that went well; a test that gets something else is wrong. */
const done = <T>(result: WriteResult<T>): T => {
  if (result.outcome !== "ok") throw new Error(`${result.outcome}: ${JSON.stringify(result)}`);
  return result.object;
};

/** A caller as the coordinator's HTTP face would hand it on. */
export const caller = (name: string, attempt = "1") => ({
  identity: `pod:${name}`,
  attempt: `${name}-${attempt}`,
});

export interface AcquireOptions {
  waitMs?: number;
  signal?: AbortSignal;
}

/** The boundary section of a FencedResource that the fake one serves. */
export const fakeBoundarySpec = {
  type: "PostgreSQL",
  postgresql: { secretRef: { name: "db" }, tables: [{ name: "orders" }] },
};

export const makeWorld = async ({ seed = 1 }: { seed?: number } = {}) => {
  const clock = makeFakeClock();
  const random = makeFakeRandom(seed);
  const api = makeMemApi({ clock, random });
  const admin = makeKubeClient(api.transport({ name: "admin" }));
  const leases = makeLeases(admin);
  const sequences = makeStatusStore({ client: admin, issuer, clock, random });
  const boundary = makeFakeBoundary();
  const boundaries = makeBoundaries({ PostgreSQL: boundary.driver });
  const namespace = async (name: string) => done(await admin.create(namespaceKind, { metadata: { name } }));
  await namespace("shop");

  const orders: ResourceName = { namespace: "shop", name: "orders" };

  const get = async (resource = orders): Promise<FencedResource> => {
    const found = await admin.get(fencedResourceKind, resource);
    if (found.outcome === "absent") throw new Error(`no FencedResource ${keyOf(resource)}`);
    return found.object;
  };

  const lease = async (resource = orders): Promise<FencedLease> => {
    const found = await leases.get(resource);
    if (found === undefined) throw new Error(`no Lease of ${keyOf(resource)}`);
    return found;
  };

  /** What the controller does once the target is guarded: the Lease carries the hash of its boundary. */
  const guard = async (resource = orders) => {
    const [{ object, view }, fenced] = [await lease(resource), await get(resource)];
    const seen = await boundaries.guard(resourceSpec(fenced), view.uid);
    if (seen.kind !== "ready") throw new Error(`not guarded: ${seen.kind}`);
    const annotations = { ...object.metadata.annotations, [leaseAnnotations.boundary]: seen.hash };
    done(await admin.update(leaseKind, { ...object, metadata: { ...object.metadata, annotations } }));
  };

  /** Applies a FencedResource, and does what the controller does for it: sequence, Lease, boundary. */
  const declare = async (
    spec: object = {},
    { resource = orders, at = noToken }: { resource?: ResourceName; at?: Token } = {},
  ) => {
    // The server fills in what is left out, as the CRD says.
    const body = {
      apiVersion,
      kind: "FencedResource",
      metadata: { ...resource },
      spec: spec as FencedResource["spec"],
    };
    done(await admin.create(fencedResourceKind, body));
    await sequences.open(keyOf(resource), at);
    done(await leases.create(resource));
    if ("boundary" in spec) await guard(resource);
  };

  /** Merges into the spec. */
  const change = async (spec: object, resource = orders) => {
    done(await admin.patch(fencedResourceKind, resource, { spec }));
    await settle();
  };

  const removeLease = async (resource = orders) =>
    done(await admin.remove(leaseKind, { ...resource, name: leaseName(resource.name) }, {}));

  /** Puts the sequence back to `ceiling`, as no server with our CRD lets anybody do it. */
  const rewindSequence = async (ceiling: Token, resource = orders) => {
    const found = await admin.get(fencedSequenceKind, { name: sequenceName(keyOf(resource)) });
    if (found.outcome === "absent" || found.object.status === undefined) throw new Error("no sequence");
    const status = { ...found.object.status, ceiling: ceiling.toString() };
    done(await admin.updateStatus(fencedSequenceKind, { ...found.object, status }));
  };

  /** One coordinator process: its own connection, watches, book, and memory of nothing else. */
  const replica = async (name: string, options: CoordinatorOptions & { store?: SequenceStore } = {}) => {
    const transport = api.transport({ name });
    const client = makeKubeClient(transport);
    const metrics = makeMetrics({ perResource: false });
    const book = makeBook(clock);
    const watched = { transport, clock, random, log: silentLogger };
    const resources = makeReflector<FencedResource>({ ...watched, kind: fencedResourceKind });
    const watch = makeReflector<LeaseObject>({
      ...watched,
      kind: leaseKind,
      labelSelector: resourceLabel,
      onChange({ type, object }) {
        const { namespace, annotations } = object.metadata;
        const of = annotations?.[leaseAnnotations.resource];
        if (namespace === undefined || of === undefined) return;
        const resource = { namespace, name: of };
        if (type === "deleted") book.drop(resource, object.metadata.uid);
        else book.put(resource, readLease(object, resource));
      },
      onInterrupted: () => book.interrupted(),
      onResumed: () => book.resumed(),
      onRegressed: () => book.regressed(),
    });
    const known: Resources = {
      cached(resource) {
        const found = resources.get(resource);
        return found === undefined ? undefined : resourceSpec(found);
      },
      async fresh(resource, signal) {
        const found = await client.get(fencedResourceKind, resource, signal);
        return found.outcome === "found" ? resourceSpec(found.object) : undefined;
      },
    };
    const store = options.store ?? makeStatusStore({ client, issuer, clock, random });
    const coordinator = makeCoordinator(
      {
        leases: makeLeases(client),
        resources: known,
        storeOf: (spec) => (spec.store === "Status" ? store : undefined),
        boundaries,
        book,
        clock,
        random,
        log: silentLogger,
        metrics,
      },
      options,
    );
    const end = new AbortController();
    const running = [resources.start(end.signal), watch.start(end.signal)];
    await Promise.all([resources.synced(), watch.synced()]);
    // The watches are open, and show what there is.
    await settle();

    return {
      name,
      transport,
      coordinator,
      book,
      metrics,
      watch,
      acquire: (
        who: ReturnType<typeof caller>,
        { waitMs = 0, signal }: AcquireOptions = {},
        resource = orders,
      ) =>
        coordinator.acquire(
          { resource, caller: who, note: undefined, waitMs },
          signal ?? new AbortController().signal,
        ),
      renew: (who: ReturnType<typeof caller>, token: bigint, resource = orders) =>
        coordinator.renew(resource, who, token as Token),
      release: (who: ReturnType<typeof caller>, token: bigint, resource = orders) =>
        coordinator.release(resource, who, token as Token),
      force: (reason: string, resource = orders) => coordinator.force(resource, "ann", reason),
      /** As SIGKILL: nothing is tidied up, and what is under way finds no way out. */
      async kill() {
        transport.partition();
        end.abort(new Error("killed"));
        await Promise.all(running);
      },
    };
  };

  /** Lets time pass in small steps until `work` is settled, at most `ms`. */
  const within = async <T>(work: Promise<T>, ms: number): Promise<T> => {
    const state = { over: false };
    const end = () => {
      state.over = true;
    };
    work.then(end, end);
    await settle();
    for (let passed = 0; !state.over && passed < ms; passed += 50) await clock.advance(50);
    if (!state.over) throw new Error(`not settled within ${ms} ms`);
    return work;
  };

  return {
    clock,
    random,
    api,
    admin,
    leases,
    sequences,
    boundary,
    orders,
    get,
    lease,
    guard,
    namespace,
    declare,
    change,
    removeLease,
    rewindSequence,
    replica,
    within,
    /** Lets everything happen that needs no more time. */
    settle: async () => {
      for (let round = 0; round < 5; round += 1) await settle();
    },
  };
};

export type World = Awaited<ReturnType<typeof makeWorld>>;
export type Replica = Awaited<ReturnType<World["replica"]>>;
