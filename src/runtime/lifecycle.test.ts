import { EventEmitter } from "node:events";
import { describe, expect, it } from "vitest";
import { makeFakeClock, settle } from "../../test/support/clock.ts";
import { makeLifecycle, type ProcessLike } from "./lifecycle.ts";
import { makeLogger } from "./logger.ts";

const world = () => {
  const signals = new EventEmitter();
  const exits: number[] = [];
  const lines: string[] = [];
  const seen: string[] = [];
  const clock = makeFakeClock();
  const process: ProcessLike = {
    on: (event: string, listener: (error: unknown) => void) => signals.on(event, listener),
    exit: (code) => void exits.push(code),
  };
  const log = makeLogger({ level: "debug", sink: { write: (line) => lines.push(line) } });
  const lifecycle = makeLifecycle({ clock, log, process });
  return { signals, exits, lines, seen, clock, lifecycle };
};

describe("the end of the process", () => {
  it("runs the steps in their order, one after the other, and exits with 128 + signal", async () => {
    const { signals, exits, seen, clock, lifecycle } = world();
    lifecycle.onStop("unready", 100, () => void seen.push(`unready ${lifecycle.stopping.aborted}`));
    lifecycle.onStop("release", 1000, async (signal) => {
      await clock.sleep(500, signal);
      seen.push("released");
    });
    lifecycle.onStop("pools", 100, () => void seen.push("pools"));
    expect(lifecycle.stopping.aborted).toBe(false);
    signals.emit("SIGTERM");
    await settle();
    expect(seen).toEqual(["unready true"]);
    await clock.advance(500);
    expect(seen).toEqual(["unready true", "released", "pools"]);
    expect(exits).toEqual([143]);
    expect(clock.pending()).toBe(0);
  });

  it("goes on after a step that exceeds its bound, and aborts it", async () => {
    const { signals, exits, seen, clock, lines, lifecycle } = world();
    lifecycle.onStop("stuck", 200, async (signal) => {
      signal.addEventListener("abort", () => seen.push("aborted"));
      await new Promise(() => {});
    });
    lifecycle.onStop("next", 100, () => void seen.push("next"));
    signals.emit("SIGINT");
    await clock.advance(199);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual(["aborted", "next"]);
    expect(exits).toEqual([130]);
    expect(lines.join("")).toContain("shutdown step exceeded its bound");
  });

  it("goes on after a step that fails", async () => {
    const { lifecycle, exits, seen, lines } = world();
    lifecycle.onStop("broken", 100, () => Promise.reject(new Error("no")));
    lifecycle.onStop("next", 100, () => void seen.push("next"));
    await lifecycle.stop(0);
    expect(seen).toEqual(["next"]);
    expect(exits).toEqual([0]);
    expect(lines.join("")).toContain("shutdown step failed");
  });

  it("is forced by a second signal", async () => {
    const { signals, exits, lifecycle } = world();
    lifecycle.onStop("stuck", 10_000, () => new Promise(() => {}));
    signals.emit("SIGTERM");
    await settle();
    expect(exits).toEqual([]);
    signals.emit("SIGINT");
    expect(exits).toEqual([130]);
  });

  it("comes at once, and is logged, on an error that nobody caught", () => {
    for (const event of ["uncaughtException", "unhandledRejection"]) {
      const { signals, exits, lines } = world();
      signals.emit(event, new Error("nobody caught this"));
      expect(exits).toEqual([1]);
      expect(lines.join("")).toContain("nobody caught this");
    }
  });
});
