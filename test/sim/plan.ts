/** All of a run, decided by its seed before it begins: who takes part, what they do, and what goes wrong when. */
import { makeFakeRandom } from "../support/clock.ts";
import type { Trouble } from "./network.ts";

export interface ResourcePlan {
  name: string;
  durationSeconds: number;
  lockDelaySeconds: number;
  reserve: number;
  boundary: "OnGrant" | "OnFirstWrite" | "None";
}

/** One acquisition of a worker. */
export interface Turn {
  thinkMs: number;
  /** Undefined: as long as it takes. */
  waitMs: number | undefined;
  effects: { afterMs: number; transactionMs: number }[];
  /** How many more times it writes after the loss of its right; 0 behaves. */
  stale: number;
  end: "release" | "crash" | "abandon";
}

export interface WorkerPlan {
  resource: number;
  startMs: number;
  rate: number;
  turns: Turn[];
}

/** `replica` and `worker`: index. Times in milliseconds; `forMs` is how long it lasts. */
export type Fault = { atMs: number } & (
  | { kind: "pause"; who: "replica" | "worker"; index: number; forMs: number }
  | {
      kind: "crash";
      who: "replica" | "worker";
      index: number;
      /** At once, or when its next request to the API server is on its way there, or its answer on its way back. */
      when: "now" | "there" | "back";
      restartMs: number;
    }
  | {
      kind: "trouble";
      on: "replica-api" | "replica" | "worker" | "worker-boundary" | "boundary" | "store" | "api";
      index: number;
      trouble: Partial<Trouble>;
      forMs: number;
    }
  | {
      kind: "hold";
      on: "replica-api" | "worker" | "worker-boundary";
      index: number;
      phase: "there" | "back";
      forMs: number;
    }
  | { kind: "wall"; who: "replica" | "worker"; index: number; ms: number }
  | { kind: "rate"; who: "replica" | "worker"; index: number; rate: number; forMs: number }
  | { kind: "watches"; index: number; how: "cut" | "silent" | "compacted" }
  | { kind: "force"; resource: number }
  | { kind: "delete-lease"; resource: number }
  | { kind: "delete-resource"; resource: number; againMs: number }
  | { kind: "delete-namespace"; againMs: number }
  | {
      kind: "edit-lease";
      resource: number;
      how: "holder" | "nobody" | "time" | "lower" | "void" | "unlabelled" | "format";
    }
  | { kind: "spec"; resource: number; change: "floor" | "duration" | "suspend" | "boundary"; forMs: number }
  /** `noticed`: watches break and show it. Otherwise all replicas are new at the same moment. */
  | { kind: "etcd-restore"; backMs: number; noticed: boolean }
  | { kind: "boundary-restart"; resource: number }
  | { kind: "boundary-restore"; resource: number; backMs: number }
  | { kind: "roll"; index: number }
  | { kind: "second-leader" }
);

export interface Plan {
  seed: number;
  replicas: { rate: number; leads: "elected" | "always" | "never" }[];
  resources: ResourcePlan[];
  workers: WorkerPlan[];
  faults: Fault[];
  /** Everything that went wrong is mended now. */
  healAtMs: number;
  /** From now on progress is owed; undefined: the run ends before that, and shows safety alone. */
  calmAtMs: number | undefined;
  endMs: number;
}

/** A fault as one line, for people. */
export const describeFault = ({ atMs, kind, ...rest }: Fault): string =>
  `${atMs} ms ${kind} ${Object.entries(rest)
    .map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
    .join(" ")}`;

type Dice = ReturnType<typeof makeDice>;

const makeDice = (seed: number) => {
  const random = makeFakeRandom(seed * 2_654_435_761);
  const float = () => random.float();
  const int = (least: number, most: number) => least + Math.floor(float() * (most - least + 1));
  return {
    float,
    int,
    chance: (share: number) => float() < share,
    pick: <T>(...options: [T, ...T[]]): T => options[int(0, options.length - 1)] ?? options[0],
    many: <T>(count: number, make: (index: number) => T): T[] =>
      Array.from({ length: count }, (_, index) => make(index)),
  };
};

