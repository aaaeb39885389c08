/** Writes the history of one run. Every moment is later than the one before, by very little where time stands still. */
import { leaseAnnotations } from "../../src/api/names.ts";
import { leaseKind } from "../../src/kube/kinds.ts";
import { readLease } from "../../src/kube/leases.ts";
import { grantedToken } from "../../src/core/lease.ts";
import type { CommitEvent, HistoryEvent } from "../support/histories/history.ts";
import type { Commit } from "../support/memapi/history.ts";
import type { TrueTime } from "./time.ts";

/** Far below any delay, far above the rounding of a number of milliseconds. */
const tick = 1e-6;

export interface Recorder {
  history: HistoryEvent[];
  stamp(): number;
  note<E extends HistoryEvent>(event: E): E;
}

export const makeRecorder = (time: TrueTime): Recorder => {
  const history: HistoryEvent[] = [];
  let last = 0;
  return {
    history,
    stamp() {
      last = Math.max(last + tick, time.now());
      return last;
    },
    note(event) {
      history.push(event);
      return event;
    },
  };
};

/** The Lease of a commit as a history tells it; undefined for everything that is no Lease of a resource. */
export const leaseCommit = (
  { now, last, resource }: Commit,
  at: number,
  boundaryName: (hash: string | undefined) => string | undefined,
): CommitEvent | undefined => {
  if (!resource.startsWith("leases.")) return undefined;
  const name = last.metadata.annotations?.[leaseAnnotations.resource];
  const { namespace } = last.metadata;
  if (name === undefined || namespace === undefined) return undefined;
  const of = `${namespace}/${name}`;
  if (now === undefined) return { kind: "commit", resource: of, at, lease: undefined };
  const { view, object } = readLease(leaseKind.parse(now), { namespace, name });
  return {
    kind: "commit",
    resource: of,
    at,
    lease: {
      uid: view.uid,
      holder: view.holder,
      token: grantedToken(view),
      durationSeconds: view.durationSeconds,
      renewTime: object.spec.renewTime,
      boundary: boundaryName(view.boundary),
    },
  };
};
