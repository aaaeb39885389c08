/** The life of an installation under Helm: upgraded, rolled back, taken away and put back, with live holders. */
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { sharedNodes } from "../../support/cluster/shared.ts";
import { helm, installed, loadImage, release, upgrade } from "../../support/e2e/installation.ts";
import { openShop, type Shop, startReachable } from "../../support/e2e/shop.ts";
import type { PostgresServer } from "../../support/postgres/server.ts";

const lab = sharedNodes();
let server: PostgresServer;
const slowly = { timeout: 90_000, interval: 250 };

beforeAll(async () => {
  server = await startReachable(inject("postgres"));
  await installed(lab);
  await loadImage(lab, "0.1.1");
});
afterAll(() => server?.[Symbol.asyncDispose]());

/** It writes on under the same token: twenty rows more than now. */
const goesOn = async (shop: Shop, token: string) => {
  const { length } = await shop.rows();
  await expect.poll(async () => (await shop.rows()).length, slowly).toBeGreaterThan(length + 20);
  expect(new Set((await shop.rows()).map((row) => row.token))).toEqual(new Set([token]));
};

const images = () =>
  lab.kubectl(["get", "deployment/fenceline", "-n", "fenceline-system", "-o=jsonpath={..image}"]);

test("S1-41 upgraded and rolled back under a holder: it keeps its lease and its token", async () => {
  const shop = await openShop(lab, server);
  await shop.job("holder");
  const token = await shop.writes("holder");
  await upgrade(lab, "0.1.1");
  expect(await images()).toContain(":0.1.1");
  await goesOn(shop, token);
  await helm(lab, ["rollback", release, "--wait", "--timeout", "120s"]);
  expect(await images()).toContain(":0.1.0");
  await goesOn(shop, token);
  await shop.kubectl("delete", "job/holder", "--wait=false");
});

test("FM-28 uninstalled and installed again: nothing hangs, resources and sequences stay, and tokens go on", async () => {
  const shop = await openShop(lab, server, { durationSeconds: 30, renewIntervalSeconds: 10 });
  await shop.job("first", { steps: 3 });
  await shop.completes("first");
  await expect.poll(() => shop.holder(), slowly).toBeUndefined();
  await helm(lab, ["uninstall", release, "--wait", "--timeout", "120s"]);
  // What remembers is still there, and nothing waits for a finalizer.
  expect(await shop.kubectl("get", "fr/orders", "-o=jsonpath={.metadata.name}")).toBe("orders");
  expect(await lab.kubectl(["get", "fs", "-o=jsonpath={.items[*].spec.resource}"])).toContain(shop.resource);
  await upgrade(lab, "0.1.0");
  await shop.kubectl("wait", "fr/orders", "--for=condition=Ready", "--timeout=60s");
  const before = (await shop.rows()).map(({ token }) => BigInt(token));
  await shop.job("second", { steps: 3 });
  await shop.completes("second");
  const after = (await shop.rows()).slice(before.length).map(({ token }) => BigInt(token));
  expect(after).toHaveLength(3);
  for (const token of after) expect(token).toBeGreaterThan(before.at(-1) ?? 0n);
});
