/** The world of one run: API server, boundaries, replicas and workers, and the levers that faults pull. */
import type { FencedResource } from "../../src/api/fencedresource.ts";
import { apiVersion, leaseAnnotations, leaseName, systemNamespace } from "../../src/api/names.ts";
import type { Boundaries } from "../../src/boundary/guard.ts";
import type { LeaseObject } from "../../src/api/lease.ts";
import { makeCoordinatorClient } from "../../src/holder/client.ts";
import { makeBoundaries } from "../../src/boundary/registry.ts";
import { makeKubeClient } from "../../src/kube/client.ts";
import { fencedResourceKind, leaseKind, namespaceKind } from "../../src/kube/kinds.ts";
import type { HttpRequest } from "../../src/kube/types.ts";
import { makeFakeRandom } from "../support/clock.ts";
import { makeMemApi } from "../support/memapi/memapi.ts";
import { type Process, startProcess } from "../support/process.ts";
import { type DurableBoundary, makeDurableBoundary } from "./boundary.ts";
import { makeSimHttp, type Replica } from "./face.ts";
import { makeNetwork, type Way } from "./network.ts";
import type { Plan, ResourcePlan } from "./plan.ts";
import { leaseCommit, makeRecorder } from "./recorder.ts";
import { type Actor, makeActor, makeTrueTime, trueClock } from "./time.ts";
import { boundaryThrough, makeSimTransport } from "./ways.ts";
import { makeWorker } from "./worker.ts";

const issuer = "this-cluster";
export const namespace = "shop";

/** What waits for the next write of one process: before it is served, or before it is answered. */
interface Trap {
  when: "there" | "back";
  resource?: string;
  spring: () => void | Promise<void>;
}

export interface ReplicaSlot extends Replica {
  process: Process;
  apiWay: Way;
  trap: Trap | undefined;
}

export type Sim = Awaited<ReturnType<typeof makeSim>>;

/** One protected thing, and where its effects go. */
export interface SimResource {
  plan: ResourcePlan;
  key: `${string}/${string}`;
  /** All boundaries that it ever had; the last one is the present one. */
  boundaries: DurableBoundary[];
  way: Way;
  spec: { suspend: boolean; durationSeconds: number; floor: bigint };
}

/** What people wrote into the FencedResource. */
const specOf = ({ plan, boundaries, spec }: SimResource) => ({
  suspend: spec.suspend,
  lease: { durationSeconds: spec.durationSeconds, lockDelaySeconds: plan.lockDelaySeconds },
  tokens: { store: "Status", reserve: plan.reserve, floor: spec.floor.toString() },
  boundary:
    plan.boundary === "None"
      ? { type: "None", advance: "OnGrant" }
      : {
          type: "PostgreSQL",
          advance: plan.boundary,
          postgresql: {
            secretRef: { name: "db" },
            tables: [{ name: boundaries.at(-1)?.name ?? "" }],
          },
        },
});

