import { higher, lastToken, type Token } from "../core/token.ts";

/** A block of tokens: those of (base, ceiling]. */
export interface Block {
  base: Token;
  ceiling: Token;
}

/**
 * The block that follows `ceiling`, above `atLeast` too; undefined where tokens are wanted and the range has ended.
 * Nothing wraps: what would lead beyond the last token stops there.
 */
export const nextBlock = (ceiling: Token, count: bigint, atLeast: bigint): Block | undefined => {
  const base = higher(ceiling, upTo(atLeast));
  if (count > 0n && base === lastToken) return undefined;
  return { base, ceiling: upTo(base + count) };
};

const upTo = (value: bigint): Token => (value <= lastToken ? (value as Token) : lastToken);
