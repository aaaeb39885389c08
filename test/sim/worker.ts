/** Those who use a resource: the shipped holder loop, and an application on top of it that may behave or not. */
import { type HolderId, holderId } from "../../src/core/lease.ts";
import type { Token } from "../../src/core/token.ts";
import { makeCoordinatorClient } from "../../src/holder/client.ts";
import { makeHolder } from "../../src/holder/holder.ts";
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

export const makeWorker = (deps: WorkerDeps, options: WorkerOptions): Worker => {
  const { time, network, recorder, replicas } = deps;
  const { name, resource, rate } = options;
  const way = network.way();
  const boundaryWay = network.way();
  const turns = [...options.turns];
  let incarnation = 0;
  let actor: Actor;
  let wait: WaitEvent | undefined;

  const write = async (by: Actor, attempt: HolderId, token: Token, transactionMs: number): Promise<void> => {
    const target = deps.boundaryOf(resource);
    if (target === undefined) return;
    const ways = [boundaryWay, target.way];
    const { boundary } = target;
    const send = <T>(serve: () => Promise<T>) =>
      limited(by, writeMs, undefined, network.carry(ways, undefined, serve), () => new Error("no answer"));
    try {
      if (transactionMs === 0) {
        await send(async () => {
          const entered = await boundary.enter(token, attempt);
          return typeof entered === "string" ? entered : boundary.commit(entered);
        });
        return;
      }
      const entered = await send(() => boundary.enter(token, attempt));
      if (typeof entered === "string") return;
      await by.clock.sleep(transactionMs);
      await send(async () => boundary.commit(entered));
    } catch {
      // What became of it is in the boundary; this application does not ask.
    }
  };

  const start = (delayMs: number): void => {
    incarnation += 1;
    const self = makeActor(time, { name: `${name}.${incarnation}`, rate });
    actor = self;
    let uuids = 0;
    const dice = makeFakeRandom(options.seed + incarnation);
    const random: Random = {
      uuid: () => `${self.name}-${++uuids}`,
      float: () => dice.float(),
    };
    const identity = `pod:${self.name}`;
    const http = makeSimHttp(
      { network, recorder, replicas },
      { actor: self, way, identity, pick: () => random.float() },
    );
    const client = makeCoordinatorClient({ http, clock: self.clock });
    const holder = makeHolder({ client, clock: self.clock, random, log: silentLogger });

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
            await write(self, me, end.token, transactionMs);
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
            await write(self, me, end.token, 0);
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
