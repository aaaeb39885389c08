/** Those who use a resource: the shipped holder loop, and an application on top of it that may behave or not. */
import { type HolderId, holderId } from "../../src/core/lease.ts";
import type { Token } from "../../src/core/token.ts";
import { type CoordinatorClient, makeCoordinatorClient } from "../../src/holder/client.ts";
import { type Holder, makeHolder } from "../../src/holder/holder.ts";
import type { Random } from "../../src/runtime/clock.ts";
import { silentLogger } from "../../src/runtime/logger.ts";
import { makeFakeRandom } from "../support/clock.ts";
import type { WaitEvent } from "../support/histories/history.ts";
import type { DurableBoundary } from "./boundary.ts";
import { makeSimHttp, type Replica } from "./face.ts";
import type { Network, Way } from "./network.ts";
import type { Turn } from "./plan.ts";
import type { Recorder } from "./recorder.ts";
import { type Actor, makeActor, type TrueTime } from "./time.ts";
import { limited } from "./ways.ts";

export interface WorkerDeps {
  time: TrueTime;
  network: Network;
  recorder: Recorder;
  replicas: () => Replica[];
  /** Where the effects of a resource go now, and the way there; undefined: nowhere that compares tokens. */
  boundaryOf: (resource: string) => { boundary: DurableBoundary; way: Way } | undefined;
}

export interface WorkerOptions {
  name: string;
  resource: string;
  startMs: number;
  rate: number;
  turns: Turn[];
  /** Of its jitter. */
  seed: number;
}

export interface Worker {
  actor(): Actor;
  /** To the coordinators. */
  way: Way;
  /** To boundaries. */
  boundaryWay: Way;
  kill(): void;
  /** A new process with what was left to do. */
  restart(): void;
}

const writeMs = 8_000;

/** One process of a worker: the shipped client and loop on a clock and a way of its own, and a hand that writes. */
export interface Station {
  actor: Actor;
  identity: string;
  client: CoordinatorClient;
  holder: Holder;
  random: Random;
  /** Never throws: what became of it is in the boundary. The answer, where there was one. */
  write(attempt: HolderId, token: bigint, transactionMs?: number): Promise<string>;
}

export const makeStation = (
  deps: WorkerDeps,
  {
    name,
    resource,
    rate,
    seed,
    way,
    boundaryWay,
  }: { name: string; resource: string; rate: number; seed: number; way: Way; boundaryWay: Way },
): Station => {
  const { time, network, recorder, replicas } = deps;
  const actor = makeActor(time, { name, rate });
  const dice = makeFakeRandom(seed);
  let uuids = 0;
  const random: Random = { uuid: () => `${name}-${++uuids}`, float: () => dice.float() };
  const identity = `pod:${name}`;
  const http = makeSimHttp(
    { network, recorder, replicas },
    { actor, way, identity, pick: () => random.float() },
  );
  const client = makeCoordinatorClient({ http, clock: actor.clock });
  return {
    actor,
    identity,
    client,
    random,
    holder: makeHolder({ client, clock: actor.clock, random, log: silentLogger }),
    async write(attempt, given, transactionMs = 0) {
      const token = given as Token;
      const target = deps.boundaryOf(resource);
      if (target === undefined) return "nowhere";
      const ways = [boundaryWay, target.way];
      const { boundary } = target;
      const send = <T>(serve: () => Promise<T>) =>
        limited(
          actor,
          writeMs,
          undefined,
          network.carry(ways, undefined, serve),
          () => new Error("no answer"),
        );
      try {
        if (transactionMs === 0)
          return await send(async () => {
            const entered = await boundary.enter(token, attempt);
            return typeof entered === "string" ? entered : boundary.commit(entered);
          });
        const entered = await send(() => boundary.enter(token, attempt));
        if (typeof entered === "string") return entered;
        await actor.clock.sleep(transactionMs);
        return await send(async () => boundary.commit(entered));
      } catch {
        return "no answer";
      }
    },
  };
};

export const makeWorker = (deps: WorkerDeps, options: WorkerOptions): Worker => {
  const { time, network, recorder } = deps;
  const { name, resource, rate } = options;
  const way = network.way();
  const boundaryWay = network.way();
  const turns = [...options.turns];
  let incarnation = 0;
  let actor: Actor;
  let wait: WaitEvent | undefined;

  const start = (delayMs: number): void => {
    incarnation += 1;
    const seed = options.seed + incarnation;
    const station = makeStation(deps, {
      name: `${name}.${incarnation}`,
      resource,
      rate,
      seed,
      way,
      boundaryWay,
    });
    const { actor: self, identity, holder, random } = station;
    actor = self;

    const run = async () => {
      await self.clock.sleep(delayMs);
      for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
        await self.clock.sleep(turn.thinkMs);
        const attempt = random.uuid();
        const waited: WaitEvent = recorder.note({
          kind: "wait",
          resource,
          attempt: holderId(identity, attempt),
          start: recorder.stamp(),
          end: undefined,
        });
        wait = waited;
        const { waitMs } = turn;
        const holding = holder.hold({ resource, attempt, ...(waitMs !== undefined && { waitMs }) });
        const end = await holding.granted;
        waited.end = recorder.stamp();
        if (end.kind === "granted") {
          const me = holderId(identity, attempt);
          let { stale } = turn;
          for (const { afterMs, transactionMs } of turn.effects) {
            await self.clock.sleep(afterMs);
            if (holding.view().state !== "held" && stale-- <= 0) break;
            await station.write(me, end.token, transactionMs);
          }
          if (turn.end === "crash") {
            self.kill();
            time.at(time.now() + 500, () => {
              if (actor === self) start(0);
            });
            return;
          }
          if (turn.end === "abandon") {
            self.kill();
            return;
          }
          // Late writes of one that does not know when to stop.
          await holding.release();
          for (; stale > 0; stale -= 1) {
            await self.clock.sleep(700);
            await station.write(me, end.token);
          }
        } else await holding.release();
      }
    };
    void run();
  };

  start(options.startMs);
  return {
    actor: () => actor,
    way,
    boundaryWay,
    kill() {
      actor.kill();
      if (wait !== undefined && wait.end === undefined) wait.end = recorder.stamp();
    },
    restart() {
      if (actor.dead()) start(0);
    },
  };
};
