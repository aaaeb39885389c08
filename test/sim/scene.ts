/** A world where nothing goes wrong by itself: what a scenario does to it is written in the scenario. */
import { leaseName } from "../../src/api/names.ts";
import { type HolderId, holderId } from "../../src/core/lease.ts";
import type { Holding } from "../../src/holder/holder.ts";
import { leaseKind } from "../../src/kube/kinds.ts";
import type { JsonAnswer } from "../../src/runtime/httpclient.ts";
import { readLease } from "../../src/kube/leases.ts";
import { checkHistory } from "../support/histories/check.ts";
import { serve } from "./face.ts";
import type { Plan, ResourcePlan } from "./plan.ts";
import { makeSim, namespace } from "./sim.ts";
import { makeStation } from "./worker.ts";

export const orders = `${namespace}/orders`;

const resource: ResourcePlan = {
  name: "orders",
  durationSeconds: 15,
  lockDelaySeconds: 0,
  reserve: 64,
  boundary: "OnGrant",
};

/** The first replica leads, so that the second writes nothing but what callers ask of it. */
export const makeScene = async ({
  seed = 1,
  ...more
}: Partial<ResourcePlan> & {
  seed?: number;
  replicas?: Plan["replicas"];
  /** Names of further resources. */
  more?: readonly string[];
} = {}) => {
  const {
    replicas = [
      { rate: 1, leads: "always" as const },
      { rate: 1, leads: "never" as const },
    ],
    more: others = [],
    ...of
  } = more;
  const sim = await makeSim({
    seed,
    replicas,
    resources: ["orders", ...others].map((name) => ({ ...resource, ...of, name })),
    workers: [],
    faults: [],
    healAtMs: 0,
    calmAtMs: undefined,
    endMs: 0,
  });
  const { time, network, admin, recorder } = sim;
  let stations = 0;

  const pass = (ms: number) => time.run(time.now() + ms);

  /** Lets time pass until it is so; how long that took. */
  const until = async (so: () => boolean, limitMs = 120_000): Promise<number> => {
    const start = time.now();
    while (!so()) {
      if (time.now() - start > limitMs) throw new Error(`not so within ${limitMs} ms`);
      await pass(10);
    }
    return time.now() - start;
  };

  /** What a promise comes to, time passing meanwhile. */
  const settled = async <T>(work: Promise<T>, limitMs?: number): Promise<T> => {
    const state: { value?: T; over: boolean } = { over: false };
    work.then(
      (value) => Object.assign(state, { value, over: true }),
      () => {
        state.over = true;
      },
    );
    await pass(0);
    await until(() => state.over, limitMs);
    return work;
  };

  const station = (name: string, rate = 1, resource = orders) => {
    const [way, boundaryWay] = [network.way(), network.way()];
    const seeds = seed * 100 + ++stations;
    const made = makeStation(sim.workerDeps, { name, resource, rate, seed: seeds, way, boundaryWay });
    return { ...made, way, boundaryWay };
  };

  /** Somebody with a right, or on the way to one. */
  const holder = (name: string, rate = 1, resource = orders) => {
    const made = station(name, rate, resource);
    const attempt = made.random.uuid();
    const holding: Holding = made.holder.hold({ resource, attempt });
    const me: HolderId = holderId(made.identity, attempt);
    const states: string[] = [];
    holding.subscribe(({ state }) => {
      if (states.at(-1) !== state) states.push(state);
    });
    return {
      ...made,
      attempt,
      holding,
      me,
      states,
      state: () => holding.view().state,
      async token(limitMs?: number): Promise<bigint> {
        const end = await settled(holding.granted, limitMs);
        if (end.kind !== "granted") throw new Error(`not granted: ${JSON.stringify(end)}`);
        return end.token;
      },
    };
  };

  /** A call as a replica gets it, network aside. */
  const call = (index: number, identity: string, verb: string, body: object): Promise<JsonAnswer> => {
    const found = sim.slots[index];
    if (found === undefined) throw new Error("no such replica");
    const request = {
      method: "POST",
      path: `/v1/namespaces/${namespace}/resources/orders/${verb}`,
      body,
      timeoutMs: 0,
    } as const;
    return serve(found, recorder, identity, request, new AbortController().signal);
  };

  const lease = async () => {
    const name = { namespace, name: "orders" };
    const found = await admin.get(leaseKind, { namespace, name: leaseName("orders") });
    if (found.outcome === "absent") throw new Error("no Lease");
    return { ...readLease(found.object, name).view, text: JSON.stringify(found.object) };
  };

  await pass(3_000);
  return {
    ...sim,
    pass,
    until,
    settled,
    station,
    holder,
    call,
    lease,
    boundary: () => {
      const found = sim.resources[0]?.boundaries.at(-1);
      if (found === undefined) throw new Error("no boundary");
      return found;
    },
    /** Accepted effects, oldest first. */
    accepted: () =>
      recorder.history.flatMap((event) =>
        event.kind === "effect" && event.outcome === "accepted" ? [event.token] : [],
      ),
    violations: () => checkHistory(recorder.history, { fastest: 2 }),
    slot: (index: number) => {
      const found = sim.slots[index];
      if (found === undefined) throw new Error("no such replica");
      return found;
    },
  };
};

export type Scene = Awaited<ReturnType<typeof makeScene>>;
