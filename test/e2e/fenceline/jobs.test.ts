import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { sharedNodes } from "../../support/cluster/shared.ts";
import { installed } from "../../support/e2e/installation.ts";
import { openShop, startReachable } from "../../support/e2e/shop.ts";
import type { PostgresServer } from "../../support/postgres/server.ts";

const lab = sharedNodes();
let server: PostgresServer;
const slowly = { timeout: 90_000, interval: 250 };

beforeAll(async () => {
  server = await startReachable(inject("postgres"));
  await installed(lab);
});
afterAll(() => server?.[Symbol.asyncDispose]());

describe("a Job that holds its resource", () => {
  test("S1-04 writes under its token, completes, and gives the resource back", async () => {
    const shop = await openShop(lab, server);
    await shop.job("import", { steps: 5 });
    await shop.completes("import");
    const rows = await shop.rows();
    expect(rows.map(({ token, step }) => ({ token, step }))).toEqual(
      [1, 2, 3, 4, 5].map((step) => ({ token: "1", step })),
    );
    await expect.poll(() => shop.holder(), slowly).toBeUndefined();
    await expect
      .poll(() => shop.events(), slowly)
      .toEqual(expect.arrayContaining(["TokenGranted", "LeaseReleased"]));
  });

  test("FM-13 of two, one waits until the other has ended, and gets a higher token", async () => {
    const shop = await openShop(lab, server);
    await shop.job("first", { steps: 10 });
    expect(await shop.writes("first")).toBe("1");
    await shop.job("second", { steps: 3 });
    await shop.completes("first");
    await shop.completes("second");
    const rows = await shop.rows();
    const tokens = rows.map(({ token }) => BigInt(token));
    expect(tokens.slice(0, 10).every((token) => token === 1n)).toBe(true);
    expect(tokens.slice(10)).toHaveLength(3);
    // Of two replicas that try at once, one may leave a gap.
    expect(new Set(tokens.slice(10)).size).toBe(1);
    expect(tokens[10]).toBeGreaterThan(1n);
  });
});

describe("a holder that stops without dying", () => {
  test("FM-01 S1-01 S1-08 S1-40 S1-41 S1-63 frozen past its lease: what it writes after the thaw is refused, and it is stopped", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old");
    expect(await shop.writes("old")).toBe("1");
    const old = await shop.pod("old");
    const frozen = await lab.pod(shop.namespace, old.metadata.name).freeze();
    await shop.job("new", { steps: 5 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    const before = (await shop.rows()).filter(({ token }) => token === "1").length;
    await frozen.heal();
    await shop.completes("new");
    await expect.poll(async () => (await shop.pods("old"))[0]?.status.phase, slowly).toBe("Failed");
    expect((await shop.rows()).filter(({ token }) => token === "1")).toHaveLength(before);
    await expect
      .poll(() => shop.events(), slowly)
      .toEqual(expect.arrayContaining(["LeaseExpired", "OwnershipTransferred"]));
  });
});
