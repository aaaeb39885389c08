import { DatabaseError } from "pg";
import { describe, expect, it } from "vitest";
import { type FakeClock, makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import {
  type FakeCoordinator,
  grantOf,
  makeFakeCoordinator,
  problemOf,
} from "../../test/support/fakecoordinator.ts";
import { makeHolder } from "../holder/holder.ts";
import { silentLogger } from "../runtime/logger.ts";
import {
  acquire,
  type Client,
  connect,
  exitCodeOf,
  HoldBusy,
  HoldLost,
  HoldRefused,
  HoldUnreachable,
  withHolding,
} from "./holding.ts";

interface Bench {
  clock: FakeClock;
  coordinator: FakeCoordinator;
  client: Client;
}

const bench = (): Bench => {
  const clock = makeFakeClock();
  const coordinator = makeFakeCoordinator(clock);
  coordinator.answers.acquire = () => grantOf(41n, { guarantee: "Fenced" });
  const holder = makeHolder({ client: coordinator, clock, random: makeFakeRandom(), log: silentLogger });
  return { clock, coordinator, client: { ...holder, close() {} } };
};

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => `no failure, but ${String(value)}`,
    (error: unknown) => error,
  );

const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(signal.reason), { once: true }));

describe("acquire", () => {
  it("gives token and guarantee, renews until the release, and asks nothing more", async () => {
    const { clock, coordinator, client } = bench();
    const holding = await acquire(client, "shop/orders");
    expect(holding).toMatchObject({ resource: "shop/orders", token: 41n, guarantee: "Fenced" });
    await clock.advance(20_000);
    expect(coordinator.count("renew")).toBe(4);
    expect(holding.state()).toBe("held");
    expect(await holding.release()).toEqual({ kind: "released" });
    expect(holding.state()).toBe("released");
    await clock.advance(60_000);
    expect([coordinator.count("renew"), coordinator.count("release"), clock.pending()]).toEqual([4, 1, 0]);
    expect(holding.lost.aborted).toBe(false);
  });

  it("says by its class why there is no right, and what a program should exit with", async () => {
    const { clock, coordinator, client } = bench();
    coordinator.answers.acquire = () => problemOf("busy", { holder: "pod:1/2" });
    const busy = await failureOf(acquire(client, "shop/orders", { waitMs: 0 }));
    expect(busy).toBeInstanceOf(HoldBusy);
    expect(busy).toMatchObject({ holder: "pod:1/2" });
    coordinator.answers.acquire = () => problemOf("lost", { reason: "forced" });
    const lost = await failureOf(acquire(client, "shop/orders"));
    expect(lost).toBeInstanceOf(HoldLost);
    coordinator.answers.acquire = () => problemOf("forbidden");
    const refused = await failureOf(acquire(client, "shop/orders"));
    expect(refused).toBeInstanceOf(HoldRefused);
    expect(refused).toMatchObject({ code: "forbidden" });
    coordinator.answers.acquire = () => ({ silent: "connection refused" });
    const waiting = failureOf(acquire(client, "shop/orders"));
    await clock.advance(20_000);
    const unreachable = await waiting;
    expect(unreachable).toBeInstanceOf(HoldUnreachable);
    expect([busy, lost, refused, unreachable].map(exitCodeOf)).toEqual([3, 4, 1, 6]);
    expect(clock.pending()).toBe(0);
  });

  it("stops waiting with the reason of the signal", async () => {
    const { coordinator, client } = bench();
    coordinator.answers.acquire = () => problemOf("busy");
    const stop = new AbortController();
    const waiting = failureOf(acquire(client, "shop/orders", { signal: stop.signal }));
    await settle();
    stop.abort("enough");
    expect(await waiting).toBe("enough");
  });

  it("asks for nothing by a name without a namespace, or by an address that is not https", async () => {
    const { coordinator, client } = bench();
    expect(await failureOf(acquire(client, "orders"))).toBeInstanceOf(TypeError);
    expect(coordinator.calls).toEqual([]);
    expect(() => connect({ server: "http://127.0.0.1:1", tokenFile: "token" })).toThrow(
      "no https:// address",
    );
  });
});

