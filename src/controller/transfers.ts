/**
 * How ownership moved since the status was last written, told from the Lease alone, also over a time in which nobody
 * watched.
 *
 * | the status named | the Lease | moves |
 * | --- | --- | --- |
 * | nobody | names B | B granted |
 * | A | names A | none; granted anew where the token is another |
 * | A | names nobody, A among the ended | A ended, by its reason |
 * | A | names B, A among the ended | A ended, B granted |
 * | A | names nobody or B, A not among the ended | the Lease was deleted: A ended, B granted |
 * | any | others among the ended that no transfer tells of | each of them granted and ended in between |
 *
 * One transfer is one change of ownership. An end that nobody followed yet stands without `to`; the next grant fills it.
 */
import type { Transfer } from "../api/fencedresource.ts";
import { type Ended, endedKept, grantedToken, type LeaseView } from "../core/lease.ts";
import { noToken, parseToken, type Token } from "../core/token.ts";

export type EndReason = "Released" | "Expired" | "Forced" | "Deleted";

export type Move =
  | { kind: "granted"; holder: string; token: Token }
  | { kind: "ended"; holder: string; token: Token | undefined; reason: EndReason };

/** What the status said before. */
export interface Told {
  holder: { identity: string; token: string } | undefined;
  /** Highest token granted so far. */
  granted: Token;
  transfers: readonly Transfer[];
  /** The status was never written: what the Lease remembers is history, not news. */
  fresh: boolean;
}

const transfersKept = 10;

const endReason = (reason: Ended["reason"]): EndReason => {
  switch (reason) {
    case "released":
      return "Released";
    case "forced":
      return "Forced";
    case "deleted":
      return "Deleted";
    case "superseded":
    case "deadline":
      return "Expired";
    default: {
      const never: never = reason;
      return never;
    }
  }
};

interface Attempt {
  holder: string;
  token: Token | undefined;
  end: EndReason | undefined;
}

/**
 * The attempts that ended after the last one that the status knows of. Where it knows none of them, as many as tokens were
 * granted since: what is older was there before the status was.
 */
const endedSince = ({ holder, granted, transfers, fresh }: Told, lease: LeaseView): readonly Ended[] => {
  if (fresh) return [];
  const known = new Set([holder?.identity, ...transfers.flatMap(({ from, to }) => [from, to])]);
  const last = lease.ended.findLastIndex((ended) => known.has(ended.holder));
  if (last >= 0) return lease.ended.slice(last + 1);
  const isNew = lease.holder !== undefined && lease.holder !== holder?.identity;
  const grants = Number(grantedToken(lease) - granted) - (isNew ? 1 : 0);
  return grants > 0 ? lease.ended.slice(-grants) : [];
};

/** How the attempt that the status names ended; undefined where it holds on. */
const endOf = (identity: string, lease: LeaseView | undefined): EndReason | "forgotten" | undefined => {
  if (lease?.holder === identity) return undefined;
  const ended = lease?.ended.find((past) => past.holder === identity);
  if (ended !== undefined) return endReason(ended.reason);
  // A Lease that remembers nothing of it was made anew, unless so many came after it that it was pushed out.
  return lease !== undefined && lease.ended.length >= endedKept ? "forgotten" : "Deleted";
};

/** The attempts from the one that the status names to the one that the Lease names, oldest first. */
const attemptsSince = (told: Told, lease: LeaseView | undefined): Attempt[] => {
  const { holder, granted: before } = told;
  const newcomers: Attempt[] = (lease === undefined ? [] : endedSince(told, lease)).map((ended) => ({
    holder: ended.holder,
    token: undefined,
    end: endReason(ended.reason),
  }));
  if (lease?.holder !== undefined && lease.holder !== holder?.identity)
    newcomers.push({ holder: lease.holder, token: undefined, end: undefined });
  withTokens(newcomers, before, lease === undefined ? noToken : grantedToken(lease));
  const end = holder === undefined ? undefined : endOf(holder.identity, lease);
  if (holder === undefined || end === "forgotten") return newcomers;
  return [{ holder: holder.identity, token: parseToken(holder.token), end }, ...newcomers];
};

/**
 * Newcomers' tokens. The last one was granted the Lease's; the others have the ones before it only where no token was
 * left out since `before`. Else nobody knows, and nothing is guessed.
 */
const withTokens = (newcomers: Attempt[], before: Token, granted: Token) => {
  const last = newcomers.at(-1);
  if (last === undefined || granted === noToken) return;
  last.token = granted;
  if (granted - before !== BigInt(newcomers.length)) return;
  for (const [index, attempt] of newcomers.entries()) attempt.token = (before + BigInt(index + 1)) as Token;
};

/** The token that the Lease grants to the holder that the status names, where it is another than the status says. */
const anotherToken = ({ holder }: Told, lease: LeaseView | undefined): Token | undefined => {
  const granted = lease === undefined ? noToken : grantedToken(lease);
  return granted === noToken || granted.toString() === holder?.token ? undefined : granted;
};

/** What happened, in order. A grant whose token nobody knows is left out. */
export const movesSince = (told: Told, lease: LeaseView | undefined): Move[] => {
  const attempts = attemptsSince(told, lease);
  return attempts.flatMap(({ holder, token, end }, index): Move[] => {
    const before = index === 0 && holder === told.holder?.identity;
    const given = !before ? token : end === undefined ? anotherToken(told, lease) : undefined;
    return [
      ...(given === undefined ? [] : [{ kind: "granted" as const, holder, token: given }]),
      ...(end === undefined ? [] : [{ kind: "ended" as const, holder, token, reason: end }]),
    ];
  });
};

/** The transfers with these moves added; `time` is now. */
export const transfersAfter = (
  transfers: readonly Transfer[],
  moves: readonly Move[],
  time: string,
): Transfer[] => {
  const list = [...transfers];
  /** An end whose token nobody knows: told only as the start of a transfer. */
  let unknown: { from: string; reason: EndReason } | undefined;
  for (const move of moves) {
    if (move.kind === "ended") {
      const { holder: from, reason } = move;
      unknown = move.token === undefined ? { from, reason } : undefined;
      if (move.token !== undefined) list.push({ token: move.token.toString(), from, reason, time });
      continue;
    }
    const to = move.holder;
    const token = move.token.toString();
    const last = list.at(-1);
    if (last?.to === to) list[list.length - 1] = { ...last, token };
    else if (unknown !== undefined) list.push({ token, ...unknown, to, time });
    else if (last !== undefined && last.to === undefined)
      list[list.length - 1] = {
        token,
        ...(last.from === undefined ? {} : { from: last.from }),
        to,
        reason: last.reason,
        time,
      };
    else list.push({ token, to, reason: "Granted", time });
    unknown = undefined;
  }
  return list.slice(-transfersKept);
};
