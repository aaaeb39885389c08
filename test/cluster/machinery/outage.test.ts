import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { makeElection } from "../../../src/kube/leader.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Connection, connect } from "./connect.ts";

let lab: Lab;
beforeAll(async () => {
  lab = await startApi();
});
afterAll(() => lab?.[Symbol.asyncDispose]());
afterEach(() => lab.heal());
collectOnFailure(() => lab);

const durationSeconds = 6;

/** Candidates in this process, and a watch over how many of them lead. */
const race = (connections: readonly Connection[], namespace: string) => {
  const stop = new AbortController();
  let working = 0;
  let most = 0;
  const elections = connections.map(({ client }, index) =>
    makeElection({
      client,
      ref: { namespace, name: "leader" },
      identity: `candidate-${index}`,
      durationSeconds,
      clock: systemClock,
      random: systemRandom,
      log: silentLogger,
      lead: async (signal) => {
        most = Math.max(most, ++working);
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        working--;
      },
    }),
  );
  const runs = elections.map((election) => election.run(stop.signal));
  const leader = () => elections.findIndex((election) => election.isLeader());
  return {
    leader,
    most: () => most,
    end: async () => {
      stop.abort();
      await Promise.all(runs);
    },
  };
};

describe("leader election through an outage", () => {
  it("stops when the API server is away for longer than a term, and one leads when it is back", async () => {
    await using one = await connect(lab);
    await using two = await connect(lab);
    const namespace = await lab.namespace("outage");
    const { leader, most, end } = race([one, two], namespace);
    await expect.poll(leader, { timeout: 30_000 }).not.toBe(-1);

    await lab.apiserver.kill();
    await expect.poll(leader, { timeout: 20_000 }).toBe(-1);
    await lab.apiserver.start();
    await expect.poll(leader, { timeout: 40_000 }).not.toBe(-1);
    await end();
    expect(most()).toBe(1);
    const lease = await one.client.get(leaseKind, { namespace, name: "leader" });
    expect(lease).toMatchObject({ outcome: "found", object: { spec: { holderIdentity: "" } } });
  });

  it("hands over when only the leader is cut off, and the one that comes back does not lead beside it", async () => {
    await using one = await connect(lab);
    await using two = await connect(lab);
    const namespace = await lab.namespace("outage");
    const { leader, most, end } = race([one, two], namespace);
    await expect.poll(leader, { timeout: 30_000 }).not.toBe(-1);
    const first = leader();
    const cut = (first === 0 ? one : two).proxy.wire.halfOpen("both");

    await expect.poll(leader, { timeout: 40_000 }).toBe(1 - first);
    cut.heal();
    const cutOff = first === 0 ? one : two;
    const seen = cutOff.proxy.total({ verb: "get", resource: "leases" });
    await expect
      .poll(() => cutOff.proxy.total({ verb: "get", resource: "leases" }), { timeout: 30_000 })
      .toBeGreaterThan(seen + 1);
    expect(leader()).toBe(1 - first);
    await end();
    expect(most()).toBe(1);
  });

  it("a renewal that was applied without an answer costs nothing: the same one goes on", async () => {
    await using only = await connect(lab);
    const namespace = await lab.namespace("outage");
    const { leader, most, end } = race([only], namespace);
    await expect.poll(leader, { timeout: 30_000 }).toBe(0);
    const lost = only.proxy.loseAnswer({ verb: "update", resource: "leases" }, { times: 1 });
    await lost.hit(1);
    const renewals = only.proxy.total({ verb: "update", resource: "leases" });
    await expect
      .poll(() => only.proxy.total({ verb: "update", resource: "leases" }), { timeout: 30_000 })
      .toBeGreaterThan(renewals + 1);
    expect(leader()).toBe(0);
    const lease = await only.client.get(leaseKind, { namespace, name: "leader" });
    expect(lease).toMatchObject({
      outcome: "found",
      object: { spec: { holderIdentity: "candidate-0", leaseTransitions: 0 } },
    });
    await end();
    expect(most()).toBe(1);
  });
});
