import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { lossReasons, type ProblemCode } from "../api/problem.ts";

/** What can come of a request besides success: the codes of its answers. */
const refusals = [
  "outcome_unknown",
  "store_unavailable",
  "not_ready",
  "overloaded",
  "unknown_resource",
  "unauthenticated",
  "forbidden",
  "invalid_request",
  "payload_too_large",
] as const satisfies readonly ProblemCode[];

/** Label values, zero from the start, so that the first one is seen as a rise. */
export const outcomes = {
  acquire: [
    "granted",
    "busy",
    "lost",
    "boundary_closed",
    "tokens_exhausted",
    "issuer_mismatch",
    ...refusals,
  ] as const,
  renew: ["renewed", "lost", ...refusals] as const,
  /** `unchanged`: late or repeated, nothing was there to release. */
  release: ["released", "unchanged", ...refusals] as const,
};

/** Why a resource went from one attempt to the next: how the earlier one ended. */
const transferReasons = ["released", "superseded", "forced", "deleted"] as const;

/** Boundaries that can refuse a stale write. */
const boundaries = ["PostgreSQL", "Gateway", "Kubernetes"] as const;

const fast = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const leaseSeconds = [0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 900, 3600];
const holdSeconds = [1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600];

const prefixed = <const Name extends string>(name: Name) => `fenceline_${name}` as const;

const counter = <Label extends string = never>(
  registers: Registry[],
  name: string,
  help: string,
  known: Partial<Record<Label, readonly string[]>> = {},
  more: readonly Label[] = [],
): Counter<Label> => {
  const [label, values] = (Object.entries(known) as [Label, readonly string[]][])[0] ?? [];
  const made = new Counter<Label>({
    name: prefixed(name),
    help,
    labelNames: label ? [label, ...more] : more,
    registers,
  });
  if (label) for (const value of values ?? []) made.inc({ [label]: value } as Record<Label, string>, 0);
  return made;
};

const histogram = (registers: Registry[], name: string, help: string, buckets: number[]): Histogram =>
  new Histogram({ name: prefixed(name), help, buckets, registers });

export interface MetricsOptions {
  /** Also tells the tokens of each resource: one series per resource and kind. */
  perResource: boolean;
}

/** The metrics of controller and coordinator, in a registry of their own. Names are a public surface. */
export const makeMetrics = ({ perResource }: MetricsOptions) => {
  const registry = new Registry();
  const to = [registry];
  return {
    registry,
    acquireTotal: counter(to, "acquire_total", "Answers to acquire.", { outcome: outcomes.acquire }),
    acquireDuration: histogram(
      to,
      "acquire_duration_seconds",
      "Time from an acquire's arrival to its answer, waiting included.",
      fast,
    ),
    acquireWaiters: new Gauge({
      name: prefixed("acquire_waiters"),
      help: "Attempts that wait on this replica.",
      registers: to,
    }),
    renewTotal: counter(to, "renew_total", "Answers to renew.", { outcome: outcomes.renew }),
    renewDuration: histogram(
      to,
      "renew_duration_seconds",
      "Time from a renewal's arrival to its answer.",
      fast,
    ),
    releaseTotal: counter(to, "release_total", "Answers to release.", { outcome: outcomes.release }),
    leaseExpiredTotal: counter(to, "lease_expired_total", "Leases seen to expire with a holder."),
    leaseLostTotal: counter(to, "lease_lost_total", "Attempts that were told that they lost, by reason.", {
      reason: lossReasons,
    }),
    leaseAge: histogram(
      to,
      "lease_age_seconds",
      "Time since the last renewal, at each renewal: how close holders come to their deadline.",
      leaseSeconds,
    ),
    holdDuration: histogram(to, "hold_duration_seconds", "Time from a grant to its end.", holdSeconds),
    ownershipTransfersTotal: counter(
      to,
      "ownership_transfers_total",
      "Grants that followed another attempt's, by how that one ended.",
      { reason: transferReasons },
    ),
    handoverDuration: histogram(
      to,
      "handover_duration_seconds",
      "Time from the end of one attempt to the answered grant of a waiting one.",
      fast,
    ),
    staleRejectionsTotal: counter(
      to,
      "stale_rejections_total",
      "Writes with an old token that a boundary refused.",
      { boundary: boundaries },
    ),
    missingTokenRejectionsTotal: counter(
      to,
      "missing_token_rejections_total",
      "Writes without a token that a boundary refused.",
      { boundary: boundaries },
    ),
    evictionsTotal: counter(
      to,
      "evictions_total",
      "Sessions ended because they kept a boundary from learning of a token.",
    ),
    advanceDuration: histogram(
      to,
      "advance_duration_seconds",
      "Time that a boundary took to learn of a token.",
      fast,
    ),
    boundaryMarkRegressionsTotal: counter(
      to,
      "boundary_mark_regressions_total",
      "Boundaries whose mark was found below a granted token.",
    ),
    tokensReservedTotal: counter(to, "tokens_reserved_total", "Tokens reserved from sequences."),
    tokenGapsTotal: counter(to, "token_gaps_total", "Tokens reserved and never granted."),
    kubeRequestsTotal: counter<"verb" | "resource" | "code">(
      to,
      "kube_requests_total",
      "Requests to the API server; code is the HTTP status, or `none` without an answer.",
      {},
      ["verb", "resource", "code"],
    ),
    watchRestartsTotal: counter(to, "watch_restarts_total", "Watches that were opened again."),
    reconcileDuration: histogram(to, "reconcile_duration_seconds", "Time of one reconcile.", fast),
    webhookDuration: histogram(to, "webhook_duration_seconds", "Time to decide on one pod.", fast),
    /** Only with `perResource`. Remove the series of a resource that is gone. */
    resourceToken: perResource
      ? new Gauge({
          name: prefixed("resource_token"),
          help: "Tokens of a resource: highest granted, the boundary's mark, the sequence's ceiling.",
          labelNames: ["resource", "kind"] as const,
          registers: to,
        })
      : undefined,
  };
};

export type Metrics = ReturnType<typeof makeMetrics>;

/** The metrics of a process that holds resources. */
export const makeHolderMetrics = (states: readonly string[]) => {
  const registry = new Registry();
  const to = [registry];
  const agentState = new Gauge({
    name: prefixed("agent_state"),
    help: "Holdings of this process in each state.",
    labelNames: ["state"] as const,
    registers: to,
  });
  for (const state of states) agentState.set({ state }, 0);
  return {
    registry,
    agentState,
    workAfterLoss: histogram(
      to,
      "work_after_loss_seconds",
      "Time that work went on after its right was lost.",
      leaseSeconds,
    ),
  };
};
