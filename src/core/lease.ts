/**
 * What a Lease says, and what follows from it.
 *
 * | Lease | asked by | outcome |
 * | --- | --- | --- |
 * | absent, terminating | acquire | `absent`: make one without holder and credit, read again |
 * | not ours (no label) | any | `foreign`: left alone |
 * | format above ours | any | `newer`: not served |
 * | names the attempt under another identity | any | `forbidden` |
 * | names h, credit valid | acquire | `mine`: a renewal, then the boundary |
 * | h among the ended | acquire | `ended` with its reason |
 * | names another, or h with a void credit | acquire | `held` |
 * | names nobody | acquire | `free`, `clean` or not |
 *
 * Whether a `held` or unclean Lease may be taken yet is a question of time: see observation.ts.
 */
import { noToken, type Token } from "./token.ts";
import type { WallTime } from "./time.ts";

/** `pod:<uid>/<attempt>` or `user:<hash>/<attempt>`: identity and attempt of one acquisition. */
export type HolderId = `${string}/${string}`;

export const holderId = (identity: string, attempt: string): HolderId => `${identity}/${attempt}`;
export const identityOf = (holder: HolderId): string => holder.slice(0, holder.lastIndexOf("/"));
export const attemptOf = (holder: HolderId): string => holder.slice(holder.lastIndexOf("/") + 1);

/** Why an attempt no longer holds. `deadline` is only ever said by the holder itself. */
export type LossReason = "deadline" | "superseded" | "released" | "forced" | "deleted";

/** An attempt that ended, as the Lease remembers it. */
export interface Ended {
  holder: HolderId;
  reason: LossReason;
}

/** How many ended attempts a Lease remembers. Hygiene, not safety. */
export const endedKept = 8;

/** The Lease format this code writes, and the highest it reads. */
export const leaseFormat = 1;

/** The seconds of a first term, until the first renewal: a grant whose answer was lost blocks nobody for longer. */
export const firstTermSeconds = 15;

/** Tokens that may still be spent by writes of this Lease: (token, ceiling]. Counts only under the Lease's own uid. */
export interface Credit {
  uid: string;
  token: Token;
  ceiling: Token;
}

/** What a holder wants people to see of it. Decides nothing. */
export interface HolderNote {
  pod: string | undefined;
  label: string | undefined;
}

/** A Lease as the protocol reads it. Texts that decide nothing stay texts. */
export interface LeaseView {
  uid: string;
  resourceVersion: string;
  /** Carries our label with this resource's name: everything since was written by us. */
  ours: boolean;
  terminating: boolean;
  format: number;
  holder: HolderId | undefined;
  durationSeconds: number | undefined;
  renewTime: WallTime | undefined;
  transitions: number;
  credit: Credit | undefined;
  ended: readonly Ended[];
  /** The last loss was forced: the work may still run. */
  unclean: boolean;
  /** Hash of the boundary that was guarded and advanced for this Lease; undefined stands for none. */
  boundary: string | undefined;
  note: HolderNote | undefined;
  /** Who took it away by force and why, until the next grant. */
  forced: string | undefined;
}

/** Credit that may be spent, or undefined where it is void: another uid wrote it, or somebody who is not us. [R] */
export const validCredit = (lease: LeaseView): Credit | undefined =>
  lease.ours && !lease.terminating && lease.credit?.uid === lease.uid ? lease.credit : undefined;

/** The token that this Lease grants to its holder; none where the credit is void. */
export const grantedToken = (lease: LeaseView): Token => validCredit(lease)?.token ?? noToken;

export type Claim =
  | { kind: "absent" }
  | { kind: "foreign" }
  | { kind: "newer"; format: number }
  | { kind: "forbidden" }
  | { kind: "mine"; token: Token }
  | { kind: "ended"; reason: LossReason }
  | { kind: "held"; holder: HolderId }
  | { kind: "free"; clean: boolean };

