import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { monoTime } from "../../../src/core/time.ts";
import { type Clock, systemClock } from "../../../src/runtime/clock.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { refusal, type ScriptedCoordinator, startCoordinator } from "./coordinator.ts";
import { cli } from "./inprocess.ts";

const timeout = 30_000;
let coordinator: ScriptedCoordinator;
beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(() => coordinator[Symbol.asyncDispose]());

const exec = (flags: readonly string[] = [], server = coordinator.server, clock: Clock = systemClock) => {
  const { caFile, tokenFile } = coordinator;
  const args = ["--server", server, "--ca-file", caFile, "--token-file", tokenFile, ...flags];
  return cli(["exec", "--resource", "shop/orders", ...args, "--", "true"], { clock });
};

/** Ten times as fast as that of the machine. */
const fastClock: Clock = {
  wall: () => systemClock.wall(),
  mono: () => monoTime(systemClock.mono() * 10),
  sleep: (ms, signal) => systemClock.sleep(ms / 10, signal),
  timer: (ms, fire) => systemClock.timer(ms / 10, fire),
};

const lines = (text: string) => text.trimEnd().split("\n");

describe("exec without a right", { timeout }, () => {
  it("S1-47 busy is 121 and names the holder", async () => {
    coordinator.on["acquire"] = () => refusal("busy", { holder: "user:abc/other", aheadOnThisReplica: 0 });
    const run = await exec(["--no-wait"]);
    expect(run.code).toBe(121);
    expect(run.stderr).toBe("fenceline: shop/orders: busy: busy, says the test\n");
    expect(coordinator.calls.map((call) => call.verb)).toEqual(["acquire"]);
  });

  it("waits for as long as it was told, and says for whom", async () => {
    coordinator.on["acquire"] = async ({ body }) => {
      await new Promise((resolve) => setTimeout(resolve, Number(body["waitMs"])));
      return refusal("busy", { holder: "user:abc/other", aheadOnThisReplica: 0 });
    };
    const run = await exec(["--wait", "0.5"]);
    expect(run.code).toBe(121);
    expect(run.stderr).toContain("waiting for user:abc/other\n");
    expect(coordinator.calls.map((call) => call.body["waitMs"])).toEqual([0, expect.any(Number)]);
  });

  it.each(["unauthenticated", "forbidden", "unknown_resource", "tokens_exhausted"] as const)(
    "%s is 124 and one line",
    async (code) => {
      coordinator.on["acquire"] = () => refusal(code);
      const run = await exec();
      expect(run.code).toBe(124);
      expect(run.stderr).toBe(`fenceline: shop/orders: refused (${code}): ${code}, says the test\n`);
    },
  );

  it("an attempt that is lost before it holds is 122", async () => {
    coordinator.on["acquire"] = () => refusal("lost", { reason: "superseded" });
    expect(await exec()).toMatchObject({ code: 122 });
  });
});

describe("exec that cannot reach anybody", { timeout }, () => {
  it("a server that is not to be trusted is 123 at once", async () => {
    await writeFile(coordinator.caFile, makeCertificate({ commonName: "another authority" }).cert);
    const run = await exec();
    expect(run.code).toBe(123);
    expect(lines(run.stderr)).toEqual([
      expect.stringMatching(
        /^fenceline: shop\/orders: the coordinator cannot be reached: 127\.0\.0\.1:\d+: .*certificate/,
      ),
    ]);
  });

  it("a server that speaks plain HTTP is 123 at once", async () => {
    const plain = createServer((_, response) => response.end("hello"));
    await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
    const { port } = plain.address() as AddressInfo;
    const run = await exec([], `https://127.0.0.1:${port}`);
    expect(run.code).toBe(123);
    expect(lines(run.stderr)).toEqual([expect.stringContaining("this server does not speak TLS")]);
    plain.close();
  });

  it("a server that is no coordinator is 123 at once", async () => {
    coordinator.on["acquire"] = () => ({ status: 404, body: { kind: "Status", code: 404 } });
    const run = await exec();
    expect(run.code).toBe(123);
    expect(lines(run.stderr)).toEqual([
      expect.stringContaining("not the coordinator's: check the server's address"),
    ]);
  });

  it("nobody there is 123 after a while, and said at once", async () => {
    const { server } = coordinator;
    await coordinator[Symbol.asyncDispose]();
    coordinator = await startCoordinator();
    const run = await exec([], server, fastClock);
    expect(run.code).toBe(123);
    expect(lines(run.stderr)).toEqual([
      expect.stringMatching(/not yet: 127\.0\.0\.1:\d+: .*: asking again$/),
      expect.stringMatching(/the coordinator cannot be reached: 127\.0\.0\.1:/),
    ]);
  });
});
