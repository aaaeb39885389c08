/** A controller on an API server in memory, in time that the test moves, and somebody who acts as the coordinator. */
import type { FencedResource } from "../../../src/api/fencedresource.ts";
import type { FencedSequence } from "../../../src/api/fencedsequence.ts";
import type { LeaseObject } from "../../../src/api/lease.ts";
import { leaseAnnotations, leaseName, resourceLabel, sequenceName } from "../../../src/api/names.ts";
import { resourceSpec } from "../../../src/api/resourcespec.ts";
import type { Boundaries } from "../../../src/boundary/guard.ts";
import { makeBoundaries } from "../../../src/boundary/registry.ts";
import { type Controller, makeController } from "../../../src/controller/controller.ts";
import {
  forced,
  grant,
  type HolderId,
  type HolderNote,
  type LeaseChange,
  type LeaseView,
  released,
  renewed,
  spend,
} from "../../../src/core/lease.ts";
import type { Token } from "../../../src/core/token.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import type { Happening } from "../../../src/kube/events.ts";
import { fencedResourceKind, fencedSequenceKind, leaseKind, namespaceKind } from "../../../src/kube/kinds.ts";
import { type FencedLease, makeLeases } from "../../../src/kube/leases.ts";
import { makeReflector } from "../../../src/kube/reflector.ts";
import type { WriteResult } from "../../../src/kube/types.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { makeMetrics } from "../../../src/runtime/metrics.ts";
import type { ResourceKey } from "../../../src/store/port.ts";
import { makeStatusStore } from "../../../src/store/status.ts";
import { makeFakeClock, makeFakeRandom } from "../../support/clock.ts";
import { makeMemApi } from "../../support/memapi/memapi.ts";

export const issuer = "this-cluster";
export const namespace = "shop";
export const name = "orders";
export const key: ResourceKey = `${namespace}/${name}`;
const ref = { namespace, name };

const done = <T>(result: WriteResult<T>): T => {
  if (result.outcome !== "ok") throw new Error(JSON.stringify(result));
  return result.object;
};

export type World = Awaited<ReturnType<typeof makeWorld>>;

/** One process: its watches, and a controller that leads as long as the test wants. */
export interface Process {
  controller: Controller;
  told: Happening[];
  metrics: ReturnType<typeof makeMetrics>;
  lead(): void;
  /** Leadership ends; resolves when all that ran has ended. */
  depose(): Promise<void>;
  stop(): Promise<void>;
}

