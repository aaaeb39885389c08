import { describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import type { HolderId } from "../core/lease.ts";
import { makeWaiters, waitLimits } from "./waiters.ts";

const start = (limits = waitLimits) => {
  const clock = makeFakeClock();
  const told: string[] = [];
  const waiters = makeWaiters(clock, (resource, waiting) => told.push(`${resource} ${waiting}`), limits);
  const join = (name: string, resource = "shop/orders") =>
    waiters.join(resource, `pod:${name}/1` as HolderId, `pod:${name}`);
  const seat = (name: string, resource?: string) => {
    const place = join(name, resource);
    if (place === undefined) throw new Error("no seat");
    return place;
  };
  return { clock, told, waiters, join, seat };
};

describe("a queue", () => {
  it("is first in, first out, and moves up when somebody leaves", () => {
    const { seat, waiters } = start();
    const [a, b, c] = [seat("a"), seat("b"), seat("c")];
    expect([a.ahead(), b.ahead(), c.ahead()]).toEqual([0, 1, 2]);
    b.leave();
    expect([a.ahead(), c.ahead()]).toEqual([0, 1]);
    a.leave();
    expect(c.ahead()).toBe(0);
    expect(waiters.count("shop/orders")).toBe(1);
  });

  it("keeps a seat for 5 s between two polls of one attempt, and no longer", async () => {
    const { clock, seat } = start();
    const first = seat("a");
    const b = seat("b");
    first.pause();
    await clock.advance(4_999);
    expect(b.ahead()).toBe(1);
    const again = seat("a");
    expect(again.ahead()).toBe(0);
    await clock.advance(60_000);
    expect(b.ahead()).toBe(1);
    again.pause();
    await clock.advance(5_000);
    expect(b.ahead()).toBe(0);
  });

  it("keeps a seat while any poll sits on it", async () => {
    const { clock, seat } = start();
    const first = seat("a");
    const second = seat("a");
    const b = seat("b");
    first.pause();
    await clock.advance(60_000);
    expect(b.ahead()).toBe(1);
    second.pause();
    second.pause();
    await clock.advance(5_000);
    expect(b.ahead()).toBe(0);
  });

  it("is one of many: another resource has its own", () => {
    const { seat } = start();
    seat("a");
    expect(seat("b", "shop/other").ahead()).toBe(0);
  });

  it("tells who listens, and how many wait, on each change; and leaves nothing behind", async () => {
    const { clock, told, seat, waiters } = start();
    let rings = 0;
    const quiet = waiters.onChange("shop/orders", () => {
      rings += 1;
    });
    const a = seat("a");
    const b = seat("b");
    a.leave();
    a.leave();
    b.pause();
    await clock.advance(5_000);
    expect(rings).toBe(4);
    expect(told).toEqual(["shop/orders 1", "shop/orders 2", "shop/orders 1", "shop/orders 0"]);
    expect([waiters.total(), clock.pending()]).toEqual([0, 0]);
    quiet();
  });
});

describe("limits", () => {
  it("hold per resource, per identity and in all; a seat that is there already stays open", () => {
    const { join, waiters } = start({ perResource: 2, perIdentity: 1, total: 3 });
    expect(join("a")).toBeDefined();
    expect(waiters.join("shop/orders", "pod:a/2", "pod:a")).toBeUndefined();
    expect(join("b")).toBeDefined();
    expect(join("c")).toBeUndefined();
    expect(join("b")).toBeDefined();
    expect(join("c", "shop/other")).toBeDefined();
    expect(join("d", "shop/third")).toBeUndefined();
    expect(waiters.total()).toBe(3);
  });

  it("are 256, 16 and 10,000 unless somebody says otherwise", () => {
    expect(waitLimits).toEqual({ perResource: 256, perIdentity: 16, total: 10_000 });
  });
});
