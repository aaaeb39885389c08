import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Connection, created, direct, follow, scribble, untilLevel } from "./world.ts";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("FM-25 FM-29 a control plane that breaks", () => {
  let lab: Lab;
  beforeAll(async () => {
    lab = await startApi();
  });
  afterAll(() => lab?.[Symbol.asyncDispose]());
  afterEach(() => lab.heal());
  collectOnFailure(() => lab);

  const setup = async (connection: Connection) => {
    const namespace = await lab.namespace("plane");
    await scribble(connection.client, namespace);
    const follower = follow(connection.transport, namespace);
    await follower.reflector.synced();
    await untilLevel(follower, connection.client, namespace, 10_000);
    return {
      namespace,
      follower,
      asked: () => connection.counts.filter(({ verb }) => /list|watch/.test(verb)).length,
    };
  };

  it("API server killed and started ten times", { timeout: 180_000 }, async () => {
    await using connection = direct(lab);
    await using writer = direct(lab);
    const { namespace, follower, asked } = await setup(connection);
    await using _ = follower;
    const [start, before] = [performance.now(), asked()];
    const metadata = { name: "witness", namespace };
    let lease = created(await writer.client.create(leaseKind, { metadata, spec: {} }));
    for (let round = 0; round < 10; round++) {
      await lab.apiserver.kill();
      await lab.apiserver.start();
      // A write that follows at once: what the reflector must not miss.
      lease = created(
        await writer.client.update(leaseKind, { ...lease, spec: { holderIdentity: `user:a/${round}` } }),
      );
    }
    const seconds = await untilLevel(follower, writer.client, namespace, 15_000);
    expect(asked() - before).toBeLessThanOrEqual(30 * Math.ceil((performance.now() - start) / 60_000));
    console.log(
      `level ${seconds.toFixed(1)} s after the last of ten restarts, ${asked() - before} list and watch requests`,
    );
  });

  it("etcd paused for 10 s", { timeout: 240_000 }, async () => {
    await using connection = direct(lab);
    await using writer = direct(lab);
    const { namespace, follower } = await setup(connection);
    await using _ = follower;
    const frozen = await lab.etcd.pause();
    await pause(10_000);
    await frozen.heal();
    await expect
      .poll(
        () =>
          scribble(writer.client, namespace).then(
            () => "written",
            () => "not yet",
          ),
        { timeout: 15_000 },
      )
      .toBe("written");
    await untilLevel(follower, writer.client, namespace, 40_000);
  });

  it("etcd restored from a snapshot: history goes back, and the cache with it", {
    timeout: 90_000,
  }, async () => {
    await using connection = direct(lab);
    await using writer = direct(lab);
    const { namespace, follower } = await setup(connection);
    await using _ = follower;
    const snapshot = await lab.etcd.snapshot();
    for (let i = 0; i < 3; i++) await scribble(writer.client, namespace);
    await untilLevel(follower, writer.client, namespace, 10_000);
    const before = BigInt(follower.reflector.stats().resourceVersion ?? 0);
    const objects = follower.reflector.stats().objects;
    await lab.etcd.restore(snapshot);
    await untilLevel(follower, writer.client, namespace, 40_000);
    expect(BigInt(follower.reflector.stats().resourceVersion ?? 0)).toBeLessThan(before);
    expect(follower.reflector.stats().objects).toBeLessThan(objects);
    expect(follower.regressions()).toBe(1);
    await scribble(writer.client, namespace);
    await untilLevel(follower, writer.client, namespace, 5_000);
  });

  it("etcd alone restored, the API server left alive and restarted later", { timeout: 120_000 }, async () => {
    await using connection = direct(lab);
    await using writer = direct(lab);
    const { namespace, follower } = await setup(connection);
    await using _ = follower;
    const snapshot = await lab.etcd.snapshot();
    for (let i = 0; i < 3; i++) await scribble(writer.client, namespace);
    await untilLevel(follower, writer.client, namespace, 10_000);
    await lab.etcd.stop();
    const data = join(lab.folder, "etcd");
    await rm(data, { recursive: true });
    await cp(snapshot, data, { recursive: true });
    await lab.etcd.start();
    // Whatever this API server shows now, the cache shows the same.
    await untilLevel(follower, writer.client, namespace, 45_000);
    await lab.apiserver.kill();
    await lab.apiserver.start();
    await untilLevel(follower, writer.client, namespace, 45_000);
    expect(follower.regressions()).toBeGreaterThan(0);
    await scribble(writer.client, namespace);
    await untilLevel(follower, writer.client, namespace, 5_000);
  });
});
