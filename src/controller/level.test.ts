import { describe, expect, test } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { noToken, type Token } from "../core/token.ts";
import type { Leases } from "../kube/leases.ts";
import { makeMemoryStore } from "../store/memory.ts";
import type { SequenceState } from "../store/port.ts";
import { levelSequence } from "./level.ts";

const key = "shop/orders";
const resource: ResourceSpec = {
  namespace: "shop",
  name: "orders",
  uid: "u",
  deleted: false,
  suspended: false,
  durationSeconds: 15,
  renewIntervalSeconds: 5,
  lockDelaySeconds: 0,
  floor: noToken,
  reserve: 64n,
  store: "Status",
  guarantee: "Advisory",
  boundary: { type: "None", advance: "OnGrant", text: "" },
};
const untouched = async () => {
  throw new Error("no Lease is touched");
};
const leases: Leases = { get: untouched, create: untouched, write: untouched };

const level = async (shown: SequenceState, ceiling: bigint) => {
  const store = makeMemoryStore("us");
  await store.open(key, ceiling as Token);
  const input = {
    issuer: "us",
    floor: noToken,
    lease: undefined,
    mirrored: { granted: 41n as Token, ceiling: 64n as Token },
    mark: undefined,
    restored: undefined,
  };
  const signal = new AbortController().signal;
  const levelled = await levelSequence(
    { leases, clock: makeFakeClock() },
    store,
    resource,
    input,
    shown,
    signal,
  );
  return { levelled, state: await store.read(key) };
};

describe("a watch that is behind the store", () => {
  test.each<[string, SequenceState]>([
    ["shows none", { state: "missing" }],
    ["shows one not opened", { state: "unopened" }],
    [
      "shows a lower ceiling",
      { state: "open", base: noToken, ceiling: 3n as Token, sealed: false, issuer: "us" },
    ],
  ])("%s: the store is asked before anything bad is said or done", async (_, shown) => {
    const { levelled, state } = await level(shown, 64n);
    expect(levelled).toMatchObject({ trouble: undefined, ceiling: 64n, story: [] });
    expect(state).toMatchObject({ ceiling: 64n });
  });
});