const turnOf = (dice: Dice, durationMs: number): Turn => ({
  thinkMs: dice.int(0, 3_000),
  waitMs: dice.chance(0.3) ? dice.int(0, 8_000) : undefined,
  effects: dice.many(dice.int(1, 4), () => ({
    afterMs: dice.int(10, dice.chance(0.2) ? durationMs : 1_200),
    transactionMs: dice.chance(0.25) ? dice.int(1, 4_000) : 0,
  })),
  stale: dice.chance(0.6) ? dice.int(1, 3) : 0,
  end: dice.pick("release", "release", "release", "crash", "abandon"),
});

const someTrouble = (dice: Dice): Partial<Trouble> =>
  dice.pick<Partial<Trouble>>(
    { cutThere: true, cutBack: true },
    { cutThere: true },
    { cutBack: true },
    { refused: true },
    { loses: 0.3 },
    { losesAnswers: 0.4 },
    { doubles: 0.5 },
    { slowMs: dice.int(100, 4_000) },
    { loses: 0.1, losesAnswers: 0.2, doubles: 0.2, slowMs: 500 },
  );

interface Cast {
  replicas: number;
  workers: number;
  resources: ResourcePlan[];
  untilMs: number;
  /** Either history may go back in a run, but not both: nobody could mend that. */
  restores: "etcd" | "boundary" | "none";
}

const faultOf = (dice: Dice, cast: Cast): Fault => {
  const atMs = dice.int(500, cast.untilMs);
  const who = dice.pick("replica", "worker");
  const index = dice.int(0, (who === "replica" ? cast.replicas : cast.workers) - 1);
  const resource = dice.int(0, cast.resources.length - 1);
  const lasting = () => dice.int(500, dice.chance(0.5) ? 4_000 : 25_000);
  const guarded = cast.resources[resource]?.boundary === "OnGrant";
  const kind = dice.pick(
    ...([
      "pause",
      "pause",
      "crash",
      "crash",
      "crash",
      "trouble",
      "trouble",
      "trouble",
      "trouble",
      "hold",
      "hold",
    ] as const),
    ...(["wall", "rate", "watches", "force", "delete-lease", "delete-resource", "delete-namespace"] as const),
    ...(["edit-lease", "spec", "spec", "restore", "boundary-restart", "roll", "second-leader"] as const),
  );
  switch (kind) {
    case "pause":
      return { atMs, kind, who, index, forMs: lasting() };
    case "crash":
      return {
        atMs,
        kind,
        who,
        index,
        when: dice.pick("now", "there", "back"),
        restartMs: dice.int(50, 4_000),
      };
    case "trouble": {
      const on = dice.pick("replica-api", "replica", "worker", "worker-boundary", "boundary", "store", "api");
      const of = {
        "replica-api": cast.replicas,
        replica: cast.replicas,
        worker: cast.workers,
        "worker-boundary": cast.workers,
        boundary: cast.resources.length,
        store: 1,
        api: 1,
      }[on];
      return { atMs, kind, on, index: dice.int(0, of - 1), trouble: someTrouble(dice), forMs: lasting() };
    }
    case "hold": {
      const on = dice.pick("replica-api", "worker", "worker-boundary");
      const of = on === "replica-api" ? cast.replicas : cast.workers;
      const forMs = dice.chance(0.2) ? 1_000_000 : lasting();
      return { atMs, kind, on, index: dice.int(0, of - 1), phase: dice.pick("there", "back"), forMs };
    }
    case "wall":
      return { atMs, kind, who, index, ms: dice.pick(-3_600_000, 3_600_000, -1_000) };
    case "rate":
      return { atMs, kind, who, index, rate: dice.pick(0.5, 0.9, 1.1, 2), forMs: lasting() };
    case "watches":
      return {
        atMs,
        kind,
        index: dice.int(0, cast.replicas - 1),
        how: dice.pick("cut", "silent", "compacted"),
      };
    case "force":
    case "delete-lease":
      return { atMs, kind, resource };
    case "delete-resource":
      return { atMs, kind, resource, againMs: dice.int(100, 6_000) };
    case "delete-namespace":
      return { atMs, kind, againMs: dice.int(3_000, 6_000) };
    case "edit-lease": {
      // A lower token, or none, is what admission policies forbid: it takes a boundary to survive it.
      const how = guarded
        ? dice.pick("holder", "nobody", "time", "lower", "void", "unlabelled", "format")
        : dice.pick("holder", "nobody", "time", "format");
      return { atMs, kind, resource, how };
    }
    case "spec": {
      const change = dice.pick("floor", "duration", "suspend", ...(guarded ? (["boundary"] as const) : []));
      return { atMs, kind, resource, change, forMs: lasting() };
    }
    case "restore":
      if (cast.restores === "etcd")
        return { atMs, kind: "etcd-restore", backMs: dice.int(500, 15_000), noticed: dice.chance(0.5) };
      if (cast.restores === "boundary" && guarded)
        return { atMs, kind: "boundary-restore", resource, backMs: dice.int(500, 15_000) };
      return { atMs, kind: "boundary-restart", resource };
    case "boundary-restart":
      return { atMs, kind, resource };
    case "roll":
      return { atMs, kind, index: dice.int(0, cast.replicas - 1) };
    case "second-leader":
      return { atMs, kind };
    default: {
      const never: never = kind;
      return never;
    }
  }
};

