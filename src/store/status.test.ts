import { describe, expect, test } from "vitest";
import { noToken, type Token } from "../core/token.ts";
import { makeKubeClient } from "../kube/client.ts";
import { fencedSequenceKind } from "../kube/kinds.ts";
import { makeFakeClock, makeFakeRandom } from "../../test/support/clock.ts";
import { makeMemApi } from "../../test/support/memapi/memapi.ts";
import { notConnected } from "../../test/support/memapi/faults.ts";
import { sequenceName } from "../api/names.ts";
import { makeStatusStore, sequenceState } from "./status.ts";

const key = "shop/orders";

const setup = () => {
  const clock = makeFakeClock();
  const random = makeFakeRandom();
  const api = makeMemApi({ clock, random });
  const client = makeKubeClient(api.transport({ name: "store" }));
  return { api, client, store: makeStatusStore({ client, issuer: "us", clock, random }) };
};

describe("requests of the store Status", () => {
  test("a block is one write and no read, from the last version written", async () => {
    const { api, store } = setup();
    await store.open(key, noToken);
    const since = api.seen.length;
    for (let round = 0; round < 10; round += 1) await store.reserve(key, 64n, noToken);
    expect(api.counts({ since })).toEqual({ "update fencedsequences/status": 10 });
  });

  test("who was overtaken reads once and writes again", async () => {
    const { api, client, store } = setup();
    const clock = makeFakeClock();
    const other = makeStatusStore({ client, issuer: "us", clock, random: makeFakeRandom() });
    await store.open(key, noToken);
    await other.reserve(key, 5n, noToken);
    const since = api.seen.length;
    expect(await store.reserve(key, 5n, noToken)).toMatchObject({ base: 5n });
    expect(api.counts({ since })).toEqual({
      "update fencedsequences/status": 2,
      "get fencedsequences": 1,
    });
  });

  test("no connection: unavailable at once, and nothing is moved", async () => {
    const { api, store } = setup();
    await store.open(key, noToken);
    api.fault({ verb: "update" }, notConnected);
    expect(await store.reserve(key, 5n, noToken)).toMatchObject({ outcome: "unavailable" });
    expect(await store.read(key)).toMatchObject({ ceiling: 0n });
    api.fault({ verb: "get" }, notConnected);
    expect(await store.read(key)).toMatchObject({ state: "unavailable" });
  });

  test("an abort is the caller's own reason, not an answer of the store", async () => {
    const { store } = setup();
    const reason = new Error("enough");
    await expect(store.read(key, AbortSignal.abort(reason))).rejects.toBe(reason);
    await expect(store.reserve(key, 1n, noToken, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});

describe("FM-39 a sequence of another resource under our name", () => {
  test("is not used, and named", async () => {
    const { client, store } = setup();
    const draft = fencedSequenceKind.parse({
      metadata: { name: sequenceName(key), uid: "-", resourceVersion: "-" },
      spec: { resource: "shop/other" },
    });
    await client.create(fencedSequenceKind, { ...draft, metadata: { name: sequenceName(key) } });
    for (const answer of [
      await store.reserve(key, 1n, noToken),
      await store.read(key),
      await store.open(key, 5n as Token),
    ])
      expect(answer).toMatchObject({ message: expect.stringContaining("shop/other") });
  });

  test("a missing one is missing", () => {
    expect(sequenceState(undefined, key)).toEqual({ state: "missing" });
  });
});
