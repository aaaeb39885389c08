import { expect, test } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import type { FencedResource } from "../api/fencedresource.ts";
import type { LeaseObject } from "../api/lease.ts";
import { leaseAnnotations, resourceLabel } from "../api/names.ts";
import type { EventRecorder, Happening } from "../kube/events.ts";
import { readLease } from "../kube/leases.ts";
import { makeBook } from "./book.ts";
import { makeWaitingEvents } from "./waiting.ts";

const resource = { namespace: "shop", name: "orders" };

const setUp = (spec: LeaseObject["spec"], notes: Record<string, string> = {}) => {
  const told: Happening[] = [];
  const events: EventRecorder = {
    record: (happening) => told.push(happening),
    flush: async () => {},
    dropped: () => 0,
  };
  const book = makeBook(makeFakeClock());
  const metadata = {
    name: "fenceline-orders",
    namespace: "shop",
    uid: "lease-uid",
    resourceVersion: "1",
    labels: { [resourceLabel]: "orders" },
    annotations: {
      [leaseAnnotations.token]: "41",
      [leaseAnnotations.ceiling]: "64",
      [leaseAnnotations.creditUid]: "lease-uid",
      ...notes,
    },
  };
  book.put(resource, readLease({ metadata, spec }, resource));
  const known = { metadata: { uid: "resource-uid" } } as FencedResource;
  return { told, wait: makeWaitingEvents({ book, events, resources: { get: () => known } }) };
};

const call = (identity: string, pod: string | undefined) => ({
  resource,
  caller: { identity, attempt: "attempt" },
  note: { pod, label: undefined },
  waitMs: 30_000,
});

test("a waiting pod is told who has the resource, with which token, and since when", () => {
  const { told, wait } = setUp(
    { holderIdentity: "pod:first/attempt", acquireTime: "2026-01-01T10:00:00.123456Z" },
    { [leaseAnnotations.holderPod]: "worker-1" },
  );
  wait(call("pod:second", "worker-2"));
  expect(told).toEqual([
    {
      regarding: {
        apiVersion: "fenceline.dev/v1alpha1",
        kind: "FencedResource",
        namespace: "shop",
        name: "orders",
        uid: "resource-uid",
      },
      pod: { apiVersion: "v1", kind: "Pod", namespace: "shop", name: "worker-2", uid: "second" },
      reason: "Waiting",
      note: "worker-2 waits for shop/orders: worker-1 (token 41) has it since 2026-01-01T10:00:00Z",
    },
  ]);
});

test("a pod that waits for nobody is told so; who is no pod is told nothing", () => {
  const { told, wait } = setUp({});
  wait(call("user:somebody", undefined));
  expect(told).toEqual([]);
  wait(call("pod:second", "worker-2"));
  expect(told[0]?.note).toContain("it is about to be granted to another attempt, or is not free yet");
});
