import type { LeaseObject } from "../../src/api/lease.ts";
import type { ElectionOptions } from "../../src/kube/leader.ts";
import type { Draft, Kind, KubeObject, WriteResult } from "../../src/kube/types.ts";
import type { FakeClock } from "./clock.ts";

/** What befalls one request. `lost`: applied and never answered; late on its way there, or its answer on the way back. */
export type Fate = "fine" | "lost" | "refused" | "down" | "hangs" | { lateMs: number; way: "there" | "back" };

const forever = (signal: AbortSignal | undefined): Promise<never> =>
  new Promise((_resolve, reject) => {
    if (signal?.aborted) reject(signal.reason);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });

const typed = <T extends KubeObject>(kind: Kind<T>, result: WriteResult<LeaseObject>): WriteResult<T> =>
  result.outcome === "ok" ? { outcome: "ok", object: kind.parse(result.object) } : result;

/** One Lease, as the API server keeps it: compare-and-set on uid and resourceVersion. */
export const makeLeaseServer = (clock: FakeClock) => {
  let lease: LeaseObject | undefined;
  let version = 0;
  let uids = 0;
  const requests: string[] = [];

  const stored = (draft: Draft<LeaseObject>, uid: string): LeaseObject => {
    const object = { ...draft, metadata: { ...draft.metadata, uid, resourceVersion: String(++version) } };
    lease = object;
    return object;
  };
  const writes = {
    create: (draft: Draft<LeaseObject>): WriteResult<LeaseObject> =>
      lease
        ? { outcome: "exists", message: "exists" }
        : { outcome: "ok", object: stored(draft, `uid-${++uids}`) },
    update: (draft: Draft<LeaseObject>): WriteResult<LeaseObject> =>
      lease &&
      lease.metadata.uid === draft.metadata.uid &&
      lease.metadata.resourceVersion === draft.metadata.resourceVersion
        ? { outcome: "ok", object: stored(draft, lease.metadata.uid) }
        : { outcome: "conflict", message: "conflict" },
  };

  /** A client whose requests meet the fates that `fate` deals out. */
  const client = (fate: (verb: string) => Fate): ElectionOptions["client"] => {
    const write = async (verb: "create" | "update", draft: unknown, signal: AbortSignal | undefined) => {
      requests.push(verb);
      const met = fate(verb);
      if (met === "down") return { outcome: "unavailable", message: "no connection" } as const;
      if (met === "refused") return { outcome: "refused", status: 403, message: "forbidden" } as const;
      if (met === "hangs") {
        await forever(signal).catch(() => {});
        return { outcome: "unknown", message: "no answer" } as const;
      }
      const sent: Draft<LeaseObject> = JSON.parse(JSON.stringify(draft));
      // A late request is applied whether or not its sender still waits.
      if (typeof met === "object" && met.way === "there") await clock.sleep(met.lateMs);
      const result = writes[verb](sent);
      if (typeof met === "object" && met.way === "back") await clock.sleep(met.lateMs);
      if (met === "lost" || signal?.aborted)
        return { outcome: "unknown", message: "connection reset" } as const;
      return result;
    };
    return {
      get: async (kind, _ref, signal) => {
        requests.push("get");
        const met = fate("get");
        if (met === "hangs") return forever(signal);
        if (met === "down" || met === "refused") throw new Error("no connection");
        if (typeof met === "object" && met.way === "there") await clock.sleep(met.lateMs, signal);
        const now = lease;
        if (typeof met === "object" && met.way === "back") await clock.sleep(met.lateMs, signal);
        return now ? { outcome: "found", object: kind.parse(now) } : { outcome: "absent" };
      },
      create: async (kind, draft, signal) => typed(kind, await write("create", draft, signal)),
      update: async (kind, draft, signal) => typed(kind, await write("update", draft, signal)),
    };
  };

  return {
    requests,
    client,
    lease: () => lease,
    /** Another tool's hand. */
    edit: (change: (now: LeaseObject) => LeaseObject) => {
      if (lease) stored(change(lease), lease.metadata.uid);
    },
    remove: () => {
      lease = undefined;
    },
  };
};
