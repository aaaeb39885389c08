import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { type Clock, systemClock } from "../../../src/runtime/clock.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { direct, follow, scribble, startProxy, untilLevel } from "./world.ts";

const cluster = sharedCluster();

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Back-off in a thousandth of its time: what is counted here is reconnects, not minutes. */
const hasty: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 1000, signal) };

const rounds = process.env["FENCELINE_LONG"] ? 10_000 : 1_000;

it(`memory stays flat over ${rounds} reconnects`, { timeout: 120 * rounds }, async () => {
  await using server = direct(cluster);
  await using through = await startProxy(cluster);
  const namespace = await cluster.namespace("reconnects");
  await scribble(server.client, namespace);
  let resumed = 0;
  const wanted = Promise.withResolvers<void>();
  const heap: number[] = [];
  await using follower = follow(through.transport, namespace, {
    clock: hasty,
    onResumed() {
      resumed++;
      if (resumed % (rounds / 10) === 0) {
        collect();
        heap.push(process.memoryUsage().heapUsed / 2 ** 20);
      }
      if (resumed === rounds) wanted.resolve();
      else setImmediate(() => through.proxy.wire.cut());
    },
  });
  await follower.reflector.synced();
  await expect.poll(() => through.proxy.counts()["watch leases"]).toBe(1);
  through.proxy.wire.cut();
  await wanted.promise;
  await untilLevel(follower, server.client, namespace, 30_000);
  expect(follower.reflector.stats().interruptions).toBeGreaterThanOrEqual(rounds);
  expect(through.proxy.wire.connections()).toBeLessThanOrEqual(4);
  // The first tenth is warm-up: code, pools, the proxy's own.
  const [warm = 0, ...later] = heap;
  console.log(`heap in MiB at each tenth: ${heap.map((mib) => mib.toFixed(1)).join(" ")}`);
  expect(Math.min(...later.slice(-3))).toBeLessThan(warm + 3);
});
