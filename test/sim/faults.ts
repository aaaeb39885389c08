/** What each fault of a plan does to the world, and what mends it. */
import { leaderLease, leaseName, systemNamespace } from "../../src/api/names.ts";
import { fencedResourceKind, leaseKind, namespaceKind } from "../../src/kube/kinds.ts";
import type { Snapshot } from "../support/memapi/history.ts";
import type { Fault } from "./plan.ts";
import { namespace, type Sim, type SimResource } from "./sim.ts";

/** Snapshots of what can be put back, taken every so often. */
export interface Backups {
  take(): void;
  api(backMs: number): Snapshot | undefined;
  boundary(
    resource: SimResource,
    backMs: number,
  ): ReturnType<SimResource["boundaries"][number]["snapshot"]> | undefined;
}

export const makeBackups = ({ time, api, resources }: Sim): Backups => {
  const kept: {
    at: number;
    api: Snapshot;
    states: Map<string, ReturnType<SimResource["boundaries"][number]["snapshot"]>>;
  }[] = [];
  const before = (backMs: number) => kept.findLast(({ at }) => at <= time.now() - backMs) ?? kept[0];
  return {
    take() {
      const states = new Map(
        resources.flatMap(({ boundaries }) =>
          boundaries.map((each) => [each.name, each.snapshot()] as const),
        ),
      );
      kept.push({ at: time.now(), api: api.snapshot(), states });
    },
    api: (backMs) => before(backMs)?.api,
    boundary: ({ boundaries }, backMs) => before(backMs)?.states.get(boundaries.at(-1)?.name ?? ""),
  };
};

type Mend = () => void;

const removeLease = (sim: Sim, resource: SimResource | undefined): void => {
  if (resource === undefined) return;
  sim.disrupted("delete", resource);
  void sim.admin.remove(leaseKind, { namespace, name: leaseName(resource.plan.name) }, {});
};

/** Makes it happen now. What lasts is mended by `after`, or by the end of all faults, whichever comes first. */
export const inflict = (
  sim: Sim,
  backups: Backups,
  fault: Fault,
  after: (ms: number, mend: Mend) => void,
): void => {
  const { api, admin, slots, workers, resources } = sim;
  const resourceOf = (index: number) => resources[index];
  const actorOf = (who: "replica" | "worker", index: number) =>
    who === "replica" ? slots[index]?.actor : workers[index]?.actor();

  switch (fault.kind) {
    case "pause": {
      const actor = actorOf(fault.who, fault.index);
      actor?.pause();
      return after(fault.forMs, () => actor?.resume());
    }
    case "crash": {
      const { index, who, when, restartMs } = fault;
      if (who === "worker") {
        workers[index]?.kill();
        return after(restartMs, () => workers[index]?.restart());
      }
      const crash = () => {
        sim.killReplica(index);
        after(restartMs, () => sim.reviveReplica(index));
      };
      const slot = slots[index];
      if (when === "now" || slot === undefined) return crash();
      slot.trap = { when, spring: crash };
      return after(20_000, () => {
        slot.trap = undefined;
      });
    }
    case "trouble": {
      const way = {
        "replica-api": slots[fault.index]?.apiWay,
        replica: slots[fault.index]?.way,
        worker: workers[fault.index]?.way,
        "worker-boundary": workers[fault.index]?.boundaryWay,
        boundary: resources[fault.index]?.way,
        store: sim.storeWay,
        api: sim.apiWay,
      }[fault.on];
      const mend = way?.add(fault.trouble);
      // Nobody listens: watches break as well.
      if (fault.on === "api" && fault.trouble.refused === true) api.watches.cut();
      return after(fault.forMs, () => mend?.());
    }
    case "hold": {
      const way = {
        "replica-api": slots[fault.index]?.apiWay,
        worker: workers[fault.index]?.way,
        "worker-boundary": workers[fault.index]?.boundaryWay,
      }[fault.on];
      const held = Promise.withResolvers<void>();
      way?.hold(fault.phase, held.promise);
      return after(fault.forMs, () => held.resolve());
    }
    case "wall":
      return actorOf(fault.who, fault.index)?.jump(fault.ms);
    case "rate": {
      const actor = actorOf(fault.who, fault.index);
      actor?.setRate(fault.rate);
      return after(fault.forMs, () => actor?.setRate(1));
    }
    case "watches": {
      const name = slots[fault.index]?.actor.name;
      if (fault.how === "silent") return api.watches.silence(name);
      if (fault.how === "compacted") api.compact();
      return api.watches.cut(name);
    }
    case "force":
      return void sim.force(resourceOf(fault.resource));
    case "delete-lease":
      return removeLease(sim, resourceOf(fault.resource));
    case "delete-resource": {
      const resource = resourceOf(fault.resource);
      if (resource === undefined) return;
      void admin.remove(fencedResourceKind, { namespace, name: resource.plan.name }, {});
      return after(fault.againMs, () => void sim.apply(resource));
    }
    case "delete-namespace":
      sim.disrupted("delete");
      void admin.remove(namespaceKind, { name: namespace }, {});
      return after(fault.againMs, () => void sim.again());
    case "edit-lease": {
      const resource = resourceOf(fault.resource);
      if (resource === undefined) return;
      void sim.edit(resource, fault.how);
      // What we do not read as ours we leave alone: people have to take it away.
      if (fault.how === "format" || fault.how === "unlabelled")
        after(8_000, () => removeLease(sim, resource));
      return;
    }
    case "spec": {
      const resource = resourceOf(fault.resource);
      if (resource === undefined) return;
      const { spec } = resource;
      if (fault.change === "boundary") sim.addBoundary(resource);
      if (fault.change === "floor") spec.floor += 100n;
      if (fault.change === "duration") spec.durationSeconds = spec.durationSeconds === 6 ? 9 : 6;
      if (fault.change === "suspend") {
        spec.suspend = true;
        after(fault.forMs, () => {
          spec.suspend = false;
          void sim.apply(resource);
        });
      }
      return void sim.apply(resource);
    }
    case "etcd-restore": {
      const snapshot = backups.api(fault.backMs);
      if (snapshot === undefined) return;
      sim.disrupted("restore");
      if (!fault.noticed) for (const index of slots.keys()) sim.killReplica(index);
      api.restore(snapshot);
      return after(500, () => {
        for (const index of slots.keys()) sim.reviveReplica(index);
      });
    }
    case "boundary-restart":
      return resources[fault.resource]?.boundaries.at(-1)?.restart();
    case "boundary-restore": {
      const resource = resourceOf(fault.resource);
      const state = resource === undefined ? undefined : backups.boundary(resource, fault.backMs);
      if (state !== undefined) resource?.boundaries.at(-1)?.restore(state);
      return;
    }
    case "roll":
      return sim.roll(fault.index);
    case "second-leader":
      // Until the next renewal of the one that led.
      return void admin.remove(leaseKind, { namespace: systemNamespace, name: leaderLease }, {});
    default: {
      const never: never = fault;
      return never;
    }
  }
};
