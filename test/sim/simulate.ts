/** One seed, one run: the plan carried out, the history judged. */
import { createHash } from "node:crypto";
import { checkHistory } from "../support/histories/check.ts";
import { ofKind, type HistoryEvent, type Violation } from "../support/histories/history.ts";
import { inflict, makeBackups } from "./faults.ts";
import { evictMs } from "./boundary.ts";
import { type Fault, type Plan, planOf } from "./plan.ts";
import { makeSim, type Sim } from "./sim.ts";

export interface SimulateOptions {
  seed: number;
  /** Instead of those that the seed leads to. */
  faults?: readonly Fault[];
}

export interface Counts {
  /** Calls to coordinators, and effects. */
  operations: number;
  granted: number;
  renewed: number;
  released: number;
  forced: number;
  takeovers: number;
  accepted: number;
  /** Effects under a token that was not the newest any more, and what became of them: refused, all of them. */
  staleRefused: number;
  requests: number;
  virtualMs: number;
}

export interface Simulated {
  seed: number;
  /** Of everything that happened, in order. */
  traceHash: string;
  violations: Violation[];
  counts: Counts;
  schedule: readonly Fault[];
  history: readonly HistoryEvent[];
}

const text = (_key: string, value: unknown): unknown =>
  typeof value === "bigint" ? value.toString() : value;

const countsOf = (history: readonly HistoryEvent[], sim: Sim): Counts => {
  const done = (kind: "renew" | "release" | "force") =>
    ofKind(history, kind).filter(({ outcome }) => outcome === "done").length;
  const effects = ofKind(history, "effect");
  const calls = history.filter(({ kind }) => ["acquire", "renew", "release", "force"].includes(kind)).length;
  return {
    operations: calls + effects.length,
    granted: ofKind(history, "acquire").filter(({ outcome }) => outcome === "granted").length,
    renewed: done("renew"),
    released: done("release"),
    forced: done("force"),
    takeovers: new Set(ofKind(history, "commit").map(({ lease }) => `${lease?.holder} ${lease?.token}`)).size,
    accepted: effects.filter(({ outcome }) => outcome === "accepted").length,
    staleRefused: effects.filter(({ outcome }) => outcome === "refused").length,
    requests: sim.api.seen.length,
    virtualMs: sim.time.now(),
  };
};

/** Somebody who wants each resource once everything is mended. */
const probe = (resource: number): Plan["workers"][number] => ({
  resource,
  startMs: 0,
  rate: 1,
  turns: [0, 1].map(() => ({
    thinkMs: 100,
    waitMs: undefined,
    effects: [{ afterMs: 50, transactionMs: 0 }],
    stale: 0,
    end: "release",
  })),
});

/** Beyond the duration: answers, the jitter of those who meet, and an advance that waits for a transaction to end. */
const slackMs = 1_000 + evictMs + 1_000;

/** Lets all that was mended settle; then somebody wants each resource, and must get it. */
const calm = async ({ plan, time, recorder, resources, addWorker }: Sim, start: number): Promise<void> => {
  await time.run(start);
  for (const [index, { plan: of, key, spec }] of resources.entries()) {
    addWorker(`p${index}`, probe(index));
    const boundMs = (spec.durationSeconds + of.lockDelaySeconds) * 1000 + slackMs;
    recorder.note({ kind: "calm", resource: key, start, end: plan.endMs, boundMs });
  }
};

export const simulate = async ({ seed, faults }: SimulateOptions): Promise<Simulated> => {
  const plan = planOf(seed);
  const schedule = faults ?? plan.faults;
  const sim = await makeSim(plan);
  const { time, recorder } = sim;
  const backups = makeBackups(sim);
  const mends = new Set<() => void>();
  for (let at = 1_000; at < plan.healAtMs; at += 2_500) time.at(at, () => backups.take());
  for (const fault of schedule)
    time.at(fault.atMs, () =>
      inflict(sim, backups, fault, (ms, mend) => {
        const once = () => {
          if (mends.delete(once)) mend();
        };
        mends.add(once);
        time.at(time.now() + ms, once);
      }),
    );
  await time.run(plan.healAtMs);
  for (const mend of mends) mend();
  await time.run(plan.healAtMs + 1);
  for (const index of sim.slots.keys()) sim.reviveReplica(index);
  if (plan.calmAtMs !== undefined) await calm(sim, plan.calmAtMs);
  await time.run(plan.endMs);
  const { history } = recorder;
  const hash = createHash("sha256");
  for (const event of history) hash.update(JSON.stringify(event, text));
  hash.update(String(sim.api.seen.length));
  const fastest = schedule.some(({ kind }) => kind === "rate") ? 2 : 1.05;
  return {
    seed,
    traceHash: hash.digest("hex").slice(0, 32),
    violations: checkHistory(history, { fastest }),
    counts: countsOf(history, sim),
    schedule,
    history,
  };
};
