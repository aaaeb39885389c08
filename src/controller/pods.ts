/**
 * Rights given back from outside, where the agent could not: it was killed, or never got its signal.
 *
 * Only a container's own end, as its kubelet told it, proves that no work runs any more. A pod that vanished proves
 * nothing, nor does a phase that was set because its node is silent: there the lease runs out.
 */
import { injectLabel, podAnnotations } from "../api/injection.ts";
import type { PodObject } from "../api/k8s.ts";
import { leaseFormat, released, renewal, validCredit } from "../core/lease.ts";
import { podKind } from "../kube/kinds.ts";
import { keyOf, type Leases } from "../kube/leases.ts";
import { makeQueue, type Reconciled } from "../kube/queue.ts";
import { makeReflector } from "../kube/reflector.ts";
import type { Transport } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";

export interface PodEndsDeps {
  transport: Transport;
  leases: Leases;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** Pods that end at the same time: each waits for the API server most of the time. */
const concurrency = 2;

/** Whether every container of the app has ended for good. Its agent, a sidecar, is none of them. */
export const workIsOver = ({ spec, status }: PodObject): boolean => {
  const over = status?.phase === "Succeeded" || status?.phase === "Failed";
  return spec.containers.every(({ name, restartPolicy = spec.restartPolicy, restartPolicyRules }) => {
    const ended = status?.containerStatuses?.find((each) => each.name === name)?.state?.terminated;
    if (ended === undefined) return false;
    if (over) return true;
    if (restartPolicyRules !== undefined && restartPolicyRules.length > 0) return false;
    return restartPolicy === "Never" || (restartPolicy === "OnFailure" && ended.exitCode === 0);
  });
};

/** Names in the pod's annotation; what is none names no Lease either. */
const resourcesOf = ({ metadata }: PodObject): string[] => [
  ...new Set((metadata.annotations?.[podAnnotations.resources] ?? "").split(",").map((name) => name.trim())),
];

/** Gives back what this pod's attempt holds of one resource, if it does. Throws where that may be known later. */
const giveBack = async (deps: PodEndsDeps, pod: PodObject, name: string, signal: AbortSignal) => {
  const { leases, clock, log } = deps;
  const resource = { namespace: pod.metadata.namespace ?? "", name };
  const lease = await leases.get(resource, signal);
  const holder = lease?.view.holder;
  if (lease === undefined || holder === undefined || !holder.startsWith(`pod:${pod.metadata.uid}/`)) return;
  const token = validCredit(lease.view)?.token;
  if (token === undefined || lease.view.format > leaseFormat) return;
  if (renewal(lease.view, holder, token).kind !== "renew") return;
  const written = await leases.write(resource, lease, released(lease.view, clock.wall()), signal);
  if (written.outcome !== "ok")
    throw new Error(`the Lease of ${keyOf(resource)} was not given back: ${written.outcome}`);
  log.info({ resource: keyOf(resource), holder, token }, "released for a pod whose containers have ended");
};

/** Watches the pods that opted in until `signal` is aborted. For the leader alone. */
export const releaseForEndedPods = async (deps: PodEndsDeps, signal: AbortSignal): Promise<void> => {
  const { transport, clock, random, log } = deps;
  const reconcile = async (key: string): Promise<Reconciled> => {
    const [namespace = "", name = ""] = key.split("/");
    const pod = pods.get({ namespace, name });
    if (pod === undefined || !workIsOver(pod)) return {};
    for (const resource of resourcesOf(pod)) if (resource !== "") await giveBack(deps, pod, resource, signal);
    return {};
  };
  const queue = makeQueue({ name: "pods", reconcile, concurrency, clock, random, log });
  const pods = makeReflector<PodObject>({
    transport,
    clock,
    random,
    log,
    kind: podKind,
    labelSelector: `${injectLabel}=true`,
    onChange({ type, object }) {
      const { namespace = "", name } = object.metadata;
      if (type !== "deleted" && workIsOver(object)) queue.add(keyOf({ namespace, name }));
    },
  });
  await pods.start(signal);
  await queue.drain(signal);
};
