import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type AgentOptions, type AgentProcess, endAgents, startAgent } from "../../support/agent/agent.ts";
import {
  granted,
  ok,
  refusal,
  type ScriptedCoordinator,
  shortMs,
  startCoordinator,
} from "../cli/coordinator.ts";

const timeout = 30_000;
let coordinator: ScriptedCoordinator;
let podFolder: string;

beforeEach(async () => {
  coordinator = await startCoordinator();
  podFolder = join(coordinator.folder, "pod");
});
afterEach(async () => {
  endAgents();
  await coordinator[Symbol.asyncDispose]();
});

const agent = (more: Partial<AgentOptions> = {}) =>
  startAgent({ ...coordinator, folder: podFolder, ...more });

const killed = async (run: AgentProcess): Promise<void> => {
  run.child.kill("SIGKILL");
  await run.ended;
};

/** Every term is over soon. */
const brief = (): void => {
  coordinator.on["acquire"] = () => granted("42", shortMs);
  coordinator.on["renew"] = () => ok(shortMs);
};

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Longer than the right of {@link brief} lasts. */
const pastTheDeadline = () => sleep(2600);

/** Sends a request on a new connection, without waiting; resolves with the first bytes that come back. */
const sent = async (port: number, path: string): Promise<{ first: Promise<string> }> => {
  const socket = connect(port, "127.0.0.1");
  await new Promise((resolve) => socket.once("connect", resolve));
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
  const first = new Promise<string>((resolve) => {
    socket.once("data", (chunk: Buffer) => {
      resolve(chunk.toString());
      socket.destroy();
    });
  });
  return { first };
};

const attempts = (): unknown[] => [
  ...new Set(coordinator.calls.filter(({ verb }) => verb === "acquire").map(({ body }) => body["attempt"])),
];

describe("the agent process", { timeout }, () => {
  it("acquires, shows token and state in files and over HTTP, renews, and gives back on SIGTERM", async () => {
    const run = await agent({ env: { FENCELINE_LABEL: "import-7" } });
    expect(await run.in("held")).toMatchObject({
      resource: "shop/orders",
      token: "42",
      guarantee: "Advisory",
    });
    await expect.poll(() => run.file("orders/state")).toBe("held");
    expect(await run.file("orders/token")).toBe("42");
    expect(JSON.parse((await run.file("orders/holding.json")) ?? "")).toMatchObject({
      state: "held",
      token: "42",
    });
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    expect(await run.probe("/livez")).toBe(200);
    expect((await run.get("/v1/holdings/orders/check")).status).toBe(204);
    expect(coordinator.calls[0]).toMatchObject({
      verb: "acquire",
      bearer: "a-bearer",
      body: { label: "import-7" },
    });
    await expect.poll(() => coordinator.count("renew"), { timeout: 10_000 }).toBeGreaterThan(2);
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(0);
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", body: { token: "42" } });
    expect(await run.file("orders/state")).toBe("released");
    expect(await run.file("orders/token")).toBeUndefined();
    // Nothing half written is left behind.
    expect((await readdir(join(podFolder, "app/orders"))).toSorted()).toEqual(["holding.json", "state"]);
  });

  it("shows 2^63-1 as it is", async () => {
    coordinator.on["acquire"] = () => granted("9223372036854775807");
    const run = await agent();
    expect(await run.in("held")).toMatchObject({ token: "9223372036854775807" });
    await expect.poll(() => run.file("orders/token")).toBe("9223372036854775807");
  });

  it("says in one line what it cannot begin with", async () => {
    await expect(agent({ env: { FENCELINE_WAIT: "Sometimes" } })).rejects.toThrow(
      /ended: fenceline agent: FENCELINE_WAIT=Sometimes: give Block, Fail, Start\n/,
    );
    const first = await agent();
    await expect(
      agent({
        folder: join(coordinator.folder, "other"),
        env: { FENCELINE_LOCAL_PORT: `${first.localPort}` },
      }),
    ).rejects.toThrow(/ended: .*cannot listen on 127\.0\.0\.1:\d+/s);
  });

  it("uses a credential and a CA that were replaced while it runs", async () => {
    const run = await agent();
    await run.in("held");
    await writeFile(join(coordinator.folder, "new"), "another-bearer");
    await rename(join(coordinator.folder, "new"), coordinator.tokenFile);
    await expect.poll(() => coordinator.calls.at(-1)?.bearer, { timeout: 10_000 }).toBe("another-bearer");
    // A CA that does not know the server: no renewal gets through until it is put right.
    const ca = await readFile(coordinator.caFile, "utf8");
    const other = await startCoordinator();
    await writeFile(coordinator.caFile, await readFile(other.caFile, "utf8"));
    await other[Symbol.asyncDispose]();
    await run.in("uncertain");
    await writeFile(coordinator.caFile, ca);
    expect(await run.in("held")).toMatchObject({ token: "42" });
  });
});

