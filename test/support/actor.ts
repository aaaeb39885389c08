/** Somebody who writes the Lease of a resource as the coordinator does, by the same decisions and without its service. */
import { resourceSpec } from "../../src/api/resourcespec.ts";
import {
  forced,
  grant,
  type HolderId,
  type HolderNote,
  type LeaseChange,
  type LeaseView,
  released,
  renewed,
  spend,
} from "../../src/core/lease.ts";
import type { Token } from "../../src/core/token.ts";
import { fencedResourceKind } from "../../src/kube/kinds.ts";
import { type FencedLease, keyOf, makeLeases, type ResourceName } from "../../src/kube/leases.ts";
import type { KubeClient, WriteResult } from "../../src/kube/types.ts";
import type { Clock, Random } from "../../src/runtime/clock.ts";
import { makeStatusStore } from "../../src/store/status.ts";

/** The object of a write that must have worked. */
export const written = <T>(result: WriteResult<T>): T => {
  if (result.outcome !== "ok") throw new Error(JSON.stringify(result));
  return result.object;
};

export const makeActor = (
  deps: { client: KubeClient; clock: Clock; random: Random; issuer: string },
  name: ResourceName,
) => {
  const { client, clock } = deps;
  const leases = makeLeases(client);
  const store = makeStatusStore(deps);
  const lease = async (): Promise<FencedLease> => {
    const found = await leases.get(name);
    if (found === undefined) throw new Error(`no Lease of ${keyOf(name)}`);
    return found;
  };
  const change = async (make: (view: LeaseView) => LeaseChange): Promise<FencedLease> => {
    const now = await lease();
    return written(await leases.write(name, now, make(now.view)));
  };
  return {
    store,
    lease,
    change,
    /** Credit first, else a block above it. */
    async grant(attempt: HolderId, note?: HolderNote): Promise<Token> {
      const found = await client.get(fencedResourceKind, name);
      if (found.outcome === "absent") throw new Error(`no FencedResource ${keyOf(name)}`);
      const resource = resourceSpec(found.object);
      const now = await lease();
      const next = spend(now.view, resource.floor);
      let tokens: { token: Token; ceiling: Token };
      if (next.kind === "spend") tokens = next;
      else {
        const block = await store.reserve(keyOf(name), resource.reserve, next.atLeast);
        if (block.outcome !== "reserved") throw new Error(JSON.stringify(block));
        tokens = { token: (block.base + 1n) as Token, ceiling: block.ceiling };
      }
      const view = grant(now.view, attempt, tokens, resource.durationSeconds, clock.wall(), note);
      written(await leases.write(name, now, view));
      return tokens.token;
    },
    renew: () => change((view) => renewed(view, view.durationSeconds ?? 15, clock.wall())),
    release: () => change((view) => released(view, clock.wall())),
    force: (why: string) => change((view) => forced(view, why, clock.wall())),
  };
};