export const makeWorld = async () => {
  const clock = makeFakeClock();
  const random = makeFakeRandom(7);
  const api = makeMemApi({ clock, random });
  const client = makeKubeClient(api.transport({ name: "people" }));
  done(await client.create(namespaceKind, { metadata: { name: namespace } }));
  const leases = makeLeases(client);
  const store = makeStatusStore({ client, issuer, clock, random });

  /** Lets time pass in steps until it is so; throws after `limitMs`. */
  const until = async (what: string, check: () => boolean | Promise<boolean>, limitMs = 30_000) => {
    for (let passed = 0; passed <= limitMs; passed += 50) {
      if (await check()) return;
      await clock.advance(50);
    }
    throw new Error(`not so within ${limitMs} ms: ${what}`);
  };

  const read = async (): Promise<FencedResource> => {
    const found = await client.get(fencedResourceKind, ref);
    if (found.outcome === "absent") throw new Error("no FencedResource");
    return found.object;
  };
  const status = async () => (await read()).status;
  const condition = async (type: string) =>
    (await status())?.conditions?.find((condition) => condition.type === type);
  const lease = async (): Promise<FencedLease> => {
    const found = await leases.get(ref);
    if (found === undefined) throw new Error("no Lease");
    return found;
  };
  const change = async (make: (view: LeaseView) => LeaseChange): Promise<LeaseView> => {
    const now = await lease();
    return done(await leases.write(ref, now, make(now.view))).view;
  };

  const start = (
    processName: string,
    { boundaries = makeBoundaries({}), leading = true }: { boundaries?: Boundaries; leading?: boolean } = {},
  ): Process => {
    const transport = api.transport({ name: processName });
    const own = makeKubeClient(transport);
    const watched = { transport, clock, random, log: silentLogger };
    const told: Happening[] = [];
    const metrics = makeMetrics({ perResource: true });
    const resources = makeReflector<FencedResource>({
      ...watched,
      kind: fencedResourceKind,
      onChange: ({ object }) => controller.changed(`${object.metadata.namespace}/${object.metadata.name}`),
    });
    const leaseCache = makeReflector<LeaseObject>({
      ...watched,
      kind: leaseKind,
      labelSelector: resourceLabel,
      onChange: ({ object: { metadata } }) =>
        controller.changed(
          `${metadata.namespace ?? ""}/${metadata.annotations?.[leaseAnnotations.resource]}`,
        ),
      onRegressed: () => controller.regressed(),
    });
    const sequences = makeReflector<FencedSequence>({
      ...watched,
      kind: fencedSequenceKind,
      onChange: ({ object }) => controller.changed(object.spec.resource as ResourceKey),
    });
    const ownStore = makeStatusStore({ client: own, issuer, clock, random });
    const controller = makeController({
      client: own,
      leases: makeLeases(own),
      storeOf: ({ store: kind }) => (kind === "Status" ? ownStore : undefined),
      boundaries,
      events: { record: (happening) => void told.push(happening) },
      issuer,
      caches: { resources, leases: leaseCache, sequences },
      clock,
      random,
      log: silentLogger,
      metrics,
    });
    const watches = new AbortController();
    const running = [resources, leaseCache, sequences].map((reflector) => reflector.start(watches.signal));
    let leadership = new AbortController();
    let work: Promise<void> | undefined;
    const process: Process = {
      controller,
      told,
      metrics,
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
    if (leading) process.lead();
    return process;
  };

  return {
    clock,
    api,
    client,
    leases,
    store,
    start,
    until,
    read,
    status,
    condition,
    lease,
    change,
    ready: (limitMs?: number) =>
      until("Ready", async () => (await condition("Ready"))?.status === "True", limitMs),

    async apply(spec: object = {}): Promise<FencedResource> {
      const found = await client.get(fencedResourceKind, ref);
      if (found.outcome === "found") return done(await client.patch(fencedResourceKind, ref, { spec }));
      const object = fencedResourceKind.parse({
        metadata: { ...ref, uid: "-", resourceVersion: "-" },
        spec: {
          lease: { durationSeconds: 15, lockDelaySeconds: 0 },
          tokens: { store: "Status", reserve: 64, floor: "0" },
          boundary: { type: "None", advance: "OnGrant" },
          ...spec,
        },
      });
      return done(await client.create(fencedResourceKind, { ...object, metadata: ref }));
    },

    async remove(): Promise<void> {
      done(await client.remove(fencedResourceKind, ref, {}));
    },

    async removeLease(): Promise<void> {
      done(await client.remove(leaseKind, { namespace, name: leaseName(name) }, {}));
    },

    async removeSequence(): Promise<void> {
      done(await client.remove(fencedSequenceKind, { name: sequenceName(key) }, {}));
    },

    async sequence(): Promise<FencedSequence> {
      const found = await client.get(fencedSequenceKind, { name: sequenceName(key) });
      if (found.outcome === "absent") throw new Error("no FencedSequence");
      return found.object;
    },

    /** Puts a foreign status into the sequence. */
    async writeSequence(status: Partial<NonNullable<FencedSequence["status"]>>): Promise<void> {
      const found = await client.get(fencedSequenceKind, { name: sequenceName(key) });
      if (found.outcome === "absent" || found.object.status === undefined) throw new Error("no sequence");
      const { object } = found;
      done(
        await client.updateStatus(fencedSequenceKind, {
          ...object,
          status: { ...found.object.status, ...status },
        }),
      );
    },

    /** As the coordinator grants: credit first, else a block above it. */
    async grant(attempt: HolderId, note?: HolderNote): Promise<Token> {
      const resource = resourceSpec(await read());
      const now = await lease();
      const next = spend(now.view, resource.floor);
      let tokens: { token: Token; ceiling: Token };
      if (next.kind === "spend") tokens = next;
      else {
        const block = await store.reserve(key, resource.reserve, next.atLeast);
        if (block.outcome !== "reserved") throw new Error(JSON.stringify(block));
        tokens = { token: (block.base + 1n) as Token, ceiling: block.ceiling };
      }
      const view = grant(now.view, attempt, tokens, resource.durationSeconds, clock.wall(), note);
      done(await leases.write(ref, now, view));
      return tokens.token;
    },
    renew: () => change((view) => renewed(view, view.durationSeconds ?? 15, clock.wall())),
    release: () => change((view) => released(view, clock.wall())),
    force: (why: string) => change((view) => forced(view, why, clock.wall())),

    reasons: (process: Process) => process.told.map(({ reason }) => reason),
    note: (process: Process, reason: string) =>
      process.told.filter((happening) => happening.reason === reason).map(({ note }) => note),
    writes(client: string, since = 0): Record<string, number> {
      return Object.fromEntries(
        Object.entries(api.counts({ client, since })).filter(([what]) => !what.startsWith("get ")),
      );
    },
    mark: () => api.seen.length,
  };
};