/** Is there a Lease that can be read at all? A terminating one would still accept a holder, so it counts as absent. */
const unreadable = (
  lease: LeaseView | undefined,
): Extract<Claim, { kind: "absent" | "foreign" | "newer" }> | undefined => {
  if (lease === undefined || lease.terminating) return { kind: "absent" };
  if (!lease.ours) return { kind: "foreign" };
  // Also one that is no number: what we cannot read, we do not serve.
  if (!(lease.format <= leaseFormat)) return { kind: "newer", format: lease.format };
  return undefined;
};

/** The attempt was made by another identity: it belongs to who made it. */
const stolen = (lease: LeaseView, me: HolderId): boolean => {
  const same = (other: HolderId) => attemptOf(other) === attemptOf(me) && other !== me;
  return (lease.holder !== undefined && same(lease.holder)) || lease.ended.some((past) => same(past.holder));
};

/** What an attempt that asks for the resource finds (step 1 of acquire). */
export const claim = (lease: LeaseView | undefined, me: HolderId): Claim => {
  const unread = unreadable(lease);
  if (unread !== undefined || lease === undefined) return unread ?? { kind: "absent" };
  if (stolen(lease, me)) return { kind: "forbidden" };
  const credit = validCredit(lease);
  if (lease.holder === me && credit !== undefined) return { kind: "mine", token: credit.token };
  const past = lease.ended.find((ended) => ended.holder === me);
  if (past !== undefined) return { kind: "ended", reason: past.reason };
  if (lease.holder !== undefined) return { kind: "held", holder: lease.holder };
  return { kind: "free", clean: credit !== undefined && !lease.unclean };
};

export type Renewal =
  | { kind: "renew" }
  | { kind: "forbidden" }
  | { kind: "lost"; reason: LossReason }
  | { kind: "regressed"; seen: Token; reason: LossReason }
  | { kind: "newer"; format: number };

/** How far above the Lease a caller's token may testify for a restore; beyond it the number is not believed. */
export const believable = 2n ** 32n;

/**
 * What an attempt that shows `token` still is, by a version read fresh [R] if the answer is anything but `renew`.
 *
 * `regressed`: the caller holds a token above all that this Lease ever granted, so the Lease went back in time. The
 * attempt is lost all the same, but nobody may be granted anything before the sequence stands above what was seen.
 */
export const renewal = (lease: LeaseView | undefined, me: HolderId, token: Token): Renewal => {
  const unread = unreadable(lease);
  if (unread?.kind === "newer") return unread;
  if (unread !== undefined || lease === undefined) return { kind: "lost", reason: "deleted" };
  if (stolen(lease, me)) return { kind: "forbidden" };
  const credit = validCredit(lease);
  if (credit !== undefined && lease.holder === me && credit.token === token) return { kind: "renew" };
  const reason = lossReason(lease, me);
  return credit !== undefined && token > credit.token
    ? { kind: "regressed", seen: token, reason }
    : { kind: "lost", reason };
};

/** Why `me` is not, or no longer, the holder by what the Lease remembers. */
export const lossReason = (lease: LeaseView, me: HolderId): LossReason => {
  const past = lease.ended.find((ended) => ended.holder === me);
  if (past !== undefined) return past.reason;
  return validCredit(lease) === undefined ? "deleted" : "superseded";
};

/** The part of a Lease that one of our writes decides. The rest (labels, foreign annotations) stays as it was read. */
export interface LeaseChange {
  holder: HolderId | undefined;
  durationSeconds: number;
  /** Set on a grant only. */
  acquireTime?: WallTime;
  renewTime: WallTime;
  transitions: number;
  credit: Credit | undefined;
  ended: readonly Ended[];
  unclean: boolean;
  boundary: string | undefined;
  note: HolderNote | undefined;
  forced: string | undefined;
}

/** A renewal that changes nothing commits nothing: each one writes a time text that nobody wrote before. */
export const nextRenewTime = (last: WallTime | undefined, now: WallTime): WallTime =>
  (last === undefined || now > last ? now : last + 1n) as WallTime;

