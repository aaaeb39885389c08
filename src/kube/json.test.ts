import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { leaseSchema } from "../api/lease.ts";
import { formatJson, parseJson } from "./json.ts";

describe("JSON between us and the API server", () => {
  it.each(["9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615"])(
    "int64 %s survives both ways",
    (digits) => {
      const text = `{"spec":{"big":${digits},"list":[${digits}, ${digits}],"small":7}}`;
      const value = parseJson(text);
      expect(value).toEqual({
        spec: { big: BigInt(digits), list: [BigInt(digits), BigInt(digits)], small: 7 },
      });
      expect(formatJson(value)).toBe(text.replace(", ", ","));
    },
  );

  it("leaves texts, safe integers and fractions as they are", () => {
    const text = '{"a":":9007199254740993","b":9007199254740991,"c":0.1234567890123456,"d":1e300}';
    expect(parseJson(text)).toEqual({
      a: ":9007199254740993",
      b: 9007199254740991,
      c: 0.1234567890123456,
      d: 1e300,
    });
  });

  it("is refused aloud where a schema expects a number", () => {
    const lease = parseJson(
      '{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{"leaseTransitions":9007199254740993}}',
    );
    expect(() => leaseSchema.parse(lease)).toThrow(/leaseTransitions/);
  });

  it("reads what JSON.parse reads, wherever that rounds nothing", () => {
    const exact = fc
      .jsonValue({ noUnicodeString: false })
      .map((value) =>
        JSON.stringify(value, (_key, inner: unknown) =>
          typeof inner === "number" && Number.isInteger(inner) && !Number.isSafeInteger(inner) ? 0 : inner,
        ),
      );
    fc.assert(
      fc.property(exact, (text) => {
        expect(parseJson(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 1_000 },
    );
  });

  it("throws a SyntaxError on half a line", () => {
    expect(() => parseJson('{"type":"ADDED","obj')).toThrow(SyntaxError);
  });
});