export const makeSim = async (plan: Plan) => {
  const time = makeTrueTime();
  const random = makeFakeRandom(plan.seed);
  const network = makeNetwork(time, makeFakeRandom(plan.seed ^ 0x5bd1e995));
  const recorder = makeRecorder(time);
  const boundaryNames = new Map<string, string>();
  const clock = trueClock(time);
  const api = makeMemApi({
    clock,
    random,
    onCommit(commit) {
      const event = leaseCommit(commit, recorder.stamp(), (hash) =>
        hash === undefined ? undefined : (boundaryNames.get(hash) ?? hash),
      );
      if (event !== undefined) recorder.note(event);
    },
  });
  const admin = makeKubeClient(api.transport({ name: "admin" }));
  const apiWay = network.way();
  const storeWay = network.way();

  const addBoundary = (resource: SimResource) => {
    const name = `${resource.plan.name}-${resource.boundaries.length}`;
    const onGrant = resource.plan.boundary === "OnGrant";
    resource.boundaries.push(
      makeDurableBoundary({ name, resource: resource.key, onGrant }, { time, recorder }),
    );
  };
  const resources = plan.resources.map((each): SimResource => {
    const { durationSeconds } = each;
    const spec = { suspend: false, durationSeconds, floor: 0n };
    const key = `${namespace}/${each.name}` as const;
    const resource: SimResource = { plan: each, key, boundaries: [], way: network.way(), spec };
    if (each.boundary !== "None") addBoundary(resource);
    return resource;
  });

  /** Makes it, or makes it say what it should. */
  const apply = async (resource: SimResource) => {
    const ref = { namespace, name: resource.plan.name };
    const draft = {
      apiVersion,
      kind: "FencedResource",
      metadata: ref,
      spec: specOf(resource) as FencedResource["spec"],
    };
    const made = await admin.create(fencedResourceKind, draft);
    if (made.outcome === "exists") await admin.patch(fencedResourceKind, ref, { spec: draft.spec });
  };

  const boundariesFor = (actor: Actor): Boundaries => {
    const known = makeBoundaries({
      async PostgreSQL({ name, boundary: { text } }) {
        const wanted = /"tables":\[\{"schema":"public","name":"([^"]+)"/.exec(text)?.[1];
        const resource = resources.find(({ plan }) => plan.name === name);
        const inner = resource?.boundaries.find((boundary) => boundary.name === wanted);
        if (resource === undefined || inner === undefined)
          return { kind: "unready", reason: "BoundaryNotInstalled", message: `no boundary ${wanted}` };
        const boundary = boundaryThrough({ time, network, actor }, [resource.way], inner);
        return { kind: "reached", boundary, through: inner.name };
      },
    });
    return {
      async guard(resource, leaseUid, signal) {
        const guard = await known.guard(resource, leaseUid, signal);
        const name = /"name":"([^"]+)"\}\]/.exec(resource.boundary.text)?.[1];
        if (guard.kind === "ready" && name !== undefined) boundaryNames.set(guard.hash, name);
        return guard;
      },
    };
  };

  const started = { events: 0, processes: 0 };
  const slots: ReplicaSlot[] = [];

  const startReplica = (index: number, old?: ReplicaSlot): ReplicaSlot => {
    const { rate, leads } = plan.replicas[index] ?? { rate: 1, leads: "elected" as const };
    started.processes += 1;
    const name = `r${index}.${started.processes}`;
    const actor = makeActor(time, { name, rate });
    const slotWay = old?.apiWay ?? network.way();
    const seeded = makeFakeRandom(plan.seed * 1009 + started.processes);
    const slot = {} as ReplicaSlot;
    const waysOf = ({ resource }: HttpRequest) =>
      resource.startsWith("fencedsequences") ? [slotWay, apiWay, storeWay] : [slotWay, apiWay];
    const spring = async (when: Trap["when"], request: HttpRequest) => {
      const { trap } = slot;
      if (trap?.when !== when || request.method === "GET") return;
      if ((trap.resource ?? request.resource) !== request.resource) return;
      slot.trap = undefined;
      await trap.spring();
      // What a dead process had sent, and nobody has served yet, may as well never have come.
      if (actor.dead()) await actor.gate();
    };
    const inner = api.transport({ name });
    const served = {
      source: inner.source,
      async request(request: HttpRequest) {
        await spring("there", request);
        const answer = await inner.request(request);
        await spring("back", request);
        return answer;
      },
      open: (request: HttpRequest, signal: AbortSignal) => inner.open(request, signal),
    };
    const carried = makeSimTransport({ time, network, actor }, served, waysOf);
    const transport = {
      ...carried,
      async request(request: HttpRequest, signal?: AbortSignal) {
        await actor.gate();
        return carried.request(request, signal);
      },
    };
    let ready = false;
    const process = startProcess({
      name,
      transport,
      clock: actor.clock,
      random: { ...seeded, uuid: () => `${name}-${seeded.uuid()}` },
      issuer,
      boundaries: boundariesFor(actor),
      events: { record: () => void (started.events += 1) },
      leads,
    });
    process.ready.then(
      () => {
        ready = true;
      },
      () => {},
    );
    const { coordinator } = process;
    return Object.assign(slot, {
      actor,
      way: old?.way ?? network.way(),
      coordinator,
      listens: () => ready && !actor.dead(),
      process,
      apiWay: slotWay,
      trap: undefined,
    });
  };

  const killReplica = (index: number) => {
    const slot = slots[index];
    if (slot === undefined || slot.actor.dead()) return;
    slot.actor.kill();
    api.watches.cut(slot.actor.name);
  };

  const reviveReplica = (index: number) => {
    const slot = slots[index];
    if (slot?.actor.dead() === true) slots[index] = startReplica(index, slot);
  };

  for (const name of [namespace, systemNamespace]) await admin.create(namespaceKind, { metadata: { name } });
  for (const resource of resources) await apply(resource);
  for (const index of plan.replicas.keys()) slots.push(startReplica(index));

  /** Those who are on their way out, and still serve. */
  const leaving = new Set<ReplicaSlot>();
  const replicas = () => [...slots, ...leaving];
  const boundaryOf = (key: string) => {
    const resource = resources.find((each) => each.key === key);
    const boundary = resource?.boundaries.at(-1);
    return resource === undefined || boundary === undefined ? undefined : { boundary, way: resource.way };
  };
  const workerDeps = { time, network, recorder, replicas, boundaryOf };
  let hired = 0;
  const addWorker = (name: string, { resource, ...rest }: Plan["workers"][number]) => {
    hired += 1;
    const seed = plan.seed * 31 + hired * 1000;
    return makeWorker(workerDeps, { name, resource: resources[resource]?.key ?? "", seed, ...rest });
  };
  const workers = plan.workers.map((worker, index) => addWorker(`w${index}`, worker));

  const disrupted = (what: "restore" | "delete" | "edit", resource?: SimResource) => {
    recorder.note({ kind: "disruption", resource: resource?.key, at: recorder.stamp(), what });
  };

  const operatorRandom = makeFakeRandom(plan.seed + 3);
  const operator = makeActor(time, { name: "operator" });
  const operatorHttp = makeSimHttp(
    { network, recorder, replicas },
    { actor: operator, way: network.way(), identity: "user:ann", pick: () => operatorRandom.float() },
  );
  const operatorClient = makeCoordinatorClient({ http: operatorHttp, clock: operator.clock });

  return {
    plan,
    time,
    clock,
    network,
    recorder,
    api,
    admin,
    apiWay,
    storeWay,
    resources,
    slots,
    workers,
    started,
    apply,
    addBoundary,
    addWorker,
    workerDeps,
    killReplica,
    reviveReplica,
    replicas,

    /** A new process beside the old one, which ends as on SIGTERM. */
    roll(index: number) {
      const old = slots[index];
      if (old === undefined || old.actor.dead()) return;
      slots[index] = startReplica(index, old);
      leaving.add(old);
      void old.process.stop().then(() => {
        leaving.delete(old);
        old.actor.kill();
        api.watches.cut(old.actor.name);
      });
    },

    disrupted,

    /** The operator takes it away. */
    force: (resource: SimResource | undefined) =>
      resource === undefined ? undefined : operatorClient.force(resource.key, "as planned", 10_000),

    /** The namespace and all that people had put into it. */
    async again() {
      await admin.create(namespaceKind, { metadata: { name: namespace } });
      for (const resource of resources) await apply(resource);
    },

    /** Somebody's hand in a Lease. */
    async edit(resource: SimResource, how: EditHow) {
      const found = await admin.get(leaseKind, { namespace, name: leaseName(resource.plan.name) });
      if (found.outcome === "absent") return;
      disrupted("edit", resource);
      await admin.update(leaseKind, edited(found.object, how));
    },
  };
};

type EditHow = Extract<Plan["faults"][number], { kind: "edit-lease" }>["how"];

const edited = (lease: LeaseObject, how: EditHow): LeaseObject => {
  const { metadata, spec } = lease;
  const annotations = { ...metadata.annotations };
  switch (how) {
    case "holder":
      return { ...lease, spec: { ...spec, holderIdentity: "somebody-else", leaseDurationSeconds: 3 } };
    case "nobody":
      return { ...lease, spec: { ...spec, holderIdentity: "" } };
    case "time":
      return {
        ...lease,
        spec: { ...spec, renewTime: "2020-01-01T00:00:00.000000Z", leaseDurationSeconds: 1 },
      };
    case "lower":
      annotations[leaseAnnotations.token] = "1";
      return { ...lease, metadata: { ...metadata, annotations } };
    case "void":
      delete annotations[leaseAnnotations.creditUid];
      return { ...lease, metadata: { ...metadata, annotations } };
    case "unlabelled":
      return { ...lease, metadata: { ...metadata, labels: {} } };
    case "format":
      annotations[leaseAnnotations.format] = "2";
      return { ...lease, metadata: { ...metadata, annotations } };
    default: {
      const never: never = how;
      return never;
    }
  }
};
