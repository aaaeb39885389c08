import { readFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { granted, refusal, shortMs, type ScriptedCoordinator, startCoordinator } from "./coordinator.ts";
import { endAll, exec, isAlive, type Run } from "./fenceline.ts";

const timeout = 30_000;
let coordinator: ScriptedCoordinator;

beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(async () => {
  endAll();
  await coordinator[Symbol.asyncDispose]();
});

/** Every term is over soon. */
const brief = (): void => {
  coordinator.on["acquire"] = () => granted("42", shortMs);
  coordinator.on["renew"] = () => ({ status: 200, body: shortMs });
};

/** Stops exec, and it alone, for `ms`. */
const stopped = async (run: Run, ms: number): Promise<void> => {
  run.child.kill("SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, ms));
};

/** Says that it is there, and works until it is told to stop. */
const sleeper = ["sh", "-c", "echo working; sleep 60"];

describe("exec with the right held", { timeout }, () => {
  it("hands token and resource on, gives back at the end, and ends with the command's own code", async () => {
    const run = exec(
      coordinator,
      ["sh", "-c", 'echo "$FENCELINE_TOKEN for $FENCELINE_RESOURCE"; exit 7'],
      ["--label", "import nightly"],
    );
    expect(await run.ended).toBe(7);
    expect(run.stdout()).toBe("42 for shop/orders\n");
    expect(run.stderr()).toBe(
      "fenceline: shop/orders: granted token 42 (Advisory: reduces overlap, does not exclude it)\n" +
        "fenceline: shop/orders: released token 42\n",
    );
    expect(coordinator.calls[0]).toMatchObject({
      verb: "acquire",
      resource: "shop/orders",
      bearer: "a-bearer",
      body: { waitMs: 0, label: "import nightly" },
    });
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", body: { token: "42" } });
  });

  it("renews for as long as the command runs", async () => {
    const run = exec(coordinator, sleeper);
    await expect.poll(() => coordinator.count("renew"), { timeout: 20_000 }).toBeGreaterThanOrEqual(3);
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(143);
    expect(coordinator.count("release")).toBe(1);
  });

  it("a command ended by a signal gives 128+n", async () => {
    expect(await exec(coordinator, ["sh", "-c", "kill -9 $$"]).ended).toBe(137);
  });

  it("hands signals on and leaves the end to the command", async () => {
    const run = exec(coordinator, [
      "sh",
      "-c",
      'trap "echo got TERM; exit 3" TERM; trap "echo got HUP" HUP; echo ready; while :; do sleep 0.05; done',
    ]);
    await run.says("ready");
    run.child.kill("SIGHUP");
    await run.says("got HUP");
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(3);
    expect(coordinator.count("release")).toBe(1);
  });

  it("stops what the command left behind before the right is given back", async () => {
    const run = exec(coordinator, ["sh", "-c", 'sleep 60 & echo "left $!"'], ["--grace", "5"]);
    let leftAtRelease: boolean | undefined;
    coordinator.on["release"] = async () => {
      const pid = Number(/left (\d+)/.exec(run.stdout())?.[1]);
      leftAtRelease = await isAlive(pid);
      return { status: 200, body: { released: true } };
    };
    expect(await run.ended).toBe(0);
    expect(leftAtRelease).toBe(false);
    expect(run.stderr()).toContain("left processes behind");
  });

  it("a command that is not there is one line and 120, and the right is given back", async () => {
    const run = exec(coordinator, ["/no/such/command"]);
    expect(await run.ended).toBe(120);
    expect(run.stderr()).toContain("fenceline: cannot run /no/such/command: there is no such command\n");
    expect(coordinator.count("release")).toBe(1);
  });
});

describe("exec and a right that is lost", { timeout }, () => {
  it("FM-12 stops the command with all that it started, and says why: 122", async () => {
    const run = exec(coordinator, ["sh", "-c", 'sleep 60 & echo "inner $!"; wait; echo "went on"']);
    await run.says("inner");
    coordinator.on["renew"] = () => refusal("lost", { reason: "superseded" });
    expect(await run.ended).toBe(122);
    expect(run.stderr()).toContain("fenceline: shop/orders: lost (superseded): stopping the command\n");
    expect(run.stdout()).not.toContain("went on");
    expect(await isAlive(Number(/inner (\d+)/.exec(run.stdout())?.[1]))).toBe(false);
    expect(coordinator.count("release")).toBe(0);
  });

  it("kills what does not heed SIGTERM after the grace", async () => {
    const run = exec(
      coordinator,
      ["sh", "-c", 'trap "echo deaf" TERM; echo ready; while :; do sleep 0.05; done'],
      ["--grace", "0.5"],
    );
    await run.says("ready");
    coordinator.on["renew"] = () => refusal("lost", { reason: "forced" });
    expect(await run.ended).toBe(122);
    expect(run.stdout()).toContain("deaf");
  });

  it("a command that ends well on SIGTERM does not hide the loss", async () => {
    const run = exec(coordinator, [
      "sh",
      "-c",
      'trap "exit 0" TERM; echo ready; while :; do sleep 0.05; done',
    ]);
    await run.says("ready");
    coordinator.on["renew"] = () => refusal("lost", { reason: "deleted" });
    expect(await run.ended).toBe(122);
  });

  it("FM-24 black hole: lost by its own deadline, then released for what a late renewal may have kept alive", async () => {
    coordinator.on["acquire"] = () => granted("42", shortMs);
    coordinator.on["renew"] = () => "never";
    const run = exec(coordinator, sleeper);
    expect(await run.ended).toBe(122);
    expect(run.stderr()).toContain("lost (deadline)");
    expect(coordinator.calls.at(-1)).toMatchObject({ verb: "release", body: { token: "42" } });
  });

  it("rides out failures that end in time", async () => {
    const run = exec(coordinator, ["sh", "-c", "sleep 3"]);
    const { renew } = coordinator.on;
    let failures = 0;
    coordinator.on["renew"] = (call) =>
      ++failures <= 2 || renew === undefined ? refusal("outcome_unknown") : renew(call);
    expect(await run.ended).toBe(0);
    expect(run.stderr()).toContain("not renewed (outcome_unknown, says the test)");
    expect(run.stderr()).toContain("renewed again");
  });

  it("FM-21 stopped and continued, it knows of its loss at once and stops the command", async () => {
    brief();
    const run = exec(coordinator, sleeper);
    await run.says("working");
    await stopped(run, 2600);
    const renewals = coordinator.count("renew");
    run.child.kill("SIGCONT");
    expect(await run.ended).toBe(122);
    expect(run.stderr()).toContain("lost (deadline)");
    expect(coordinator.count("renew")).toBe(renewals);
  });

  it("a command that ended while exec was stopped for too long did not end under its right", async () => {
    brief();
    const run = exec(coordinator, ["sh", "-c", "echo working; sleep 0.5"]);
    await run.says("working");
    await stopped(run, 2600);
    run.child.kill("SIGCONT");
    expect(await run.ended).toBe(122);
  });

  it("a right that was gone by the end of the work is told by the release", async () => {
    coordinator.on["release"] = () => ({ status: 200, body: { released: false, reason: "forced" } });
    const run = exec(coordinator, ["true"]);
    expect(await run.ended).toBe(122);
    expect(run.stderr()).toContain("the right was gone before the command ended (forced)");
  });

  it("SIGTSTP stops the command too, and SIGCONT continues both", async () => {
    coordinator.on["acquire"] = () => granted("42", { leaseDurationMs: 60_000, renewAfterMs: 20_000 });
    // One process: a shell that is stopped in the middle of starting a command waits for it in state D.
    const run = exec(coordinator, ["sh", "-c", 'echo "me $$"; exec sleep 60']);
    await run.says("me ");
    const pid = Number(/me (\d+)/.exec(run.stdout())?.[1]);
    const stateOf = async (of: number) => /\) (\S)/.exec(await readFile(`/proc/${of}/stat`, "utf8"))?.[1];
    run.child.kill("SIGTSTP");
    await expect.poll(() => stateOf(run.pid)).toBe("T");
    await expect.poll(() => stateOf(pid)).toBe("T");
    run.child.kill("SIGCONT");
    await expect.poll(() => stateOf(pid)).not.toBe("T");
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(143);
  });
});

describe("exec that waits", { timeout }, () => {
  it("a signal while it waits ends it with 128+n, and nothing runs", async () => {
    coordinator.on["acquire"] = ({ body }) =>
      body["waitMs"] === 0 ? refusal("busy", { holder: "user:abc/other" }) : "never";
    const run = exec(coordinator, ["echo", "ran"]);
    await run.says("waiting for");
    run.child.kill("SIGTERM");
    expect(await run.ended).toBe(143);
    expect(run.stdout()).toBe("");
  });
});
