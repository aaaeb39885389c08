/** One process as src/serve.ts puts it together, without its servers: coordinator and controller on one set of watches. */
import type { FencedResource } from "../../src/api/fencedresource.ts";
import type { FencedSequence } from "../../src/api/fencedsequence.ts";
import type { LeaseObject } from "../../src/api/lease.ts";
import { leaderLease, leaseAnnotations, resourceLabel, systemNamespace } from "../../src/api/names.ts";
import { resourceSpec } from "../../src/api/resourcespec.ts";
import type { Boundaries } from "../../src/boundary/guard.ts";
import { makeController } from "../../src/controller/controller.ts";
import { makeBook } from "../../src/coordinator/book.ts";
import { type CoordinatorOptions, makeCoordinator } from "../../src/coordinator/coordinator.ts";
import { makeWaiterMirror } from "../../src/coordinator/waitermirror.ts";
import type { ResourceSpec } from "../../src/core/resource.ts";
import { makeKubeClient } from "../../src/kube/client.ts";
import type { EventRecorder } from "../../src/kube/events.ts";
import { fencedResourceKind, fencedSequenceKind, leaseKind } from "../../src/kube/kinds.ts";
import { makeElection } from "../../src/kube/leader.ts";
import { keyOf, makeLeases, readLease } from "../../src/kube/leases.ts";
import { makeReflector } from "../../src/kube/reflector.ts";
import type { Transport } from "../../src/kube/types.ts";
import type { Clock, Random } from "../../src/runtime/clock.ts";
import { silentLogger } from "../../src/runtime/logger.ts";
import { makeMetrics } from "../../src/runtime/metrics.ts";
import { makeStatusStore } from "../../src/store/status.ts";

export interface ProcessOptions {
  name: string;
  transport: Transport;
  clock: Clock;
  random: Random;
  issuer: string;
  boundaries: Boundaries;
  events: Pick<EventRecorder, "record">;
  /** `elected`: as shipped. `always`: without asking, as two leaders would. */
  leads: "elected" | "always" | "never";
  limits?: CoordinatorOptions["limits"];
}

export const startProcess = (options: ProcessOptions) => {
  const { name, transport, clock, random, issuer, boundaries, events, leads, limits } = options;
  const log = silentLogger;
  const metrics = makeMetrics({ perResource: false });
  const client = makeKubeClient(transport);
  const book = makeBook(clock);
  const watched = { transport, clock, random, log };
  const resources = makeReflector<FencedResource>({
    ...watched,
    kind: fencedResourceKind,
    onChange: ({ object }) => controller.changed(keyOf(object.metadata)),
  });
  const sequences = makeReflector<FencedSequence>({
    ...watched,
    kind: fencedSequenceKind,
    onChange({ object }) {
      const [namespace = "", name = ""] = object.spec.resource.split("/");
      controller.changed(keyOf({ namespace, name }));
    },
  });
  const leases = makeReflector<LeaseObject>({
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
      controller.changed(keyOf(resource));
    },
    onInterrupted: () => book.interrupted(),
    onResumed: () => book.resumed(),
    onRegressed() {
      book.regressed();
      controller.regressed();
    },
  });
  const store = makeStatusStore({ client, issuer, clock, random });
  const storeOf = (spec: ResourceSpec) => (spec.store === "Status" ? store : undefined);
  const shared = { leases: makeLeases(client), storeOf, boundaries, clock, random, log, metrics };
  const controller = makeController({
    ...shared,
    client,
    events,
    issuer,
    caches: { resources, leases, sequences },
  });
  const mirror = makeWaiterMirror({ client, clock, log, replica: name });
  const coordinator = makeCoordinator(
    {
      ...shared,
      resources: {
        cached(resource) {
          const found = resources.get(resource);
          return found === undefined ? undefined : resourceSpec(found);
        },
        async fresh(resource, signal) {
          const found = await client.get(fencedResourceKind, resource, signal);
          return found.outcome === "found" ? resourceSpec(found.object) : undefined;
        },
      },
      book,
    },
    {
      ...(limits !== undefined && { limits }),
      onWaiting: (resource, waiting) => mirror.note(resource, waiting),
    },
  );
  const reflectors = [resources, leases, sequences];
  const watches = new AbortController();
  const running = reflectors.map((reflector) => reflector.start(watches.signal));
  const candidacy = new AbortController();
  const lead = (signal: AbortSignal) => controller.run(signal);
  const ref = { namespace: systemNamespace, name: leaderLease };
  const election = makeElection({
    client,
    ref,
    identity: `${name}/${random.uuid()}`,
    lead,
    clock,
    random,
    log,
  });
  const candidate =
    leads === "never"
      ? Promise.resolve()
      : leads === "always"
        ? lead(candidacy.signal)
        : election.run(candidacy.signal);

  return {
    coordinator,
    book,
    metrics,
    /** Settled once the process may serve. */
    ready: Promise.all(reflectors.map((reflector) => reflector.synced())),
    healthy: () => reflectors.every((reflector) => reflector.healthy()),
    isLeader: () => leads === "always" || election.isLeader(),
    /** As on SIGTERM. */
    async stop() {
      coordinator.drain();
      await clock.sleep(5_000);
      candidacy.abort(new Error("the process is ending"));
      await candidate;
      const limit = new AbortController();
      const cancel = clock.timer(2_000, () => limit.abort());
      await mirror.clear(limit.signal);
      cancel();
      watches.abort(new Error("the process is ending"));
      await Promise.all(running);
    },
  };
};

export type Process = ReturnType<typeof startProcess>;
