/** What the model can do to its clients that a real server cannot be asked for: faults, restores, partitions, all repeatable. */
import { describe, expect, it } from "vitest";
import type { Transport } from "../../src/kube/types.ts";
import { makeFakeClock, makeFakeRandom, settle } from "../support/clock.ts";
import {
  answered,
  answerLost,
  delayed,
  type Fault,
  makeBarrier,
  notConnected,
  requestLost,
} from "../support/memapi/faults.ts";
import { makeMemApi } from "../support/memapi/memapi.ts";
import { leaseBody, leases, send } from "./kuberequests.ts";

const start = async (seed = 1) => {
  const clock = makeFakeClock();
  const api = makeMemApi({ clock, random: makeFakeRandom(seed) });
  const admin = api.transport({ name: "admin" });
  const one = api.transport({ name: "one" });
  const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } };
  await send(admin, "POST", "/api/v1/namespaces", body);
  return { clock, api, admin, one };
};

const create = (transport: Transport, name: string, holder = "x") =>
  send(transport, "POST", leases("shop"), leaseBody("shop", name, { holderIdentity: holder }));
const names = async (transport: Transport) =>
  ((await send(transport, "GET", leases("shop"))).body.items ?? []).map(({ metadata }) => metadata?.name);

describe("faults of one request", () => {
  const lost: [string, Fault, boolean, string[]][] = [
    ["no connection", notConnected, false, []],
    ["the request is lost", requestLost, true, []],
    ["the answer is lost", answerLost, true, ["a"]],
  ];
  it.each(lost)("%s", async (_name, fault, sent, there) => {
    const { api, one } = await start();
    api.fault({ client: "one", verb: "post" }, fault);
    await expect(create(one, "a")).rejects.toMatchObject({ name: "TransportError", sent });
    expect(await names(one)).toEqual(there);
    expect((await create(one, "b")).status).toBe(201);
  });

  it("an answer of its own, with what the server asks for", async () => {
    const { api, one } = await start();
    api.fault({ verb: "post" }, answered("TooManyRequests", { retryAfterSeconds: 3 }));
    expect(await create(one, "a")).toMatchObject({ status: 429, reason: "TooManyRequests" });
    expect(await names(one)).toEqual([]);
  });

  it("late on its way there, and applied although its sender has given up", async () => {
    const { clock, api, one } = await start();
    api.fault({ verb: "post" }, delayed(clock, 1_000));
    const giveUp = new AbortController();
    const sending = one.request(
      {
        method: "POST",
        path: leases("shop"),
        body: JSON.stringify(leaseBody("shop", "a")),
        verb: "post",
        resource: "leases",
      },
      giveUp.signal,
    );
    await settle();
    giveUp.abort();
    await expect(sending).rejects.toMatchObject({ sent: true });
    expect(await names(one)).toEqual([]);
    await clock.advance(1_000);
    expect(await names(one)).toEqual(["a"]);
  });

  it("at a barrier, before or after it was applied, in the order of arrival", async () => {
    for (const way of ["there", "back"] as const) {
      const { api, admin, one } = await start();
      const barrier = makeBarrier(way);
      api.fault({ client: "one", verb: "post" }, barrier.fault, 2);
      const both = Promise.all([create(one, "a", "first"), create(one, "a", "second")]);
      await settle();
      expect(barrier.waiting()).toBe(2);
      expect(await names(admin)).toEqual(way === "there" ? [] : ["a"]);
      barrier.open();
      expect((await both).map(({ status }) => status)).toEqual([201, 409]);
    }
  });

  it("for as many requests as was said, and for those that match only", async () => {
    const { api, admin, one } = await start();
    const heal = api.fault({ client: "one", verb: "post" }, requestLost, 5);
    expect((await create(admin, "a")).status).toBe(201);
    await expect(create(one, "b")).rejects.toThrow("connection reset");
    heal();
    expect((await create(one, "b")).status).toBe(201);
    expect(api.counts({ client: "one" })).toEqual({ "post contract": 2 });
  });
});

