import { describe, expect, test } from "vitest";
import type { LeaseObject } from "../api/lease.ts";
import { leaseAnnotations, resourceLabel } from "../api/names.ts";
import { readLease } from "../kube/leases.ts";
import { adopted, judgeLease } from "./binding.ts";

const resource = { namespace: "shop", name: "orders" };

const lease = (metadata: Partial<LeaseObject["metadata"]>, holderIdentity?: string): LeaseObject => ({
  metadata: { namespace: "shop", name: "fenceline-orders", uid: "u", resourceVersion: "1", ...metadata },
  spec: holderIdentity === undefined ? {} : { holderIdentity },
});

const ours = { [resourceLabel]: "orders" };

describe("a Lease of our name", () => {
  const rows: [string, LeaseObject, object][] = [
    ["ours", lease({ labels: ours }, "user:a/1"), { kind: "bound" }],
    ["ours, going", lease({ labels: ours, deletionTimestamp: "t" }), { reason: "LeaseMissing" }],
    [
      "ours, of the future",
      lease({ labels: ours, annotations: { [leaseAnnotations.format]: "2" } }),
      { reason: "NewerFormat" },
    ],
    ["of another resource", lease({ labels: { [resourceLabel]: "other" } }), { reason: "ForeignLease" }],
    ["without label, held", lease({}, "somebody"), { reason: "ForeignLease" }],
    ["without label, going", lease({ deletionTimestamp: "t" }), { reason: "ForeignLease" }],
    ["without label, free", lease({}), { kind: "adopt" }],
    ["without label, given back", lease({}, ""), { kind: "adopt" }],
  ];
  test.each(rows)("FM-39 %s", (_, object, judged) => {
    expect(judgeLease(readLease(object, resource), resource)).toMatchObject(judged);
  });

  test("FM-39 an adopted one keeps what others put there, and nothing that could pass for a token", () => {
    const object = lease({
      labels: { team: "a" },
      annotations: { other: "kept", [leaseAnnotations.token]: "9", [leaseAnnotations.creditUid]: "u" },
    });
    expect(adopted({ ...object, spec: { leaseTransitions: 4 } }, resource)).toEqual({
      metadata: {
        ...object.metadata,
        labels: { team: "a", ...ours },
        annotations: { other: "kept", [leaseAnnotations.resource]: "orders", [leaseAnnotations.format]: "1" },
      },
      spec: {},
    });
  });
});
