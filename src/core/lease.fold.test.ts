/** Decisions of core folded over whole histories: several coordinators with stale reads, one compare-and-set. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  claim,
  endedKept,
  forced,
  grant,
  grantedToken,
  type HolderId,
  holderId,
  type LeaseChange,
  type LeaseView,
  regressedBlock,
  released,
  renewal,
  renewed,
  spend,
} from "./lease.ts";
import { type WallTime, wallTime } from "./time.ts";
import { higher, noToken, type Token } from "./token.ts";

type Command =
  | { kind: "read"; replica: number }
  | { kind: "acquire"; replica: number; attempt: number; take: boolean }
  | { kind: "renew" | "release"; replica: number; attempt: number; token: "own" | "last" }
  | { kind: "force"; replica: number }
  | { kind: "delete" }
  | { kind: "floor"; by: number }
  | { kind: "clock"; by: number };

const replicas = 2;
const attempts = Array.from({ length: 12 }, (_, index) => holderId(`pod:${index}`, `attempt-${index}`));

const replica = fc.nat(replicas - 1);
const attempt = fc.nat(attempts.length - 1);
const commands: fc.Arbitrary<Command[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.record({ kind: fc.constant("read" as const), replica }) },
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant("acquire" as const), replica, attempt, take: fc.boolean() }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constantFrom("renew" as const, "release" as const),
        replica,
        attempt,
        token: fc.constantFrom("own" as const, "last" as const),
      }),
    },
    fc.record({ kind: fc.constant("force" as const), replica }),
    fc.record({ kind: fc.constant("delete" as const) }),
    fc.record({ kind: fc.constant("floor" as const), by: fc.nat(20) }),
    fc.record({ kind: fc.constant("clock" as const), by: fc.integer({ min: -5, max: 5 }) }),
  ),
  { minLength: 20, maxLength: 80, size: "max" },
);

interface Grant {
  token: Token;
  holder: HolderId;
}

/** One Lease and one sequence as a server keeps them, and what each replica last read. */
const makeStage = () => {
  let lease: LeaseView | undefined;
  let version = 0;
  let uids = 0;
  let ceiling = noToken;
  let floor = noToken;
  let now = 1_000n;
  const caches = Array.from({ length: replicas }, (): LeaseView | undefined => undefined);
  const grants: Grant[] = [];
  const flaws: string[] = [];

  const must = (holds: boolean, rule: string) => {
    if (!holds) flaws.push(`${rule} in version ${version}`);
  };

  const make = () => {
    lease ??= {
      uid: `lease-${++uids}`,
      resourceVersion: String(++version),
      ours: true,
      terminating: false,
      format: 1,
      holder: undefined,
      durationSeconds: undefined,
      renewTime: undefined,
      transitions: 0,
      credit: undefined,
      ended: [],
      unclean: false,
      boundary: undefined,
      note: undefined,
      forced: undefined,
    };
  };

  /** Applies a change computed from `read`, if that is still what is there. */
  const write = (read: LeaseView, change: LeaseChange): boolean => {
    if (lease?.uid !== read.uid || lease.resourceVersion !== read.resourceVersion) return false;
    must(change.renewTime !== lease.renewTime, "each write has another time");
    must(change.ended.length <= endedKept, "at most eight are remembered");
    must(new Set(change.ended.map(({ holder }) => holder)).size === change.ended.length, "each once");
    lease = { ...lease, ...change, resourceVersion: String(++version) };
    return true;
  };

  const time = (): WallTime => wallTime(now);

  const reserve = (count: bigint, atLeast: Token) => {
    const base = higher(ceiling, atLeast);
    ceiling = (base + count) as Token;
    return { token: (base + 1n) as Token, ceiling };
  };

  const acquire = (read: LeaseView, me: HolderId, take: boolean) => {
    const found = claim(read, me);
    if (found.kind === "mine") {
      if (write(read, renewed(read, 15, time())))
        must(
          grants.some((grant) => grant.holder === me && grant.token === found.token),
          "a repeat answers a grant",
        );
      return;
    }
    if (found.kind !== "free" && !(found.kind === "held" && take)) return;
    const next = spend(read, floor);
    const block = next.kind === "spend" ? next : reserve(4n, next.atLeast);
    must(
      next.kind === "spend" || !regressedBlock(read, (block.token - 1n) as Token),
      "no block from the past",
    );
    if (!write(read, grant(read, me, block, 15, time(), undefined))) return;
    must(
      grants.every(({ token }) => token < block.token),
      "I1, I2: above every earlier token",
    );
    must(block.token > floor, "above the floor");
    must(block.token <= ceiling, "not above the sequence");
    grants.push({ token: block.token, holder: me });
  };

  const keep = (kind: "renew" | "release", read: LeaseView, me: HolderId, token: Token) => {
    const decided = renewal(read, me, token);
    if (decided.kind !== "renew") return;
    const change = kind === "renew" ? renewed(read, 15, time()) : released(read, time());
    const before = lease;
    if (!write(read, change) || before === undefined) return;
    must(before.holder === me && grantedToken(before) === token, "I5, I6: only who holds by this token");
    must(lease?.credit?.token === token, "the token stays");
    must(kind === "renew" || lease?.holder === undefined, "a release frees");
  };

  const run = (command: Command) => {
    if (command.kind === "delete") lease = undefined;
    if (command.kind === "floor") floor = (floor + BigInt(command.by)) as Token;
    if (command.kind === "clock") now += BigInt(command.by);
    if (!("replica" in command)) return;
    if (command.kind === "read") make();
    const read = command.kind === "read" ? undefined : caches[command.replica];
    if (read === undefined) {
      caches[command.replica] = lease;
      return;
    }
    const me = "attempt" in command ? attempts[command.attempt] : undefined;
    if (command.kind === "force" && read.holder !== undefined) write(read, forced(read, "ann", time()));
    if (me === undefined) return;
    if (command.kind === "acquire") acquire(read, me, command.take);
    if (command.kind === "renew" || command.kind === "release") {
      const own = grants.findLast(({ holder }) => holder === me)?.token;
      const token = command.token === "own" ? own : grants.at(-1)?.token;
      if (token !== undefined) keep(command.kind, read, me, token);
    }
    // What came of it is seen at once by this replica alone; the others go on with what they read.
    caches[command.replica] = lease;
  };

  return { run, flaws, grants };
};

describe("any history of reads, grants, renewals, releases, take-aways and deletions", () => {
  it("S1-03 S1-18 S1-37 S1-38 S1-39 keeps I1, I2, I5 and I6", () => {
    fc.assert(
      fc.property(commands, (history) => {
        const stage = makeStage();
        for (const command of history) stage.run(command);
        expect(stage.flaws).toEqual([]);
      }),
      { numRuns: 1_500 },
    );
  });

  it("does grant: the rules above are not kept by doing nothing", () => {
    const most = fc
      .sample(commands, { numRuns: 200, seed: 1 })
      .map((history) => {
        const stage = makeStage();
        for (const command of history) stage.run(command);
        return stage.grants.length;
      })
      .reduce((a, b) => Math.max(a, b));
    expect(most).toBeGreaterThan(5);
  });
});