const join = (ended: readonly Ended[], past: Ended): readonly Ended[] =>
  [...ended.filter((other) => other.holder !== past.holder), past].slice(-endedKept);

export type Spend =
  | { kind: "spend"; token: Token; ceiling: Token }
  /** No usable credit: reserve a block above `atLeast`, after the Lease was read. [R] */
  | { kind: "reserve"; atLeast: Token };

/** The next token of this Lease (step 2), above `floor` in any case. */
export const spend = (lease: LeaseView, floor: Token): Spend => {
  const credit = validCredit(lease);
  if (credit === undefined) return { kind: "reserve", atLeast: floor };
  const next = (credit.token + 1n) as Token;
  return next <= credit.ceiling && next > floor
    ? { kind: "spend", token: next, ceiling: credit.ceiling }
    : { kind: "reserve", atLeast: floor };
};

/**
 * How far a sequence is raised above everything seen when it went back in time and no boundary can testify: more than
 * anything that may have been granted between a backup and its restore.
 */
export const safetyJump = 2n ** 20n;

/** A block that starts below what the Lease was ever lent comes from a sequence that went back in time. */
export const regressedBlock = (lease: LeaseView, base: Token): boolean =>
  base < (validCredit(lease)?.ceiling ?? noToken);

/** The Lease that names `me` with a token of its own (step 3). */
export const grant = (
  lease: LeaseView,
  me: HolderId,
  tokens: { token: Token; ceiling: Token },
  durationSeconds: number,
  now: WallTime,
  note: HolderNote | undefined,
): LeaseChange => {
  const time = nextRenewTime(lease.renewTime, now);
  return {
    holder: me,
    durationSeconds: Math.min(durationSeconds, firstTermSeconds),
    acquireTime: time,
    renewTime: time,
    transitions: lease.transitions + 1,
    credit: { uid: lease.uid, ...tokens },
    ended:
      lease.holder !== undefined && lease.holder !== me
        ? join(lease.ended, { holder: lease.holder, reason: "superseded" })
        : lease.ended,
    unclean: false,
    boundary: lease.boundary,
    note,
    forced: undefined,
  };
};

const unchanged = (lease: LeaseView, now: WallTime): LeaseChange => ({
  holder: lease.holder,
  durationSeconds: lease.durationSeconds ?? firstTermSeconds,
  renewTime: nextRenewTime(lease.renewTime, now),
  transitions: lease.transitions,
  credit: lease.credit,
  ended: lease.ended,
  unclean: lease.unclean,
  boundary: lease.boundary,
  note: lease.note,
  forced: lease.forced,
});

/** The Lease renewed by its holder, for a whole term of what the resource says now. */
export const renewed = (lease: LeaseView, durationSeconds: number, now: WallTime): LeaseChange => ({
  ...unchanged(lease, now),
  durationSeconds,
});

const vacated = (lease: LeaseView, reason: "released" | "forced", now: WallTime): LeaseChange => ({
  ...unchanged(lease, now),
  holder: undefined,
  ended: lease.holder === undefined ? lease.ended : join(lease.ended, { holder: lease.holder, reason }),
  note: undefined,
});

/** The Lease given back by its holder. Keeps the credit. */
export const released = (lease: LeaseView, now: WallTime): LeaseChange => vacated(lease, "released", now);

/** The Lease taken away by an operator, `why` for the record: the work may still run, so the loss is unclean. */
export const forced = (lease: LeaseView, why: string, now: WallTime): LeaseChange => ({
  ...vacated(lease, "forced", now),
  unclean: true,
  forced: why,
});

/**
 * The Lease with nothing left to spend, so that the next grant has to reserve. Holder and token stay: what was granted
 * is not taken back, but nothing is handed out from a block that a restore may have brought back to life.
 */
export const drained = (lease: LeaseView, now: WallTime): LeaseChange => {
  const credit = validCredit(lease);
  return {
    ...unchanged(lease, now),
    credit: credit === undefined ? lease.credit : { ...credit, ceiling: credit.token },
  };
};
