import { beforeAll, describe, expect, it } from "vitest";
import { buildPeer, Candidate, takeover } from "../../bench/clientgo/peer.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";

const cluster = sharedCluster();
/** Seconds: short, for a test. The bench takes the usual ones. */
const timings = { lease: 3, deadline: 2, retry: 0.5 };
let binary: string;

beforeAll(async () => {
  binary = await buildPeer();
}, 600_000);

const options = async () => ({
  binary,
  kubeconfig: cluster.kubeconfig,
  context: cluster.context,
  namespace: await cluster.namespace("peer"),
  timings,
});

describe("the client-go peer", () => {
  it("hands over when its leader is told to end", async () => {
    const { takeoverMs, workedOnMs } = await takeover("SIGTERM", await options(), 0);
    expect(takeoverMs).toBeGreaterThan(0);
    expect(workedOnMs).toBeUndefined();
  });

  it("takes over a killed leader once its lease is over", async () => {
    const { takeoverMs } = await takeover("SIGKILL", await options(), 0);
    expect(takeoverMs).toBeGreaterThan(0);
  });

  it("shows a stopped leader that wakes while another leads", async () => {
    const { takeoverMs, workedOnMs } = await takeover("SIGSTOP", await options(), 0);
    expect(takeoverMs).toBeGreaterThan(0);
    expect(workedOnMs).toBeGreaterThan(0);
  });

  it("says what is wrong when it cannot start", async () => {
    await using candidate = new Candidate({
      ...(await options()),
      kubeconfig: "/nowhere",
      name: "a",
      id: "a",
    });
    await expect(candidate.event("leading")).rejects.toThrow("/nowhere");
  });
});
