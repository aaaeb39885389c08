import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { startWorld, type World } from "./support.ts";

let world: World;
collectOnFailure(() => world.cluster);

beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
});

const soon = { timeout: 20_000, interval: 200 };

describe("a resource behind PostgreSQL", () => {
  it("S1-04 S1-13 S1-14 is Fenced once a refusal was seen, and refuses the old holder from the grant on", async () => {
    const guarded = await world.guarded();
    const { resource, namespace } = guarded;
    const [controller] = world.controllers;
    if (controller === undefined) return;
    await expect.poll(() => world.status(resource), soon).toMatchObject({ guarantee: "Fenced" });
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource, { label: "alice" });
    expect(a).toMatchObject({ status: 200, body: { token: "1", guarantee: "Fenced", advanced: true } });
    expect(await world.write(guarded, "1", "alice")).toBe("00000");
    expect(await world.write(guarded, undefined, "nobody")).toBe("FNC02");
    const before = await world.metric(controller, 'fenceline_stale_rejections_total{boundary="PostgreSQL"}');
    await caller.release(resource, heldBy(a));
    const b = await caller.acquire(resource, { label: "bob", waitMs: 10_000 });
    expect(b).toMatchObject({ status: 200, body: { token: "2", advanced: true } });
    // Before B wrote anything.
    expect(await world.write(guarded, "1", "alice again")).toBe("FNC01");
    expect(await world.write(guarded, "2", "bob")).toBe("00000");
    expect(await world.value(guarded)).toBe("bob");
    await expect
      .poll(() => world.events(resource), soon)
      .toContainEqual(expect.stringMatching(/^StaleWriteRejected: .*1 write with an old token/));
    expect(await world.metric(controller, 'fenceline_stale_rejections_total{boundary="PostgreSQL"}')).toBe(
      before + 1,
    );
    expect(
      await world.metric(controller, 'fenceline_missing_token_rejections_total{boundary="PostgreSQL"}'),
    ).toBeGreaterThan(0);
    const time = expect.stringMatching(/^\d{4}-.*Z$/);
    await expect
      .poll(async () => (await world.status(resource)).boundary, soon)
      .toEqual({ grantedMark: "2", verifiedTime: time, refusedStaleTime: time });
  });
});