describe("a right that is lost", { timeout }, () => {
  it("FM-24 hanging renewals: uncertain, then lost by the deadline; the token goes, the liveness probe fails", async () => {
    brief();
    coordinator.on["renew"] = () => "never";
    const run = await agent();
    await run.in("held");
    expect(await run.in("uncertain")).toMatchObject({ token: "42" });
    expect(await run.probe("/livez")).toBe(200);
    expect(await run.file("orders/token")).toBe("42");
    expect((await run.get("/v1/holdings/orders/check")).body).toMatchObject({
      code: "not_held",
      status: 409,
      state: "uncertain",
    });
    expect(await run.in("lost")).toMatchObject({ token: null, reason: "deadline", safeForMs: 0 });
    expect(await run.probe("/livez")).toBe(503);
    await expect.poll(() => run.file("orders/state")).toBe("lost");
    expect(await run.file("orders/token")).toBeUndefined();
    const check = await run.get("/v1/holdings/orders/check");
    expect(check).toMatchObject({ status: 409, type: "application/problem+json" });
    expect(check.body).toMatchObject({
      type: "urn:fenceline:problem:lost",
      code: "lost",
      reason: "deadline",
    });
    // Once and for good: nothing is asked for any more.
    const { length } = coordinator.calls;
    coordinator.on["renew"] = () => ok(shortMs);
    await sleep(700);
    expect(coordinator.calls.filter(({ verb }) => verb !== "renew")).toHaveLength(1);
    expect(coordinator.calls.length).toBeLessThanOrEqual(length + 1);
    expect((await run.get("/v1/holdings/orders")).body["state"]).toBe("lost");
    // It may still be the Lease's: given back when the app has ended.
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(0);
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", body: { token: "42" } });
  });

  it.each(["superseded", "forced", "deleted"] as const)(
    "FM-12 by the coordinator's word: %s",
    async (reason) => {
      const run = await agent();
      await run.in("held");
      coordinator.on["renew"] = () => refusal("lost", { reason });
      expect(await run.in("lost")).toMatchObject({ reason });
      expect(await run.probe("/livez")).toBe(503);
      run.child.kill("SIGTERM");
      expect(await run.ended).toBe(0);
      expect(coordinator.count("release")).toBe(0);
    },
  );

  it("FM-21 S1-07 a frozen process: the first byte after the thaw says lost", async () => {
    brief();
    const run = await agent();
    await run.in("held");
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    const stream = await sent(run.localPort, "/v1/holdings/orders/events");
    expect(await stream.first).toContain("200 OK");
    run.child.kill("SIGSTOP");
    const asked = await Promise.all(
      ["/v1/holdings/orders", "/v1/holdings/orders/check", "/v1/holdings"].map((path) =>
        sent(run.localPort, path),
      ),
    );
    const live = await sent(run.probePort, "/livez");
    await pastTheDeadline();
    run.child.kill("SIGCONT");
    const [holding, check, all] = await Promise.all(asked.map(({ first }) => first));
    expect(holding).toContain('"state":"lost"');
    expect(check).toMatch(/^HTTP\/1\.1 409 /);
    expect(all).toContain('"state":"lost"');
    expect(await live.first).toMatch(/^HTTP\/1\.1 503 /);
    await expect.poll(() => run.file("orders/token")).toBeUndefined();
  });

  it("FM-21 S1-07 a blocked event loop: the same", async () => {
    brief();
    const blocker = join(coordinator.folder, "blocker.mjs");
    await writeFile(
      blocker,
      `process.on("SIGUSR2", () => { const end = Date.now() + 2700; while (Date.now() < end); });`,
    );
    const run = await agent({ nodeArgs: ["--import", blocker] });
    await run.in("held");
    await expect.poll(() => run.probe("/startupz")).toBe(200);
    run.child.kill("SIGUSR2");
    await sleep(300);
    const check = await sent(run.localPort, "/v1/holdings/orders/check");
    const holding = await sent(run.localPort, "/v1/holdings/orders");
    expect(await check.first).toMatch(/^HTTP\/1\.1 409 /);
    expect(await holding.first).toContain('"reason":"deadline"');
  });

  it("FM-16 a short freeze loses nothing, and the token stays", async () => {
    const run = await agent();
    await run.in("held");
    run.child.kill("SIGSTOP");
    await sleep(900);
    run.child.kill("SIGCONT");
    expect(await run.in("held")).toMatchObject({ token: "42" });
    expect(await run.probe("/livez")).toBe(200);
    expect(run.log()).not.toContain("lost");
  });

  it("S1-40 a container that starts again begins a new attempt; its first start, and that of others, does not", async () => {
    const run = await agent();
    await run.in("held");
    expect(await run.probe("/started/app")).toBe(200);
    coordinator.on["renew"] = () => refusal("lost", { reason: "superseded" });
    await run.in("lost");
    coordinator.on["acquire"] = () => granted("43");
    coordinator.on["renew"] = () => ok({ leaseDurationMs: 9000, renewAfterMs: 300 });
    expect(await run.probe("/started/other")).toBe(200);
    expect(await run.probe("/livez")).toBe(503);
    expect(await run.probe("/started/app")).toBe(200);
    expect(await run.in("held")).toMatchObject({ token: "43" });
    expect(await run.probe("/livez")).toBe(200);
    await expect.poll(() => run.file("orders/token")).toBe("43");
    expect(attempts()).toHaveLength(2);
  });
});

