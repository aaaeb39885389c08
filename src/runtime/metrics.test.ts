import { describe, expect, it } from "vitest";
import { makeHolderMetrics, makeMetrics, outcomes } from "./metrics.ts";

/** Names of the contract that controller and coordinator serve. */
const names = [
  "acquire_duration_seconds",
  "acquire_total",
  "acquire_waiters",
  "advance_duration_seconds",
  "boundary_mark_regressions_total",
  "evictions_total",
  "handover_duration_seconds",
  "hold_duration_seconds",
  "kube_requests_total",
  "lease_age_seconds",
  "lease_expired_total",
  "lease_lost_total",
  "missing_token_rejections_total",
  "ownership_transfers_total",
  "reconcile_duration_seconds",
  "release_total",
  "renew_duration_seconds",
  "renew_total",
  "stale_rejections_total",
  "token_gaps_total",
  "tokens_reserved_total",
  "watch_restarts_total",
  "webhook_duration_seconds",
].map((name) => `fenceline_${name}`);

const namesOf = (text: string): string[] =>
  [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name ?? "");

describe("S1-56 metrics", () => {
  it("have exactly the published names", async () => {
    const { registry } = makeMetrics({ perResource: false });
    expect(namesOf(await registry.metrics()).toSorted()).toEqual(names);
  });

  it("tell each resource's tokens only where that was asked for", async () => {
    expect(makeMetrics({ perResource: false }).resourceToken).toBeUndefined();
    const { registry, resourceToken } = makeMetrics({ perResource: true });
    resourceToken?.set({ resource: "shop/orders", kind: "granted" }, 42);
    expect(await registry.metrics()).toContain(
      'fenceline_resource_token{resource="shop/orders",kind="granted"} 42',
    );
  });

  it("are zero from the start where the values of a label are known (S1-47)", async () => {
    const { registry } = makeMetrics({ perResource: false });
    const text = await registry.metrics();
    for (const verb of ["acquire", "renew", "release"] as const)
      for (const outcome of outcomes[verb])
        expect(text).toContain(`fenceline_${verb}_total{outcome="${outcome}"} 0`);
    expect(text).toContain('fenceline_lease_lost_total{reason="superseded"} 0');
    expect(text).toContain('fenceline_ownership_transfers_total{reason="released"} 0');
    expect(text).toContain('fenceline_stale_rejections_total{boundary="PostgreSQL"} 0');
    expect(text).toContain("fenceline_lease_expired_total 0");
  });

  it("have no label without a bound", () => {
    const { registry } = makeMetrics({ perResource: false });
    const labels = registry
      .getMetricsAsArray()
      .flatMap((metric) => ("labelNames" in metric ? (metric.labelNames as string[]) : []));
    expect([...new Set(labels)].toSorted()).toEqual(
      ["boundary", "code", "outcome", "reason", "resource", "verb"].toSorted(),
    );
  });

  it("live in a registry of their own each", () => {
    makeMetrics({ perResource: true });
    expect(() => makeMetrics({ perResource: true })).not.toThrow();
  });

  it("of a holder tell its states and its work after a loss", async () => {
    const { registry } = makeHolderMetrics(["held", "lost"]);
    const text = await registry.metrics();
    expect(text).toContain('fenceline_agent_state{state="held"} 0');
    expect(namesOf(text)).toEqual(["fenceline_agent_state", "fenceline_work_after_loss_seconds"]);
  });
});
