import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { startTcpProxy } from "../../support/faultproxy/tcp.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { leading, type Resource, startWorld, type World } from "./support.ts";

let world: World;
collectOnFailure(() => world.cluster);

beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
});

const soon = { timeout: 20_000, interval: 100 };

/** A way to the server that can be broken. */
const brokenWay = async () => {
  const proxy = await startTcpProxy({ target: { host: "127.0.0.1", port: world.server.port } });
  return { proxy, url: world.server.url("issuer", world.db.name).replace(/:\d+\//, `:${proxy.port}/`) };
};

const leaseToken = (resource: Resource) =>
  world.cluster.kubectl([
    "get",
    "lease/fenceline-orders",
    "-n",
    resource.split("/")[0] ?? "",
    "-o",
    "jsonpath={.metadata.annotations.fenceline\\.dev/token}",
  ]);

describe("a database that is away", { timeout: 150_000 }, () => {
  it("nobody gets a token without its fence; the same attempt gets it later, and others are not held up", async () => {
    const { proxy, url } = await brokenWay();
    await using _ = proxy;
    const [away, fine] = [await world.guarded({ url, durationSeconds: 30 }), await world.guarded()];
    const [first, second] = [await world.caller(away.namespace), await world.caller(fine.namespace)];
    using hole = proxy.halfOpen();
    const attempt = randomUUID();
    const asked = first.acquire(away.resource, { attempt });
    // Committed, and not answered.
    await expect.poll(() => leaseToken(away.resource), soon).toBe("1");
    expect(await second.acquire(fine.resource)).toMatchObject({ status: 200, body: { advanced: true } });
    expect(await asked).toMatchObject({ status: 503, body: { code: "outcome_unknown" } });
    expect((await world.db.mark(away.resource)).granted).toBe("0");
    hole.heal();
    proxy.cut();
    await expect
      .poll(() => first.acquire(away.resource, { attempt }), soon)
      .toMatchObject({ status: 200, body: { token: "1", advanced: true } });
    expect((await world.db.mark(away.resource)).granted).toBe("1");
  });

  it("FM-05 the coordinator dies between the commit and the advance: the same token, once it is fenced", async () => {
    const { proxy, url } = await brokenWay();
    await using _ = proxy;
    const guarded = await world.guarded({ url, durationSeconds: 30 });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    const hole = proxy.halfOpen();
    const attempt = randomUUID();
    const asked = caller.acquire(resource, { attempt }).catch(() => undefined);
    await expect.poll(() => leaseToken(resource), soon).toBe("1");
    await world.crash();
    expect(await asked).toBeUndefined();
    expect((await world.db.mark(resource)).granted).toBe("0");
    hole.heal();
    proxy.cut();
    const again = await world.caller(namespace);
    await expect
      .poll(() => again.acquire(resource, { attempt }), soon)
      .toMatchObject({ status: 200, body: { token: "1", advanced: true } });
    expect(await world.write(guarded, "1", "alice")).toBe("00000");
  });

  it("S1-12 the boundary refuses and accepts while no coordinator runs", async () => {
    const guarded = await world.guarded();
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    await caller.release(resource, heldBy(await caller.acquire(resource)));
    expect((await caller.acquire(resource, { waitMs: 10_000 })).body["token"]).toBe("2");
    await leading(world).kill();
    expect(await world.write(guarded, "1", "old")).toBe("FNC01");
    expect(await world.write(guarded, "2", "new")).toBe("00000");
    await world.crash();
  });

  it("FM-30 S1-43 a restart closes it until the controller has read the Lease, and that is soon", async () => {
    const guarded = await world.guarded({ durationSeconds: 30 });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    const a = await caller.acquire(resource);
    // It would be open again before anybody could look.
    leading(world).child.kill("SIGSTOP");
    await world.server.restart("immediate");
    expect(await world.write(guarded, "1", "early")).toBe("FNC07");
    await world.reconnect();
    const begun = performance.now();
    leading(world).child.kill("SIGCONT");
    await expect
      .poll(() => world.write(guarded, "1", "alice"), { timeout: 30_000, interval: 50 })
      .toBe("00000");
    console.log(
      `re-opened ${((performance.now() - begun) / 1000).toFixed(2)} s after the controller could see it`,
    );
    await expect
      .poll(() => world.events(resource), soon)
      .toEqual(
        expect.arrayContaining([
          expect.stringContaining("BoundaryClosed: "),
          expect.stringContaining("BoundaryReopened: "),
        ]),
      );
    expect(await caller.renew(resource, heldBy(a))).toMatchObject({ status: 200 });
    await caller.release(resource, heldBy(a));
    expect(await caller.acquire(resource, { waitMs: 10_000 })).toMatchObject({ body: { token: "2" } });
    expect(await world.write(guarded, "1", "old")).toBe("FNC01");
  });

  it("FM-30 a database put back to an older state stays closed to the tokens of that time", async () => {
    const guarded = await world.guarded({ durationSeconds: 30 });
    const { resource, namespace } = guarded;
    const caller = await world.caller(namespace);
    await caller.release(resource, heldBy(await caller.acquire(resource)));
    const before = (await world.db.mark(resource)).granted;
    expect(before).toBe("1");
    const b = await caller.acquire(resource, { waitMs: 10_000 });
    // As a restore would leave it: the mark of then, in another past.
    leading(world).child.kill("SIGSTOP");
    await world.db.admin.query(
      "update fenceline.mark set granted = 1, attempt = 'user:then/1', timeline = '0000000F' where resource = $1",
      [resource],
    );
    expect(await world.write(guarded, "1", "old")).toBe("FNC07");
    leading(world).child.kill("SIGCONT");
    await expect.poll(() => world.write(guarded, "2", "bob"), soon).toBe("00000");
    expect(await world.write(guarded, "1", "old")).toBe("FNC01");
    expect(await caller.renew(resource, heldBy(b))).toMatchObject({ status: 200 });
  });
});