describe("an agent that starts again beside a running app", { timeout }, () => {
  it("FM-35 within the deadline: renews the same attempt and token, and acquires nothing", async () => {
    const first = await agent();
    await first.in("held");
    await expect.poll(() => first.probe("/startupz")).toBe(200);
    await killed(first);
    expect(await first.file("orders/token")).toBe("42");
    const before = coordinator.count("acquire");
    const renewals = coordinator.count("renew");
    const second = await agent();
    expect(await second.in("held")).toMatchObject({ token: "42" });
    expect(coordinator.count("acquire")).toBe(before);
    expect(coordinator.count("renew")).toBeGreaterThan(renewals);
    expect(attempts()).toHaveLength(1);
    await expect.poll(() => second.probe("/startupz")).toBe(200);
  });

  it("FM-35 past the deadline: lost in its first answer, and no new token by itself, nor after one more crash", async () => {
    brief();
    const first = await agent();
    await first.in("held");
    await expect.poll(() => first.probe("/startupz")).toBe(200);
    await killed(first);
    await pastTheDeadline();
    coordinator.on["acquire"] = () => granted("43");
    for (let round = 0; round < 2; round += 1) {
      const run = await agent();
      const { body } = await run.get("/v1/holdings/orders");
      expect(body).toMatchObject({ state: "lost", reason: "deadline", token: null });
      expect(await run.file("orders/state")).toBe("lost");
      expect(await run.file("orders/token")).toBeUndefined();
      expect(await run.probe("/livez")).toBe(503);
      expect(coordinator.count("acquire")).toBe(1);
      await killed(run);
    }
    const last = await agent();
    await last.probe("/started/app");
    await last.probe("/started/app");
    expect(await last.in("held")).toMatchObject({ token: "43" });
    expect(coordinator.calls.find(({ verb }) => verb === "release")).toMatchObject({ body: { token: "42" } });
  });

  it("FM-35 S1-45 after another boot of the machine: lost, whatever the clocks say", async () => {
    const first = await agent();
    await first.in("held");
    await expect.poll(() => first.probe("/startupz")).toBe(200);
    await killed(first);
    const file = join(podFolder, "state/orders.json");
    const memory = JSON.parse(await readFile(file, "utf8")) as { deadline: { boot: string } };
    memory.deadline.boot = "3b1f9a52-0000-4000-8000-000000000000";
    await writeFile(file, JSON.stringify(memory));
    const second = await agent();
    expect((await second.get("/v1/holdings/orders")).body).toMatchObject({ state: "lost" });
    expect(coordinator.count("acquire")).toBe(1);
  });

  it("FM-35 killed before it was granted anything: the same attempt again", async () => {
    coordinator.on["acquire"] = () => "never";
    const first = await agent();
    await expect.poll(() => coordinator.count("acquire")).toBe(1);
    await killed(first);
    coordinator.on["acquire"] = () => granted("42");
    const second = await agent();
    await second.in("held");
    expect(coordinator.count("acquire")).toBe(2);
    expect(attempts()).toHaveLength(1);
  });

  it("FM-35 killed at any moment: never an empty or half token file, and no hold is left behind", async () => {
    brief();
    for (let round = 0; round < 5; round += 1) {
      const run = await agent();
      await sleep(round * 40);
      await killed(run);
      expect([undefined, "42"]).toContain(await run.file("orders/token"));
      expect([undefined, "waiting", "uncertain", "held"]).toContain(await run.file("orders/state"));
    }
    const last = await agent();
    await last.in("held");
    last.child.kill("SIGTERM");
    await last.ended;
    expect(attempts()).toHaveLength(1);
    expect(coordinator.count("release")).toBe(1);
  });
});

