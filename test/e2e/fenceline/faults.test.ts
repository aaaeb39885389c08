/** Holders in real pods that are cut off, crash, starve or lose their node. The rows of the database decide. */
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { sharedNodes } from "../../support/cluster/shared.ts";
import { installed } from "../../support/e2e/installation.ts";
import { openShop, type Shop, startReachable } from "../../support/e2e/shop.ts";
import type { PostgresServer } from "../../support/postgres/server.ts";

const lab = sharedNodes();
let server: PostgresServer;
const slowly = { timeout: 120_000, interval: 250 };

beforeAll(async () => {
  server = await startReachable(inject("postgres"));
  await installed(lab);
});
afterAll(() => server?.[Symbol.asyncDispose]());

const below = async (shop: Shop, token: string) =>
  (await shop.rows()).filter((row) => BigInt(row.token) < BigInt(token)).length;

/** Where the coordinator is: its Service, and the pods behind it. */
const coordinator = async (): Promise<string[]> => {
  const service = await lab.kubectl([
    "get",
    "service/fenceline",
    "-n",
    "fenceline-system",
    "-o=jsonpath={.spec.clusterIP}",
  ]);
  const pods = await lab.kubectl([
    "get",
    "pods",
    "-n",
    "fenceline-system",
    "-l",
    "app.kubernetes.io/name=fenceline",
    "-o=jsonpath={.items[*].status.podIP}",
  ]);
  return [service, ...pods.split(" ")];
};

const phase = async (shop: Shop, job: string) => (await shop.pods(job))[0]?.status.phase;

describe("a holder that nobody hears", () => {
  test("FM-08 FM-24 S2-10 cut from the coordinator alone: lost by its own deadline, refused by the database, stopped", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old", { env: { ON_TERM: "ignore" }, spec: { terminationGracePeriodSeconds: 15 } });
    expect(await shop.writes("old")).toBe("1");
    const old = await shop.pod("old");
    await lab.pod(shop.namespace, old.metadata.name).cut({ to: await coordinator() });
    await shop.job("new", { steps: 5 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    const before = await below(shop, next);
    // It reaches the database all the while, and does not obey the signal.
    await expect.poll(async () => (await shop.said("old")).join("\n"), slowly).toContain("FNC01");
    await expect.poll(async () => (await shop.said("old")).join("\n"), slowly).toContain("SIGTERM");
    await shop.completes("new");
    expect(await below(shop, next)).toBe(before);
    await expect.poll(() => phase(shop, "old"), slowly).toBe("Failed");
  });
});

describe("an agent that dies", () => {
  test("FM-35 killed beside a running app: it takes up its right again, and the app goes on under the same token", async () => {
    const shop = await openShop(lab, server, { durationSeconds: 15, renewIntervalSeconds: 5 });
    await shop.job("import", { steps: 60 });
    expect(await shop.writes("import")).toBe("1");
    const pod = await shop.pod("import");
    const agent = async () =>
      (await shop.pods("import"))[0]?.status.initContainerStatuses?.find(
        ({ name }) => name === "fenceline-agent",
      );
    await lab.pod(shop.namespace, pod.metadata.name).kill("fenceline-agent");
    await expect.poll(async () => (await agent())?.restartCount, slowly).toBe(1);
    await shop.completes("import");
    const rows = await shop.rows();
    expect(new Set(rows.map(({ token }) => token))).toEqual(new Set(["1"]));
    expect(rows).toHaveLength(60);
    await expect.poll(() => shop.holder(), slowly).toBeUndefined();
  });
});

describe("a holder whose pod ends badly", () => {
  test("FM-34 deleted by force: nobody can tell that it ended, so its lease decides, and the next token is higher", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old", { job: { backoffLimit: 0 } });
    expect(await shop.writes("old")).toBe("1");
    const old = await shop.pod("old");
    await shop.kubectl("delete", "job/old", "--cascade=orphan");
    await shop.kubectl("delete", `pod/${old.metadata.name}`, "--grace-period=0", "--force");
    await shop.job("new", { steps: 3 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    await shop.completes("new");
    const rows = await shop.rows();
    const first = rows.findIndex(({ token }) => token === next);
    expect(rows.slice(first).every(({ token }) => token === next)).toBe(true);
  });

  test("FM-33 S2-01 a Job replaced while its old pod still ends: one token each, and never the same", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old", { env: { ON_TERM: "ignore" }, spec: { terminationGracePeriodSeconds: 8 } });
    expect(await shop.writes("old")).toBe("1");
    await shop.kubectl("delete", "job/old", "--wait=false");
    await shop.job("new", { steps: 3 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    const holders = (await shop.rows()).map(({ token, pod }) => `${token} ${pod}`);
    expect(new Set(holders).size).toBe(2);
    await shop.completes("new");
  });
});

describe("a node that is lost", () => {
  const onNode = (number: number) => ({ spec: { nodeName: `node${number}` } });

  test("S1-07 S2-10 cut off: the other node takes over; what the first goes on writing is refused", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old", onNode(2));
    expect(await shop.writes("old")).toBe("1");
    // Its network is gone, and the database with it: the writes come when it is back.
    const cut = await lab.node(2).cut();
    await shop.job("new", { ...onNode(1), steps: 5 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    const before = await below(shop, next);
    await cut.heal();
    await lab.node(2).untilReady();
    await shop.completes("new");
    expect(await below(shop, next)).toBe(before);
  });

  test("S1-07 frozen as a whole: after the thaw everything on it is of the past", async () => {
    const shop = await openShop(lab, server);
    await shop.job("old", onNode(2));
    expect(await shop.writes("old")).toBe("1");
    const frozen = await lab.node(2).freeze();
    await shop.job("new", { ...onNode(1), steps: 5 });
    const next = await shop.writes("new");
    expect(BigInt(next)).toBeGreaterThan(1n);
    const before = await below(shop, next);
    await frozen.heal();
    await lab.node(2).untilReady();
    await shop.completes("new");
    expect(await below(shop, next)).toBe(before);
  });
});

describe("coordinators that are replaced", () => {
  test("FM-36 both are rolled while holders renew: nobody loses, no token changes", async () => {
    const shops = await Promise.all(Array.from({ length: 5 }, () => openShop(lab, server)));
    await Promise.all(shops.map((shop) => shop.job("worker")));
    for (const shop of shops) expect(await shop.writes("worker")).toBe("1");
    await lab.kubectl(["rollout", "restart", "deployment/fenceline", "-n", "fenceline-system"]);
    await lab.kubectl([
      "rollout",
      "status",
      "deployment/fenceline",
      "-n",
      "fenceline-system",
      "--timeout=120s",
    ]);
    const marks = await Promise.all(shops.map(async (shop) => (await shop.rows()).length));
    for (const [index, shop] of shops.entries()) {
      await expect
        .poll(async () => (await shop.rows()).length, slowly)
        .toBeGreaterThan((marks[index] ?? 0) + 10);
      expect(new Set((await shop.rows()).map(({ token }) => token))).toEqual(new Set(["1"]));
      expect(await phase(shop, "worker")).toBe("Running");
    }
    await Promise.all(shops.map((shop) => shop.kubectl("delete", "job/worker", "--wait=false")));
  });
});
