import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { wallTime } from "../core/time.ts";
import { formatMicroTime, parseMicroTime } from "./microtime.ts";

const first = -62_167_219_200_000_000n; // 0000-01-01
const last = 253_402_300_799_999_999n; // 9999-12-31T23:59:59.999999Z

describe("MicroTime", () => {
  it("has six digits, always", () => {
    expect(formatMicroTime(wallTime(0n))).toBe("1970-01-01T00:00:00.000000Z");
    expect(formatMicroTime(wallTime(1n))).toBe("1970-01-01T00:00:00.000001Z");
    expect(formatMicroTime(wallTime(-1n))).toBe("1969-12-31T23:59:59.999999Z");
    expect(formatMicroTime(wallTime(first))).toBe("0000-01-01T00:00:00.000000Z");
    expect(formatMicroTime(wallTime(last))).toBe("9999-12-31T23:59:59.999999Z");
  });

  it("comes back as it went, over its whole range", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: first, max: last }), (time) => {
        expect(parseMicroTime(formatMicroTime(wallTime(time)))).toBe(time);
      }),
    );
  });

  it("keeps order between text and number", () => {
    const range = fc.bigInt({ min: first, max: last });
    fc.assert(
      fc.property(range, range, (a, b) => {
        expect(formatMicroTime(wallTime(a)) < formatMicroTime(wallTime(b))).toBe(a < b);
      }),
    );
  });

  it("reads an offset as the same moment", () => {
    expect(parseMicroTime("2026-05-01T12:00:00.000001+02:00")).toBe(
      parseMicroTime("2026-05-01T10:00:00.000001Z"),
    );
    expect(parseMicroTime("2026-05-01T12:00:00.000001-05:30")).toBe(
      parseMicroTime("2026-05-01T17:30:00.000001Z"),
    );
  });

  it.each([
    "",
    "2026-05-01T12:00:00Z",
    "2026-05-01T12:00:00.123Z",
    "2026-05-01T12:00:00.1234567Z",
    "2026-05-01 12:00:00.123456Z",
    "2026-05-01T12:00:00.123456",
    "2026-04-31T12:00:00.123456Z",
    "2026-13-01T12:00:00.123456Z",
    "2026-05-01T25:00:00.123456Z",
    "2026-05-01T12:00:60.123456Z",
    "2026-05-01T12:00:00.123456+24:00",
    " 2026-05-01T12:00:00.123456Z",
  ])("refuses %j", (text) => {
    expect(parseMicroTime(text)).toBeUndefined();
  });

  it("refuses to write what has no place in it", () => {
    expect(() => formatMicroTime(wallTime(last + 1n))).toThrow(RangeError);
    expect(() => formatMicroTime(wallTime(first - 1n))).toThrow(RangeError);
  });
});
