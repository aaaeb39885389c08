import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { advanceBy, higher, lastToken, noToken, parseToken, type Token } from "./token.ts";

const tokens = fc.bigInt({ min: 0n, max: lastToken }).map((value) => value as Token);

describe("FM-38 tokens as text", () => {
  const read: [string, bigint | undefined][] = [
    ["0", 0n],
    ["1", 1n],
    ["9007199254740993", 9_007_199_254_740_993n],
    ["9223372036854775807", lastToken],
    ["9223372036854775808", undefined],
    ["9999999999999999999", undefined],
    ["10000000000000000000", undefined],
    ["", undefined],
    [" 7", undefined],
    ["7\n", undefined],
    ["-1", undefined],
    ["+1", undefined],
    ["007", undefined],
    ["042", undefined],
    ["1e3", undefined],
    ["0x10", undefined],
    ["1.0", undefined],
    ["1_000", undefined],
    ["٧", undefined],
  ];
  for (const [text, want] of read)
    it(`${JSON.stringify(text)} is ${want ?? "refused"}`, () => {
      expect(parseToken(text)).toBe(want);
    });

  it("come back exactly, whatever their size", () => {
    fc.assert(
      fc.property(tokens, (token) => {
        expect(parseToken(token.toString())).toBe(token);
      }),
    );
  });

  it("anything else that reads as a token is written as it was read", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.bigInt().map(String)), (text) => {
        const token = parseToken(text);
        expect(token === undefined || token.toString() === text).toBe(true);
      }),
    );
  });
});

describe("FM-38 the end of the range", () => {
  it("is never passed and never wraps", () => {
    expect(advanceBy(lastToken, 0n)).toBe(lastToken);
    expect(advanceBy(lastToken, 1n)).toBeUndefined();
    expect(advanceBy((lastToken - 1n) as Token, 1n)).toBe(lastToken);
    fc.assert(
      fc.property(tokens, fc.bigInt({ min: 0n, max: 2n ** 64n }), (token, count) => {
        const moved = advanceBy(token, count);
        expect(moved).toBe(token + count > lastToken ? undefined : token + count);
      }),
    );
  });
});

it("higher is the larger one, in whatever order", () => {
  expect(higher(noToken, lastToken)).toBe(lastToken);
  fc.assert(
    fc.property(tokens, tokens, (a, b) => {
      expect(higher(a, b)).toBe(higher(b, a));
      expect([a, b]).toContain(higher(a, b));
      expect(higher(a, b) >= a).toBe(true);
    }),
  );
});
