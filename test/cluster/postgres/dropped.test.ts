import { writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sequenceName } from "../../../src/api/names.ts";
import { heldBy } from "../../support/fenceline/caller.ts";
import { killAll } from "../../support/fenceline/install.ts";
import { behindProxy } from "../coordinator/support.ts";
import { startWorld, type World } from "./support.ts";

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world?.[Symbol.asyncDispose]());

describe("a token that was reserved and never granted", { timeout: 150_000 }, () => {
  it.for(["Status", "PostgreSQL"] as const)(
    "FM-04 S1-22 store %s: the coordinator dies before the Lease write, and nobody ever gets that token",
    async (store) => {
      const guarded = await world.guarded({ tokens: { store, reserve: 1 } });
      const { resource, namespace } = guarded;
      const urlFile = path.join(world.cluster.access.cache, "dropped.url");
      await writeFile(urlFile, world.server.url("issuer", world.db.name), { mode: 0o600 });
      const dying = await behindProxy(world.cluster, `dropped-${store.toLowerCase()}`, {
        config: { database: { urlFile } },
      });
      const alice = await world.caller(namespace, "alice", dying.controller);
      const reserved = async (): Promise<bigint> => {
        if (store === "PostgreSQL") {
          const { rows } = await world.db.admin.query(
            "select ceiling::text as ceiling from fenceline.sequence where resource = $1",
            [resource],
          );
          return BigInt(rows[0]?.ceiling ?? 0);
        }
        const args = ["get", "fs", sequenceName(resource), "-o=jsonpath={.status.ceiling}"];
        return BigInt((await world.cluster.kubectl(args)) || 0);
      };
      // What the binding left in the Lease is spent: the next grant has to reserve.
      const bob = await world.caller(namespace, "bob");
      await bob.release(resource, heldBy(await bob.acquire(resource, { waitMs: 20_000 })));
      const before = await reserved();
      const gate = dying.proxy.hold({
        verb: "update",
        resource: "leases",
        namespace,
        name: "fenceline-orders",
      });
      const asked = alice.acquire(resource).catch(() => undefined);
      await gate.arrived(1);
      const dropped = await reserved();
      expect(dropped).toBeGreaterThan(before);
      await killAll(world.cluster, [dying.controller]);
      expect(await asked).toBeUndefined();
      await dying.proxy[Symbol.asyncDispose]();
      // The leadership went with it; the other controller takes it up again.
      const granted = await bob.acquire(resource, { waitMs: 20_000 });
      expect(granted.status).toBe(200);
      expect(BigInt(String(granted.body["token"]))).toBeGreaterThan(dropped);
      expect(await world.write(guarded, String(dropped), "ghost")).toBe("FNC01");
      expect(await world.value(guarded)).toBe("new");
      await expect
        .poll(async () => (await world.status(resource)).tokens?.granted, { timeout: 30_000 })
        .toBe(granted.body["token"]);
      const told = (await world.events(resource)).filter((line) => line.startsWith("TokenGranted"));
      expect(told.some((line) => line.includes(`token ${dropped} `))).toBe(false);
    },
  );
});
