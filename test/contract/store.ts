/** What every SequenceStore must do. One suite for all of them. */
import { beforeEach, describe, expect, test } from "vitest";
import { lastToken, noToken, type Token } from "../../src/core/token.ts";
import type { Reservation, ResourceKey, SequenceStore } from "../../src/store/port.ts";

export interface StoreHarness {
  issuer: string;
  /** A client of its own of the same sequences, as another replica has; `issuer` where it serves another cluster. */
  store(issuer?: string): SequenceStore;
  /** The sequence moves to another store. */
  seal(resource: ResourceKey): Promise<void>;
  /** Deleted by force. */
  remove(resource: ResourceKey): Promise<void>;
  /** Made, but never opened. Left out where making and opening are one step. */
  makeUnopened?: (resource: ResourceKey) => Promise<void>;
  /** Deleted, and put back by a backup tool with what it claimed before. Left out where that is not possible. */
  copy?: (resource: ResourceKey, claims?: { issuer?: string }) => Promise<void>;
  /** A client whose next writes to the sequence are answered late or never, whether they arrived or not. */
  flaky?: (fault: "answer-lost" | "request-lost" | "conflict", times: number) => SequenceStore;
}

type Block = Extract<Reservation, { outcome: "reserved" }>;

const t = (value: bigint | number): Token => BigInt(value) as Token;

const reserved = (answer: Reservation): Block => {
  expect(answer).toMatchObject({ outcome: "reserved" });
  return answer as Block;
};

const ceilingOf = async (store: SequenceStore, resource: ResourceKey): Promise<Token> => {
  const state = await store.read(resource);
  if (state.state !== "open") throw new Error(`not open: ${state.state}`);
  return state.ceiling;
};

/** Blocks must not share a token. */
const expectDisjoint = (blocks: readonly Block[]) => {
  const sorted = blocks.toSorted((a, b) => (a.base < b.base ? -1 : 1));
  for (const [index, block] of sorted.entries()) {
    expect(block.ceiling).toBeGreaterThan(block.base);
    const next = sorted[index + 1];
    if (next !== undefined) expect(next.base).toBeGreaterThanOrEqual(block.ceiling);
  }
};

let keys = 0;

