/** A controller on an API server in memory, in time that the test moves, and somebody who acts as the coordinator. */
import type { FencedResource, FencedResourceStatus } from "../../../src/api/fencedresource.ts";
import type { FencedSequence } from "../../../src/api/fencedsequence.ts";
import { leaseName, sequenceName } from "../../../src/api/names.ts";
import type { Boundaries } from "../../../src/boundary/guard.ts";
import { makeBoundaries } from "../../../src/boundary/registry.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import type { Happening } from "../../../src/kube/events.ts";
import { fencedResourceKind, fencedSequenceKind, leaseKind, namespaceKind } from "../../../src/kube/kinds.ts";
import type { ResourceKey } from "../../../src/store/port.ts";
import { makeActor, written } from "../../support/actor.ts";
import { makeFakeClock, makeFakeRandom } from "../../support/clock.ts";
import { type ControllerProcess, startController } from "../../support/controller.ts";
import { makeMemApi } from "../../support/memapi/memapi.ts";

const issuer = "this-cluster";
export const namespace = "shop";
export const name = "orders";
export const key: ResourceKey = `${namespace}/${name}`;
const ref = { namespace, name };

export type World = Awaited<ReturnType<typeof makeWorld>>;

/** One process, and the events that it told. */
export interface Process extends ControllerProcess {
  told: Happening[];
}

export const makeWorld = async () => {
  const clock = makeFakeClock();
  const random = makeFakeRandom(7);
  const api = makeMemApi({ clock, random });
  const client = makeKubeClient(api.transport({ name: "people" }));
  written(await client.create(namespaceKind, { metadata: { name: namespace } }));
  const actor = makeActor({ client, clock, random, issuer }, ref);

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
  const status = async (): Promise<FencedResourceStatus | undefined> => (await read()).status;
  const condition = async (type: string) =>
    (await status())?.conditions?.find((condition) => condition.type === type);
  const sequence = async (): Promise<FencedSequence> => {
    const found = await client.get(fencedSequenceKind, { name: sequenceName(key) });
    if (found.outcome === "absent") throw new Error("no FencedSequence");
    return found.object;
  };

  const start = (
    process: string,
    { boundaries = makeBoundaries({}), leading = true }: { boundaries?: Boundaries; leading?: boolean } = {},
  ): Process => {
    const told: Happening[] = [];
    const events = { record: (happening: Happening) => void told.push(happening) };
    const transport = api.transport({ name: process });
    const controller = startController({ transport, clock, random, events, issuer, boundaries });
    if (leading) controller.lead();
    return { ...controller, told };
  };

  return {
    ...actor,
    clock,
    api,
    client,
    start,
    until,
    read,
    status,
    condition,
    sequence,
    ready: (limitMs?: number) =>
      until("Ready", async () => (await condition("Ready"))?.status === "True", limitMs),

    async apply(spec: object = {}): Promise<FencedResource> {
      const found = await client.get(fencedResourceKind, ref);
      if (found.outcome === "found") return written(await client.patch(fencedResourceKind, ref, { spec }));
      const object = fencedResourceKind.parse({ metadata: { ...ref, uid: "-", resourceVersion: "-" }, spec });
      return written(await client.create(fencedResourceKind, { ...object, metadata: ref }));
    },
    async remove(): Promise<void> {
      written(await client.remove(fencedResourceKind, ref, {}));
    },
    async removeLease(): Promise<void> {
      written(await client.remove(leaseKind, { namespace, name: leaseName(name) }, {}));
    },
    async removeSequence(): Promise<void> {
      written(await client.remove(fencedSequenceKind, { name: sequenceName(key) }, {}));
    },
    /** Puts a foreign status into the sequence. */
    async writeSequence(change: Partial<NonNullable<FencedSequence["status"]>>): Promise<void> {
      const object = await sequence();
      if (object.status === undefined) throw new Error("the sequence is not open");
      const draft = { ...object, status: { ...object.status, ...change } };
      written(await client.updateStatus(fencedSequenceKind, draft));
    },

    reasons: (process: Process) => process.told.map(({ reason }) => reason),
    note: (process: Process, reason: string) =>
      process.told.filter((happening) => happening.reason === reason).map(({ note }) => note),
    writes: (client: string, since = 0): Record<string, number> =>
      Object.fromEntries(
        Object.entries(api.counts({ client, since })).filter(([what]) => !what.startsWith("get ")),
      ),
    mark: () => api.seen.length,
  };
};
