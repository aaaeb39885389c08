import { describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import { makeLineLogger } from "./linelogger.ts";
import { makeLogger } from "./logger.ts";

describe("log lines without a library", () => {
  it("S1-58 are those of the logger, secrets kept out alike", () => {
    const own: string[] = [];
    const library: string[] = [];
    const fields = {
      resource: "shop/orders",
      token: 42n,
      bearer: "abcdefghij",
      error: new Error("Bearer abcdefghijkl refused"),
    };
    makeLineLogger({ level: "info", clock: makeFakeClock(), write: (line) => own.push(line) }).warn(
      fields,
      "the right is lost",
    );
    makeLogger({ level: "info", sink: { write: (line) => library.push(line) } }).warn(
      fields,
      "the right is lost",
    );
    const [mine, theirs] = [own, library].map(([line = "{}"]) => JSON.parse(line) as Record<string, unknown>);
    expect({ ...mine, time: "" }).toEqual({ ...theirs, time: "" });
    expect(mine?.["time"]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/);
    expect(own.join()).not.toMatch(/abcdefghij/);
  });

  it("are written from their level on", () => {
    const lines: string[] = [];
    const log = makeLineLogger({
      level: "warn",
      clock: makeFakeClock(),
      write: (line) => lines.push(line),
    });
    log.debug({}, "a");
    log.info({}, "b");
    log.warn({}, "c");
    log.error({}, "d");
    expect(lines).toHaveLength(2);
  });
});