describe("partition and outage", () => {
  it("a partitioned client hears nothing until it gives up; others go on", async () => {
    const { clock, api, admin, one } = await start();
    const stop = new AbortController();
    const watch = await one.open(
      {
        method: "GET",
        path: `${leases("shop")}?watch=true&timeoutSeconds=30`,
        verb: "watch",
        resource: "leases",
      },
      stop.signal,
    );
    const heard: string[] = [];
    const listening = (async () => {
      for await (const line of watch.lines) heard.push(line);
    })().catch(() => {});
    one.partition();
    const asking = names(one).then(
      () => "answered",
      (error: unknown) => error,
    );
    expect((await create(admin, "a")).status).toBe(201);
    await clock.advance(60_000);
    expect(await asking).toMatchObject({ sent: true });
    expect(heard).toEqual([]);
    one.heal();
    expect(await names(one)).toEqual(["a"]);
    expect(api.watches.count("one")).toBe(1);
    stop.abort();
    await listening;
    expect(api.watches.count("one")).toBe(0);
  });

  it("nothing listens while the server is stopped, and what was stored is there afterwards", async () => {
    const { api, one } = await start();
    await create(one, "a");
    api.stop();
    await expect(names(one)).rejects.toMatchObject({ sent: false });
    api.start();
    expect(await names(one)).toEqual(["a"]);
  });
});

describe("snapshot and restore", () => {
  it("take revisions, objects and history back; a watch from what is now the future is deaf", async () => {
    const { clock, api, one } = await start();
    await create(one, "a");
    const snapshot = api.snapshot();
    await create(one, "b");
    const ahead = api.revision();
    api.restore(snapshot);
    expect(api.revision()).toBe(ahead - 1);
    expect(await names(one)).toEqual(["a"]);
    const stop = new AbortController();
    const watch = await one.open(
      {
        method: "GET",
        path: `${leases("shop")}?watch=true&resourceVersion=${ahead}&timeoutSeconds=10&allowWatchBookmarks=true`,
        verb: "watch",
        resource: "leases",
      },
      stop.signal,
    );
    // The revision that the watcher has seen is used again, for another write.
    await create(one, "c");
    expect(api.revision()).toBe(ahead);
    const lines: string[] = [];
    const listening = (async () => {
      for await (const line of watch.lines) lines.push(line);
    })();
    await create(one, "d");
    await clock.advance(10_000);
    await listening;
    expect(lines.map((line) => JSON.parse(line)).filter(({ type }) => type === "ADDED")).toMatchObject([
      { object: { metadata: { name: "d" } } },
    ]);
  });
});

it("one seed is one run: uids, times and versions are the same", async () => {
  const run = async (seed: number) => {
    const { clock, one } = await start(seed);
    await create(one, "a");
    await clock.advance(1_234);
    await create(one, "b");
    return (await send(one, "GET", leases("shop"))).body;
  };
  expect(await run(7)).toEqual(await run(7));
});

it("tables answer who somebody is and what he may do", async () => {
  const { api, one } = await start();
  api.reviews.login("secret", { username: "ann", uid: "1", groups: ["staff"] });
  api.reviews.allow("ann", "acquire", "shop/orders");
  const review = (token: string, audience: string) =>
    send(one, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
      spec: { token, audiences: [audience] },
    });
  expect((await review("secret", "fenceline")).body.status).toMatchObject({
    authenticated: true,
    user: { username: "ann", groups: ["staff"] },
    audiences: ["fenceline"],
  });
  expect((await review("secret", "other")).body.status).toMatchObject({ authenticated: false });
  const may = async (verb: string, name: string) => {
    const spec = { user: "ann", resourceAttributes: { verb, namespace: "shop", name } };
    return (await send(one, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", { spec })).body
      .status;
  };
  expect(await may("acquire", "orders")).toEqual({ allowed: true });
  expect(await may("force", "orders")).toEqual({ allowed: false });
  expect(await may("acquire", "other")).toEqual({ allowed: false });
});