export const storeContract = (name: string, harness: () => StoreHarness): void => {
  describe(`store ${name}`, () => {
    let h: StoreHarness;
    let store: SequenceStore;
    let key: ResourceKey;
    beforeEach(() => {
      h = harness();
      store = h.store();
      keys += 1;
      key = `contract/orders-${process.pid}-${keys}`;
    });

    test("missing: reserve refuses, read says so", async () => {
      expect(await store.read(key)).toEqual({ state: "missing" });
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "not_ready", reason: "missing" });
      expect(await store.reserve(key, 0n, t(5))).toEqual({ outcome: "not_ready", reason: "missing" });
      expect(await store.read(key)).toEqual({ state: "missing" });
    });

    test("opened at a number, tokens start above it", async () => {
      const opened = await store.open(key, t(40));
      expect(opened).toMatchObject({
        state: "open",
        base: 40n,
        ceiling: 40n,
        sealed: false,
        issuer: h.issuer,
      });
      expect(await store.reserve(key, 2n, noToken)).toEqual({ outcome: "reserved", base: 40n, ceiling: 42n });
      expect(await store.read(key)).toMatchObject({ state: "open", base: 40n, ceiling: 42n });
    });

    test("opening an open one changes nothing", async () => {
      await store.open(key, t(3));
      await store.reserve(key, 10n, noToken);
      expect(await store.open(key, t(500))).toMatchObject({ state: "open", base: 3n, ceiling: 13n });
      expect(await h.store().open(key, noToken)).toMatchObject({ state: "open", ceiling: 13n });
    });

    test("atLeast lifts the block, and a lower one does nothing", async () => {
      await store.open(key, noToken);
      expect(await store.reserve(key, 5n, t(100))).toEqual({
        outcome: "reserved",
        base: 100n,
        ceiling: 105n,
      });
      expect(await store.reserve(key, 5n, t(7))).toEqual({ outcome: "reserved", base: 105n, ceiling: 110n });
    });

    test("count 0 raises and hands out nothing", async () => {
      await store.open(key, noToken);
      await store.reserve(key, 5n, noToken);
      expect(await store.reserve(key, 0n, t(64))).toEqual({ outcome: "reserved", base: 64n, ceiling: 64n });
      expect(await store.reserve(key, 0n, t(9))).toEqual({ outcome: "reserved", base: 64n, ceiling: 64n });
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "reserved", base: 64n, ceiling: 65n });
    });

    test("count 0 without a raise is answered by what is stored now, not by what was known", async () => {
      await store.open(key, noToken);
      await store.reserve(key, 5n, noToken);
      await h.store().reserve(key, 5n, noToken);
      expect(await store.reserve(key, 0n, noToken)).toEqual({ outcome: "reserved", base: 10n, ceiling: 10n });
    });

    test("S1-18 rivals get blocks that share nothing, and the ceiling never falls", async () => {
      await store.open(key, noToken);
      const replicas = [store, h.store(), h.store()];
      const blocks: Block[] = [];
      let low = noToken;
      for (let round = 0; round < 5; round += 1) {
        const calls = replicas.flatMap((replica) =>
          [1n, 7n].map((count) => replica.reserve(key, count, noToken)),
        );
        blocks.push(...(await Promise.all(calls)).map(reserved));
        const ceiling = await ceilingOf(store, key);
        expect(ceiling).toBeGreaterThan(low);
        low = ceiling;
      }
      expectDisjoint(blocks);
      expect(low).toBe(t(5 * 3 * 8));
    });

    test("FM-38 the last token can be given, then the range has ended", async () => {
      await store.open(key, t(lastToken - 3n));
      expect(await store.reserve(key, 2n, noToken)).toMatchObject({ ceiling: lastToken - 1n });
      expect(await store.reserve(key, 64n, noToken)).toEqual({
        outcome: "reserved",
        base: lastToken - 1n,
        ceiling: lastToken,
      });
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "exhausted" });
      expect(await h.store().reserve(key, 1n, noToken)).toEqual({ outcome: "exhausted" });
      expect(await store.reserve(key, 0n, noToken)).toMatchObject({
        outcome: "reserved",
        ceiling: lastToken,
      });
      expect(await store.read(key)).toMatchObject({ state: "open", ceiling: lastToken });
    });

    test("FM-38 nothing wraps: a raise beyond the last token ends there", async () => {
      await store.open(key, noToken);
      expect(await store.reserve(key, 0n, t(lastToken + 1n))).toMatchObject({ ceiling: lastToken });
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "exhausted" });
    });

    test("FM-38 numbers above 2^53 are exact", async () => {
      await store.open(key, t(9_007_199_254_740_992n));
      expect(await store.reserve(key, 1n, noToken)).toEqual({
        outcome: "reserved",
        base: 9_007_199_254_740_992n,
        ceiling: 9_007_199_254_740_993n,
      });
      expect(await ceilingOf(h.store(), key)).toBe(9_007_199_254_740_993n);
    });

    test("sealed: nothing is reserved any more, also by who did not see it", async () => {
      await store.open(key, t(5));
      await store.reserve(key, 1n, noToken);
      await h.seal(key);
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "sealed" });
      expect(await store.reserve(key, 0n, t(100))).toEqual({ outcome: "sealed" });
      expect(await store.open(key, t(100))).toMatchObject({ state: "open", sealed: true, ceiling: 6n });
    });

    test("another issuer is refused and changes nothing", async () => {
      await store.open(key, t(5));
      const foreign = h.store("another-cluster");
      expect(await foreign.reserve(key, 1n, t(50))).toEqual({ outcome: "issuer_mismatch", issuer: h.issuer });
      expect(await foreign.open(key, t(50))).toMatchObject({ state: "open", issuer: h.issuer });
      expect(await store.read(key)).toMatchObject({ ceiling: 5n, issuer: h.issuer });
    });

    test("deleted by force: who knew it notices", async () => {
      await store.open(key, t(5));
      await store.reserve(key, 1n, noToken);
      await h.remove(key);
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "not_ready", reason: "missing" });
      expect(await store.open(key, t(9))).toMatchObject({ state: "open", base: 9n, ceiling: 9n });
      expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "reserved", base: 9n, ceiling: 10n });
    });

    test("rivals open it once", async () => {
      const states = await Promise.all(
        [store, h.store(), h.store()].map((replica) => replica.open(key, t(7))),
      );
      for (const state of states) expect(state).toMatchObject({ state: "open", base: 7n, ceiling: 7n });
    });

    test("resources do not meet", async () => {
      const other: ResourceKey = `${key}-b`;
      await store.open(key, noToken);
      await store.open(other, t(9));
      await store.reserve(key, 3n, noToken);
      expect(await store.reserve(other, 1n, noToken)).toMatchObject({ base: 9n });
      expect(await ceilingOf(store, key)).toBe(3n);
    });

    if (harness().makeUnopened !== undefined)
      test("unopened: reserve refuses until it is opened", async () => {
        await h.makeUnopened?.(key);
        expect(await store.read(key)).toEqual({ state: "unopened" });
        expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "not_ready", reason: "unopened" });
        expect(await store.open(key, t(4))).toMatchObject({ state: "open", base: 4n, ceiling: 4n });
      });

    if (harness().copy !== undefined) {
      test("a copy counts as empty, and is opened above what it claims", async () => {
        await store.open(key, noToken);
        await store.reserve(key, 30n, noToken);
        await h.copy?.(key);
        expect(await store.reserve(key, 1n, noToken)).toEqual({ outcome: "not_ready", reason: "copied" });
        expect(await store.read(key)).toEqual({ state: "copied", ceiling: 30n, issuer: h.issuer });
        expect(await store.open(key, t(10))).toMatchObject({ state: "open", base: 30n, ceiling: 30n });
        expect(await store.reserve(key, 1n, noToken)).toMatchObject({ base: 30n });
      });

      test("a copy is opened at what is asked for where that is higher", async () => {
        await store.open(key, t(30));
        await h.copy?.(key);
        expect(await store.open(key, t(77))).toMatchObject({ state: "open", base: 77n, ceiling: 77n });
      });

      test("a copy from another cluster stays closed: that one may still issue", async () => {
        await store.open(key, t(30));
        await h.copy?.(key, { issuer: "another-cluster" });
        expect(await store.open(key, t(77))).toEqual({
          state: "copied",
          ceiling: 30n,
          issuer: "another-cluster",
        });
        expect(await store.reserve(key, 1n, noToken)).toEqual({
          outcome: "issuer_mismatch",
          issuer: "another-cluster",
        });
      });
    }

    if (harness().flaky !== undefined) {
      test.for(["answer-lost", "request-lost", "conflict"] as const)(
        "FM-04 %s: the block is a gap or another one, and never given twice",
        async (fault) => {
          await store.open(key, noToken);
          const flaky = h.flaky?.(fault, 2) ?? store;
          const blocks = [await flaky.reserve(key, 3n, noToken), await store.reserve(key, 3n, noToken)];
          blocks.push(await flaky.reserve(key, 3n, noToken));
          const got = blocks.map(reserved);
          expect(got).toHaveLength(3);
          expectDisjoint(got);
        },
      );

      test("no end of lost answers: unavailable, within bounds", async () => {
        await store.open(key, noToken);
        const flaky = h.flaky?.("answer-lost", Number.POSITIVE_INFINITY) ?? store;
        expect(await flaky.reserve(key, 1n, noToken)).toMatchObject({ outcome: "unavailable" });
        expect(reserved(await store.reserve(key, 1n, noToken)).base).toBeGreaterThan(0n);
      });

      test("opening survives a lost answer", async () => {
        const flaky = h.flaky?.("answer-lost", 2) ?? store;
        expect(await flaky.open(key, t(6))).toMatchObject({ state: "open", base: 6n, ceiling: 6n });
      });
    }
  });
};
