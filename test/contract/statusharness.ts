/** The store `Status` over any KubeClient: the model of the API server, or the real one. */
import { fencedSequenceKind } from "../../src/kube/kinds.ts";
import type { KubeClient, WriteResult } from "../../src/kube/types.ts";
import { confirmDelete, apiVersion, sequenceName } from "../../src/api/names.ts";
import type { FencedSequence } from "../../src/api/fencedsequence.ts";
import type { ResourceKey } from "../../src/store/port.ts";
import { makeStatusStore } from "../../src/store/status.ts";
import { systemClock, systemRandom } from "../../src/runtime/clock.ts";
import type { StoreHarness } from "./store.ts";

const issuer = "this-cluster";

const done = <T>(result: WriteResult<T>): T => {
  if (result.outcome !== "ok") throw new Error(`${result.outcome}: ${JSON.stringify(result)}`);
  return result.object;
};

export type Flake = "answer-lost" | "request-lost" | "conflict";

/** A client whose next `times` writes go wrong in one way. */
const flakyClient = (client: KubeClient, fault: Flake, times: number): KubeClient => {
  let left = times;
  const spoiled = async <T>(write: () => Promise<WriteResult<T>>): Promise<WriteResult<T>> => {
    if (left <= 0) return write();
    left -= 1;
    if (fault === "answer-lost") await write();
    return fault === "conflict"
      ? { outcome: "conflict", message: "spoiled" }
      : { outcome: "unknown", message: "spoiled" };
  };
  return {
    ...client,
    create: (kind, draft, signal) => spoiled(() => client.create(kind, draft, signal)),
    update: (kind, draft, signal) => spoiled(() => client.update(kind, draft, signal)),
    updateStatus: (kind, draft, signal) => spoiled(() => client.updateStatus(kind, draft, signal)),
  };
};

/** `copies`: whether the server lets a status be written that names another object. */
export const statusHarness = (client: KubeClient, { copies }: { copies: boolean }): StoreHarness => {
  const get = async (resource: ResourceKey): Promise<FencedSequence> => {
    const found = await client.get(fencedSequenceKind, { name: sequenceName(resource) });
    if (found.outcome === "absent") throw new Error(`no sequence of ${resource}`);
    return found.object;
  };
  const make = async (resource: ResourceKey): Promise<FencedSequence> =>
    done(
      await client.create(fencedSequenceKind, {
        apiVersion,
        kind: "FencedSequence",
        metadata: { name: sequenceName(resource) },
        spec: { resource },
      }),
    );
  const remove = async (resource: ResourceKey) => {
    const ref = { name: sequenceName(resource) };
    done(
      await client.patch(fencedSequenceKind, ref, {
        metadata: { annotations: { [confirmDelete]: resource } },
      }),
    );
    done(await client.remove(fencedSequenceKind, ref, {}));
  };
  const harness: StoreHarness = {
    issuer,
    store: (other = issuer) =>
      makeStatusStore({ client, issuer: other, clock: systemClock, random: systemRandom }),
    async seal(resource) {
      const sequence = await get(resource);
      if (sequence.status === undefined) throw new Error("not opened");
      done(
        await client.updateStatus(fencedSequenceKind, {
          ...sequence,
          status: { ...sequence.status, sealed: true },
        }),
      );
    },
    remove,
    async makeUnopened(resource) {
      await make(resource);
    },
    flaky: (fault, times) =>
      makeStatusStore({
        client: flakyClient(client, fault, times),
        issuer,
        clock: systemClock,
        random: systemRandom,
      }),
  };
  if (copies)
    harness.copy = async (resource, claims = {}) => {
      const { status } = await get(resource);
      if (status === undefined) throw new Error("not opened");
      await remove(resource);
      const made = await make(resource);
      done(await client.updateStatus(fencedSequenceKind, { ...made, status: { ...status, ...claims } }));
    };
  return harness;
};
