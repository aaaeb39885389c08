/**
 * Fencing tokens: strictly increasing integers 1 … 2^63−1; 0 stands for "none yet".
 *
 * `bigint` in memory, decimal strings on every wire. Nothing rounds and nothing wraps.
 */

declare const token: unique symbol;

export type Token = bigint & { readonly [token]: true };

/** No token was ever given. Below every real one. */
export const noToken = 0n as Token;

/** The last token there is: 2^63−1, the end of SQL's `bigint`. */
export const lastToken = 9_223_372_036_854_775_807n as Token;

const decimal = /^(0|[1-9][0-9]{0,18})$/;

/**
 * Reads a token, or the mark or ceiling of a sequence, from its decimal text.
 * Undefined for everything else: signs, leading zeros, exponents, blanks, values above 2^63−1.
 */
export const parseToken = (text: string): Token | undefined => {
  if (!decimal.test(text)) return undefined;
  const value = BigInt(text);
  return value <= lastToken ? (value as Token) : undefined;
};

/** `token` moved up by `count`, or undefined past the end of the range. */
export const advanceBy = (token: Token, count: bigint): Token | undefined =>
  token + count <= lastToken ? ((token + count) as Token) : undefined;

export const higher = (a: Token, b: Token): Token => (a >= b ? a : b);