describe("withHolding", () => {
  it("gives back after the work, whether it succeeded or failed", async () => {
    const { coordinator, client } = bench();
    expect(await withHolding(client, "shop/orders", async ({ token }) => token + 1n)).toBe(42n);
    expect(coordinator.count("release")).toBe(1);
    const failed = new Error("of the work");
    expect(await failureOf(withHolding(client, "shop/orders", () => Promise.reject(failed)))).toBe(failed);
    expect(coordinator.count("release")).toBe(2);
  });

  it("S1-40 aborts the work on loss, waits for its end, and rejects although it succeeded", async () => {
    const { clock, coordinator, client } = bench();
    const finish = Promise.withResolvers<string>();
    let told: unknown;
    const running = failureOf(
      withHolding(client, "shop/orders", async (_, signal) => {
        told = await aborted(signal);
        return finish.promise;
      }),
    );
    await clock.advance(1);
    coordinator.answers.renew = () => problemOf("lost", { reason: "forced" });
    await clock.advance(5000);
    expect(told).toBeInstanceOf(HoldLost);
    let over = false;
    void running.then(() => (over = true));
    await clock.advance(60_000);
    expect(over).toBe(false);
    finish.resolve("done");
    const error = await running;
    expect(error).toBeInstanceOf(HoldLost);
    expect(error).toMatchObject({ resource: "shop/orders", reason: "forced" });
    expect(exitCodeOf(error)).toBe(4);
  });

  it("a process that was suspended past its deadline has lost, before any timer has fired", async () => {
    const { clock, coordinator, client } = bench();
    const failed = new Error("of the work");
    const error = await failureOf(
      withHolding(client, "shop/orders", async () => {
        clock.suspend(60_000);
        throw failed;
      }),
    );
    expect(error).toBeInstanceOf(HoldLost);
    expect(error).toMatchObject({ reason: "deadline", cause: failed });
    expect(coordinator.count("release")).toBe(1);
  });

  it("rejects where only the release tells that the right had gone before", async () => {
    const { coordinator, client } = bench();
    coordinator.answers.release = () => ({ value: { released: false, reason: "superseded" } });
    const error = await failureOf(withHolding(client, "shop/orders", async () => "done"));
    expect(error).toMatchObject({ name: "HoldLost", reason: "superseded" });
  });

  it("a release without an answer takes nothing from work that was done", async () => {
    const { clock, coordinator, client } = bench();
    coordinator.answers.release = () => ({ silent: "reset" });
    expect(await withHolding(client, "shop/orders", async () => "done")).toBe("done");
    // Nor does a deadline that passes while it is asked.
    coordinator.answers.release = () => {
      clock.suspend(60_000);
      return { silent: "reset" };
    };
    expect(await withHolding(client, "shop/orders", async () => "done")).toBe("done");
  });

  it("aborts the work with the caller's signal, gives back, and keeps the result", async () => {
    const { coordinator, client } = bench();
    const stop = new AbortController();
    const work = async ({ lost }: { lost: AbortSignal }, signal: AbortSignal) => {
      const reason = await aborted(signal);
      return [reason, lost.aborted];
    };
    const running = withHolding(client, "shop/orders", work, { signal: stop.signal });
    await settle();
    stop.abort("SIGTERM");
    expect(await running).toEqual(["SIGTERM", false]);
    expect(coordinator.count("release")).toBe(1);
  });

  it("begins nothing when the signal is aborted by the time of the grant", async () => {
    const { coordinator, client } = bench();
    const stop = new AbortController();
    coordinator.answers.acquire = () => {
      queueMicrotask(() => stop.abort("enough"));
      return grantOf(41n);
    };
    let begun = false;
    const work = async () => void (begun = true);
    expect(await failureOf(withHolding(client, "shop/orders", work, { signal: stop.signal }))).toBe("enough");
    expect(begun).toBe(false);
  });
});

it("a refused stale token ends a program with 5, whoever threw it, and anything unknown with 1", () => {
  const raw = Object.assign(new DatabaseError("stale_fencing_token", 0, "error"), { code: "FNC01" });
  expect([raw, new Error("other"), undefined, "text"].map(exitCodeOf)).toEqual([5, 1, 1, 1]);
});
