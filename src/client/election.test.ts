import { expect, it } from "vitest";
import { makeFakeClock, makeFakeRandom, settle } from "../../test/support/clock.ts";
import { grantOf, makeFakeCoordinator, problemOf } from "../../test/support/fakecoordinator.ts";
import { makeHolder } from "../holder/holder.ts";
import { silentLogger } from "../runtime/logger.ts";
import { lead } from "./election.ts";
import type { Client } from "./holding.ts";

const bench = () => {
  const clock = makeFakeClock();
  const coordinator = makeFakeCoordinator(clock);
  coordinator.answers.acquire = () => grantOf(BigInt(coordinator.count("acquire")));
  const holder = makeHolder({ client: coordinator, clock, random: makeFakeRandom(), log: silentLogger });
  const client: Client = { ...holder, close() {} };
  return { clock, coordinator, client, stop: new AbortController() };
};

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => `no failure, but ${String(value)}`,
    (error: unknown) => error,
  );

it("campaigns again after a loss, with a new attempt, and never while the work before goes on", async () => {
  const { clock, coordinator, client, stop } = bench();
  const tokens: bigint[] = [];
  const slow = Promise.withResolvers<void>();
  let running = 0;
  let most = 0;
  const campaign = lead(
    client,
    "shop/leader",
    async ({ token }, signal) => {
      tokens.push(token);
      running += 1;
      most = Math.max(most, running);
      await aborted(signal);
      if (tokens.length === 1) await slow.promise;
      running -= 1;
      if (tokens.length === 2) throw new Error("broken off");
    },
    { signal: stop.signal, label: "one" },
  );
  await clock.advance(1);
  coordinator.answers.renew = () => problemOf("lost", { reason: "forced" });
  await clock.advance(60_000);
  expect([tokens, coordinator.count("acquire")]).toEqual([[1n], 1]);
  slow.resolve();
  await clock.advance(1);
  expect(tokens).toEqual([1n, 2n]);
  await clock.advance(5000);
  expect(tokens).toEqual([1n, 2n, 3n]);
  coordinator.answers.renew = () => problemOf("not_ready");
  stop.abort();
  await campaign;
  expect([most, running, clock.pending()]).toEqual([1, 0, 0]);
  const attempts = coordinator.calls.filter(({ verb }) => verb === "acquire").map(({ attempt }) => attempt);
  expect(new Set(attempts).size).toBe(3);
  expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", token: 3n });
});

it("waits for ever, also for a coordinator that does not answer, and ends with its signal", async () => {
  const { clock, coordinator, client, stop } = bench();
  coordinator.answers.acquire = () =>
    coordinator.count("acquire") % 2 === 0 ? problemOf("busy") : { silent: "connection refused" };
  let led = false;
  const campaign = lead(client, "shop/leader", async () => void (led = true), { signal: stop.signal });
  await clock.advance(120_000);
  stop.abort();
  await campaign;
  expect([led, clock.pending()]).toEqual([false, 0]);
});

it("resolves where the work breaks off by its signal, and releases", async () => {
  const { coordinator, client, stop } = bench();
  const campaign = lead(
    client,
    "shop/leader",
    async (_, signal) => {
      await aborted(signal);
      throw new DOMException("the sleep was aborted", "AbortError");
    },
    { signal: stop.signal },
  );
  await settle();
  stop.abort("SIGTERM");
  await campaign;
  expect(coordinator.count("release")).toBe(1);
});

it("ends with the work of the leader, and with what it threw", async () => {
  const { coordinator, client, stop } = bench();
  await lead(client, "shop/leader", async () => {}, stop);
  const failed = new Error("of the work");
  expect(await failureOf(lead(client, "shop/leader", () => Promise.reject(failed), stop))).toBe(failed);
  expect([coordinator.count("acquire"), coordinator.count("release")]).toEqual([2, 2]);
  coordinator.answers.acquire = () => problemOf("forbidden");
  expect(await failureOf(lead(client, "shop/leader", async () => {}, stop))).toMatchObject({
    name: "HoldRefused",
    code: "forbidden",
  });
});

it("begins no campaign when it is over already", async () => {
  const { coordinator, client } = bench();
  await lead(client, "shop/leader", async () => {}, { signal: AbortSignal.abort() });
  expect(coordinator.calls).toEqual([]);
});