describe("what an app may say and ask", { timeout }, () => {
  it("its work is over: given back once, shown as released, also by the next agent", async () => {
    const run = await agent();
    await run.in("held");
    const path = "/v1/holdings/orders/release";
    expect(await run.post(path)).toMatchObject({ status: 200, body: { released: true } });
    expect(await run.post(path)).toMatchObject({ status: 200, body: { released: true } });
    expect(coordinator.count("release")).toBe(1);
    expect((await run.get("/v1/holdings/orders")).body).toMatchObject({ state: "released", token: null });
    expect(await run.probe("/livez")).toBe(200);
    await expect.poll(() => run.file("orders/state")).toBe("released");
    expect((await run.get("/v1/holdings/orders/check")).body).toMatchObject({
      code: "lost",
      reason: "released",
    });
    await killed(run);
    const next = await agent();
    expect((await next.get("/v1/holdings/orders")).body).toMatchObject({ state: "released" });
    expect(await next.probe("/livez")).toBe(200);
    expect(coordinator.count("acquire")).toBe(1);
  });

  it("an end that nobody knows is told as such, and may be asked for again", async () => {
    const run = await agent();
    await run.in("held");
    coordinator.on["release"] = () => refusal("store_unavailable");
    const path = "/v1/holdings/orders/release";
    expect(await run.post(path)).toMatchObject({ status: 503, body: { code: "outcome_unknown" } });
    coordinator.on["release"] = () => ok({ released: true });
    expect(await run.post(path)).toMatchObject({ status: 200, body: { released: true } });
  });

  it("each change of state comes as an event", async () => {
    brief();
    const run = await agent();
    await run.in("held");
    const socket = connect(run.localPort, "127.0.0.1");
    let text = "";
    socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
    socket.write("GET /v1/holdings/orders/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await expect.poll(() => text).toContain('"state":"held"');
    expect(text).toContain("content-type: text/event-stream");
    coordinator.on["renew"] = () => "never";
    await expect.poll(() => text, { timeout: 10_000 }).toContain('"state":"lost"');
    const states = [...text.matchAll(/event: state\ndata: \{[^\n]*"state":"(\w+)"/g)].map(
      ([, state]) => state,
    );
    expect(states).toEqual(["held", "uncertain", "lost"]);
    socket.destroy();
  });

  it("answers what it does not know as a problem", async () => {
    const run = await agent();
    expect(await run.get("/v1/holdings/stock")).toMatchObject({
      status: 404,
      type: "application/problem+json",
      body: { code: "unknown_resource" },
    });
    for (const path of ["/", "/v1/holdings/", "/v1/holdings/orders/steal", "/v1/holdings/../../etc"])
      expect((await run.get(path)).status).toBeGreaterThanOrEqual(400);
    expect((await run.post("/v1/holdings/orders/check")).body).toMatchObject({ code: "invalid_request" });
    expect(await run.probe("/v1/holdings")).toBe(404);
    expect(await run.probe("/started/..%2f")).toBe(404);
  });
});
