import { fencedResourceKind } from "../kube/kinds.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";

export interface WaiterMirror {
  /** `waiting` attempts wait for `namespace/name` on this replica. Returns at once. */
  note(resource: string, waiting: number): void;
  /** Takes back what this replica has written, as far as `signal` lets it. */
  clear(signal: AbortSignal): Promise<void>;
}

/** At most one write per resource in this time. */
const pauseMs = 1_000;

/** While somebody waits the count is told again, so that the controller can tell a living replica from a dead one. */
const repeatMs = 30_000;

/**
 * Tells `status.waitersByReplica` how many wait here, off the request path. It is for people: what cannot be written is
 * tried again with the next change, and nothing waits for it.
 */
export const makeWaiterMirror = (deps: {
  client: KubeClient;
  clock: Clock;
  log: Logger;
  replica: string;
}): WaiterMirror => {
  const { client, clock, log, replica } = deps;
  const wanted = new Map<string, number>();
  const written = new Map<string, number>();
  const timers = new Map<string, { cancel: () => void; ms: number }>();
  let beat = 0;

  const write = async (resource: string, waiting: number, signal?: AbortSignal) => {
    const [namespace, name = ""] = resource.split("/");
    const entry = waiting === 0 ? null : { count: waiting, beat: (beat += 1) };
    const patch = { status: { waitersByReplica: { [replica]: entry } } };
    const result = await client.patchStatus(fencedResourceKind, { namespace, name }, patch, signal);
    if (result.outcome === "ok" || result.outcome === "gone") written.set(resource, waiting);
    else log.debug({ resource, error: result.message }, "waiters not mirrored");
  };

  const arm = (resource: string, ms: number) => {
    const cancel = clock.timer(ms, () => {
      timers.delete(resource);
      void tell(resource);
    });
    timers.set(resource, { cancel, ms });
  };

  const tell = async (resource: string) => {
    const waiting = wanted.get(resource) ?? 0;
    if (waiting === 0 && (written.get(resource) ?? 0) === 0) {
      wanted.delete(resource);
      written.delete(resource);
      return;
    }
    await write(resource, waiting).catch((error: unknown) => {
      log.debug({ resource, error: String(error) }, "waiters not mirrored");
    });
    if (!timers.has(resource)) arm(resource, wanted.get(resource) === waiting ? repeatMs : pauseMs);
  };

  return {
    note(resource, waiting) {
      const before = wanted.get(resource) ?? 0;
      wanted.set(resource, waiting);
      if (before === waiting) return;
      const timer = timers.get(resource);
      // One that is due soon stays: put off by each change, it would never come where changes do not end.
      if (timer?.ms === pauseMs) return;
      timer?.cancel();
      arm(resource, pauseMs);
    },
    async clear(signal) {
      for (const { cancel } of timers.values()) cancel();
      timers.clear();
      const left = [...written].filter(([, waiting]) => waiting > 0).map(([resource]) => resource);
      await Promise.all(left.map((resource) => write(resource, 0, signal).catch(() => {})));
    },
  };
};
