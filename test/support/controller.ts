/** The controller with its watches, on whatever way to an API server a test has. */
import type { FencedResource } from "../../src/api/fencedresource.ts";
import type { FencedSequence } from "../../src/api/fencedsequence.ts";
import type { LeaseObject } from "../../src/api/lease.ts";
import { leaseAnnotations, resourceLabel } from "../../src/api/names.ts";
import type { Boundaries } from "../../src/boundary/guard.ts";
import { makeBoundaries } from "../../src/boundary/registry.ts";
import { makeController } from "../../src/controller/controller.ts";
import { makeKubeClient } from "../../src/kube/client.ts";
import type { EventRecorder } from "../../src/kube/events.ts";
import { fencedResourceKind, fencedSequenceKind, leaseKind } from "../../src/kube/kinds.ts";
import { keyOf, makeLeases } from "../../src/kube/leases.ts";
import { makeReflector, type Reflector } from "../../src/kube/reflector.ts";
import type { Transport } from "../../src/kube/types.ts";
import type { Clock, Random } from "../../src/runtime/clock.ts";
import { silentLogger } from "../../src/runtime/logger.ts";
import { makeMetrics } from "../../src/runtime/metrics.ts";
import { makeStatusStore } from "../../src/store/status.ts";

export interface ControllerProcess {
  metrics: ReturnType<typeof makeMetrics>;
  /** Leases as this process sees them. */
  leases: Reflector<LeaseObject>;
  lead(): void;
  /** Leadership ends; resolves when all that ran has ended. */
  depose(): Promise<void>;
  stop(): Promise<void>;
}

export const startController = (options: {
  transport: Transport;
  clock: Clock;
  random: Random;
  events: Pick<EventRecorder, "record">;
  issuer: string;
  boundaries?: Boundaries;
}): ControllerProcess => {
  const { transport, clock, random, events, issuer, boundaries = makeBoundaries({}) } = options;
  const client = makeKubeClient(transport);
  const watched = { transport, clock, random, log: silentLogger };
  const metrics = makeMetrics({ perResource: true });
  const resources = makeReflector<FencedResource>({
    ...watched,
    kind: fencedResourceKind,
    onChange: ({ object }) => controller.changed(keyOf(object.metadata)),
  });
  const leases = makeReflector<LeaseObject>({
    ...watched,
    kind: leaseKind,
    labelSelector: resourceLabel,
    onChange({ object: { metadata } }) {
      const name = metadata.annotations?.[leaseAnnotations.resource] ?? "";
      controller.changed(keyOf({ namespace: metadata.namespace ?? "", name }));
    },
    onRegressed: () => controller.regressed(),
  });
  const sequences = makeReflector<FencedSequence>({
    ...watched,
    kind: fencedSequenceKind,
    onChange({ object }) {
      const [namespace = "", name = ""] = object.spec.resource.split("/");
      controller.changed(keyOf({ namespace, name }));
    },
  });
  const store = makeStatusStore({ client, issuer, clock, random });
  const controller = makeController({
    client,
    leases: makeLeases(client),
    storeOf: (resource) => (resource.store === "Status" ? store : undefined),
    boundaries,
    events,
    issuer,
    caches: { resources, leases, sequences },
    clock,
    random,
    log: silentLogger,
    metrics,
  });
  const watches = new AbortController();
  const running = [resources, leases, sequences].map((reflector) => reflector.start(watches.signal));
  let leadership = new AbortController();
  let work: Promise<void> | undefined;
  const process: ControllerProcess = {
    metrics,
    leases,
    lead() {
      leadership = new AbortController();
      work = controller.run(leadership.signal);
    },
    async depose() {
      leadership.abort(new Error("deposed"));
      await work;
    },
    async stop() {
      await process.depose();
      watches.abort(new Error("stopped"));
      await Promise.allSettled(running);
    },
  };
  return process;
};
