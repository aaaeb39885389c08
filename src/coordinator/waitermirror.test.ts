import { describe, expect, it } from "vitest";
import { answered } from "../../test/support/memapi/faults.ts";
import { makeWorld } from "../../test/support/world.ts";
import { makeKubeClient } from "../kube/client.ts";
import { silentLogger } from "../runtime/logger.ts";
import { makeWaiterMirror } from "./waitermirror.ts";

const start = async () => {
  const world = await makeWorld();
  await world.declare();
  const transport = world.api.transport({ name: "one" });
  const mirror = makeWaiterMirror({
    client: makeKubeClient(transport),
    clock: world.clock,
    log: silentLogger,
    replica: "one",
  });
  const shown = async () => (await world.get()).status?.waitersByReplica?.["one"];
  const writes = () => world.api.counts({ client: "one" })["patch fencedresources/status"] ?? 0;
  return { world, mirror, shown, writes };
};

describe("waiters, told to people", () => {
  it("after a moment, in one write for whatever happened in it", async () => {
    const { world, mirror, shown, writes } = await start();
    mirror.note("shop/orders", 1);
    mirror.note("shop/orders", 2);
    mirror.note("shop/orders", 3);
    expect(writes()).toBe(0);
    await world.clock.advance(1_000);
    expect(await shown()).toMatchObject({ count: 3 });
    expect(writes()).toBe(1);
  });

  it("at most once a second and resource, and the last count wins", async () => {
    const { world, mirror, shown, writes } = await start();
    for (let count = 1; count <= 40; count += 1) {
      mirror.note("shop/orders", count);
      await world.clock.advance(100);
    }
    await world.clock.advance(1_000);
    expect(writes()).toBeGreaterThanOrEqual(4);
    expect(writes()).toBeLessThanOrEqual(5);
    expect(await shown()).toMatchObject({ count: 40 });
  });

  it("not at all where nobody stayed long enough to be told of", async () => {
    const { world, mirror, writes } = await start();
    mirror.note("shop/orders", 1);
    mirror.note("shop/orders", 0);
    await world.clock.advance(60_000);
    expect(writes()).toBe(0);
    expect(world.clock.pending()).toBe(0);
  });

  it("again every 30 s with another beat, so that a dead replica can be told", async () => {
    const { world, mirror, shown } = await start();
    mirror.note("shop/orders", 1);
    await world.clock.advance(1_000);
    const first = await shown();
    await world.clock.advance(30_000);
    const second = await shown();
    expect(second?.count).toBe(1);
    expect(second?.beat).toBeGreaterThan(first?.beat ?? Number.NaN);
  });

  it("taken back when nobody waits any more, and when the replica ends", async () => {
    const { world, mirror, shown } = await start();
    mirror.note("shop/orders", 1);
    await world.clock.advance(1_000);
    mirror.note("shop/orders", 0);
    await world.clock.advance(1_000);
    expect(await shown()).toBeUndefined();
    mirror.note("shop/orders", 2);
    await world.clock.advance(1_000);
    await mirror.clear(new AbortController().signal);
    expect(await shown()).toBeUndefined();
    expect(world.clock.pending()).toBe(0);
  });

  it("later, where the server does not take it now; and for good, where the resource is gone", async () => {
    const { world, mirror, shown } = await start();
    world.api.fault({ client: "one" }, answered("ServiceUnavailable"));
    mirror.note("shop/orders", 1);
    await world.clock.advance(1_000);
    expect(await shown()).toBeUndefined();
    await world.clock.advance(30_000);
    expect(await shown()).toMatchObject({ count: 1 });
    mirror.note("shop/gone", 1);
    await world.clock.advance(1_000);
    mirror.note("shop/gone", 0);
    mirror.note("shop/orders", 0);
    await world.clock.advance(60_000);
    expect(world.clock.pending()).toBe(0);
  });
});
