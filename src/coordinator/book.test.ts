import { describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import type { LeaseObject } from "../api/lease.ts";
import { leaseAnnotations, resourceLabel } from "../api/names.ts";
import type { Token } from "../core/token.ts";
import { readLease } from "../kube/leases.ts";
import { makeBook } from "./book.ts";

const orders = { namespace: "shop", name: "orders" };

const lease = (resourceVersion: string, { uid = "l1", token = "1", holder = "pod:a/1" } = {}) => {
  const object: LeaseObject = {
    metadata: {
      name: "fenceline-orders",
      namespace: "shop",
      uid,
      resourceVersion,
      labels: { [resourceLabel]: "orders" },
      annotations: {
        [leaseAnnotations.token]: token,
        [leaseAnnotations.ceiling]: "64",
        [leaseAnnotations.creditUid]: uid,
      },
    },
    spec: { holderIdentity: holder, leaseDurationSeconds: 15 },
  };
  return readLease(object, orders);
};

const start = () => {
  const clock = makeFakeClock();
  return { clock, book: makeBook(clock) };
};

describe("what is known", () => {
  it("is the newest version, wherever it came from, compared as a number", () => {
    const { book } = start();
    book.put(orders, lease("99"));
    book.put(orders, lease("100", { token: "2" }));
    expect(book.put(orders, lease("99")).lease.view.resourceVersion).toBe("100");
    expect(book.get(orders)?.lease.view.resourceVersion).toBe("100");
  });

  it("is nothing after a deletion, unless the deletion is of an earlier Lease", () => {
    const { book } = start();
    book.put(orders, lease("7", { uid: "l2" }));
    book.drop(orders, "l1");
    expect(book.get(orders)).toBeDefined();
    book.drop(orders, "l2");
    expect(book.get(orders)).toBeUndefined();
  });

  it("wakes whoever listens when it changes, and only then", () => {
    const { book } = start();
    let rings = 0;
    const quiet = book.onChange(orders, () => {
      rings += 1;
    });
    book.put(orders, lease("7"));
    book.put(orders, lease("7"));
    book.put(orders, lease("6"));
    expect(rings).toBe(1);
    book.drop(orders);
    book.drop(orders);
    expect(rings).toBe(2);
    book.put({ namespace: "shop", name: "other" }, lease("9"));
    expect(rings).toBe(2);
    quiet();
    book.put(orders, lease("10"));
    expect(rings).toBe(2);
  });
});

describe("S1-46 since when it stands", () => {
  it("counts over versions that say the same, and anew with each change", async () => {
    const { clock, book } = start();
    book.put(orders, lease("7"));
    await clock.advance(5_000);
    expect(book.put(orders, lease("8")).observation.since).toBe(0);
    expect(book.put(orders, lease("9", { holder: "pod:b/1" })).observation.since).toBe(5_000);
  });

  it("does not count while the watch is interrupted, and begins anew after it", async () => {
    const { clock, book } = start();
    book.put(orders, lease("7"));
    expect(book.level()).toBe(true);
    book.interrupted();
    await clock.advance(60_000);
    expect(book.level()).toBe(false);
    expect(book.get(orders)?.observation.since).toBe(60_000);
    expect(book.put(orders, lease("7")).observation.since).toBe(60_000);
    book.resumed();
    await clock.advance(1_000);
    expect(book.get(orders)?.observation.since).toBe(60_000);
  });
});

describe("FM-29 suspicion", () => {
  const seen = (book: ReturnType<typeof makeBook>) => book.suspect(orders)?.seen;

  it("is none without a reason", () => {
    const { book } = start();
    book.put(orders, lease("7", { token: "41" }));
    expect(book.suspect(orders)).toBeUndefined();
  });

  it("after a restore knows the highest token of all versions, and forgets the versions", () => {
    const { book } = start();
    book.put(orders, lease("7", { token: "41" }));
    book.put(orders, lease("8", { uid: "l2", token: "3" }));
    book.regressed();
    expect(book.get(orders)).toBeUndefined();
    expect(seen(book)).toBe(41n);
    expect(book.put(orders, lease("5", { token: "32" })).lease.view.resourceVersion).toBe("5");
    expect(seen(book)).toBe(41n);
  });

  it("ends when it is answered for; a later reason begins it again", () => {
    const { book } = start();
    book.testify(orders, 45n as Token);
    const first = book.suspect(orders);
    if (first === undefined) throw new Error("nothing suspected");
    book.testify(orders, 50n as Token);
    book.mended(orders, first);
    expect(seen(book)).toBe(50n);
    const second = book.suspect(orders);
    if (second !== undefined) book.mended(orders, second);
    expect(seen(book)).toBeUndefined();
    book.regressed();
    expect(seen(book)).toBe(50n);
  });

  it("is each resource's own", () => {
    const { book } = start();
    book.testify(orders, 45n as Token);
    expect(book.suspect({ namespace: "shop", name: "other" })).toBeUndefined();
  });
});
