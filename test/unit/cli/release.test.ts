import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ok, refusal, type ScriptedCoordinator, startCoordinator } from "./coordinator.ts";
import { cli } from "./inprocess.ts";

let coordinator: ScriptedCoordinator;
beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(() => coordinator[Symbol.asyncDispose]());

const release = (flags: readonly string[], text = "shop/orders") =>
  cli([
    "release",
    text,
    "--server",
    coordinator.server,
    "--ca-file",
    coordinator.caFile,
    "--token-file",
    coordinator.tokenFile,
    ...flags,
  ]);
const force = ["--force", "--reason", "node is gone"];

describe("release --force", { timeout: 30_000 }, () => {
  it("takes the resource away, with the reason on record", async () => {
    expect(await release(force)).toEqual({
      code: 0,
      stdout: "shop/orders: taken away from user:abc/other (token 42)\n",
      stderr: "",
    });
    expect(coordinator.calls).toMatchObject([
      {
        verb: "force-release",
        resource: "shop/orders",
        bearer: "a-bearer",
        body: { reason: "node is gone" },
      },
    ]);
  });

  it("says so where nobody held it", async () => {
    coordinator.on["force-release"] = () => ok({ released: false });
    expect(await release(force)).toMatchObject({ code: 0, stdout: "shop/orders: nobody held it\n" });
  });

  it("a refusal is one line and 1", async () => {
    coordinator.on["force-release"] = () => refusal("forbidden");
    expect(await release(force)).toEqual({
      code: 1,
      stdout: "",
      stderr: "fenceline: shop/orders: refused (forbidden): forbidden, says the test\n",
    });
  });

  it("no answer is not a no: 6, and where to look", async () => {
    coordinator.on["force-release"] = () => ({ status: 502, body: { error: "bad gateway" } });
    const said = await release(force);
    expect(said).toMatchObject({ code: 6, stdout: "" });
    expect(said.stderr).toContain("look with fenceline get shop/orders\n");
  });

  it.each<[string, string[], string]>([
    ["without --force", ["--reason", "x"], "write --force"],
    ["without a reason", ["--force"], "--reason goes on record"],
    ["with controls in the reason", ["--force", "--reason", "a\u001bb"], "printable characters"],
  ])("%s nothing is sent: one line and 2", async (_, flags, text) => {
    const said = await release(flags);
    expect(said.code).toBe(2);
    expect(said.stderr).toContain(text);
    expect(coordinator.calls).toEqual([]);
  });

  it("needs a namespace, by itself or by -n", async () => {
    expect((await release(force, "orders")).code).toBe(2);
    expect((await release([...force, "-n", "shop"], "orders")).code).toBe(0);
  });
});