/** The boundary that knows better is left for one that knows nothing. */
const isMove = (fault: Fault): boolean => fault.kind === "spec" && fault.change === "boundary";
/** The Lease forgets what it granted: only its boundary can tell, so that the two together cannot be mended. */
const isForgetting = (fault: Fault): boolean =>
  fault.kind === "etcd-restore" || (fault.kind === "edit-lease" && fault.how === "lower");

/** The plan of a seed. */
export const planOf = (seed: number): Plan => {
  const dice = makeDice(seed);
  const leads = dice.pick("elected", "elected", "elected", "all", "first");
  const replicas = dice.many(dice.pick(2, 2, 3), (index) => ({
    rate: dice.chance(0.2) ? dice.pick(0.95, 1.05) : 1,
    leads:
      leads === "elected"
        ? ("elected" as const)
        : leads === "all" || index === 0
          ? ("always" as const)
          : ("never" as const),
  }));
  const restores = dice.pick<Cast["restores"]>("etcd", "boundary", "none", "none");
  const resources = dice.many(
    dice.pick(1, 1, 2),
    (index): ResourcePlan => ({
      name: ["orders", "stock"][index] ?? `r${index}`,
      durationSeconds: dice.pick(3, 4, 6, 9),
      lockDelaySeconds: dice.pick(0, 0, 0, 3),
      reserve: dice.pick(1, 2, 4, 64),
      boundary:
        restores === "etcd" ? "OnGrant" : dice.pick("OnGrant", "OnGrant", "OnGrant", "OnFirstWrite", "None"),
    }),
  );
  const untilMs = dice.int(10_000, 25_000);
  const workers = dice.many(dice.int(2, 4), (): WorkerPlan => {
    const resource = dice.int(0, resources.length - 1);
    const durationMs = (resources[resource]?.durationSeconds ?? 6) * 1000;
    return {
      resource,
      startMs: dice.int(0, 4_000),
      rate: dice.chance(0.2) ? dice.pick(0.95, 1.05) : 1,
      turns: dice.many(dice.int(1, 4), () => turnOf(dice, durationMs)),
    };
  });
  const cast = { replicas: replicas.length, workers: workers.length, resources, untilMs, restores };
  const faults = dice
    .many(dice.chance(0.1) ? 0 : dice.int(1, 7), () => faultOf(dice, cast))
    .toSorted((a, b) => a.atMs - b.atMs)
    .filter((fault, _, all) => !(isMove(fault) && all.some(isForgetting)));
  const healAtMs = untilMs + 5_000;
  // By then the last back-off has passed, the last dead watch is noticed, and the last look at a boundary is due.
  const calmAtMs = dice.chance(0.25) ? healAtMs + 75_000 : undefined;
  const endMs = calmAtMs === undefined ? healAtMs + 5_000 : calmAtMs + 25_000;
  return { seed, replicas, resources, workers, faults, healAtMs, calmAtMs, endMs };
};
