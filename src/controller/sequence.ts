/**
 * What has to be done to the sequence of a resource before tokens may be granted.
 *
 * | sequence | and | plan |
 * | --- | --- | --- |
 * | missing, unopened | never seen before, or Lease or mark tell how far it went | open above everything known |
 * | missing, unopened | seen before, nothing left that tells | stuck, until a floor is given |
 * | copied | by this cluster | open above everything known, with a safety jump |
 * | open, copied | by another cluster | stuck |
 * | sealed, unavailable | | stuck |
 * | open | history went back, or Lease or status above it | mend: raise with a safety jump, drain the Lease |
 * | open | boundary's mark above it | raise; stuck where that would burn the range |
 * | open | floor above it | raise |
 * | open | its last token is granted | stuck |
 * | open | else | level |
 */
import { believable, type LeaseView, safetyJump, validCredit } from "../core/lease.ts";
import { higher, lastToken, noToken, type Token } from "../core/token.ts";
import type { SequenceState } from "../store/port.ts";
import type { ConditionReason } from "../api/names.ts";

export interface SequenceInput {
  sequence: SequenceState;
  /** Identity of this cluster. */
  issuer: string;
  floor: Token;
  lease: LeaseView | undefined;
  /** What the status says was there before; undefined where it never said. It can only raise. */
  mirrored: { granted: Token | undefined; ceiling: Token | undefined };
  /** Mark of a boundary that learns of each token before it is answered, read now. */
  mark: Token | undefined;
  /** Highest number seen before the API server's history went back; undefined while it did not. */
  restored: Token | undefined;
}

export type SequencePlan =
  | { kind: "level"; ceiling: Token }
  | { kind: "open"; at: Token; why: string | undefined }
  | { kind: "raise"; from: Token; to: Token; why: string }
  | { kind: "mend"; seen: Token; why: string }
  | { kind: "stuck"; reason: ConditionReason<"TokensConsistent">; message: string };

const highest = (...tokens: (Token | undefined)[]): Token =>
  tokens.reduce<Token>((top, token) => higher(top, token ?? noToken), noToken);

const wentBack = "the API server went back in time";

const jumped = (token: Token): Token =>
  token < lastToken - safetyJump ? ((token + safetyJump) as Token) : lastToken;

const stuck = (reason: ConditionReason<"TokensConsistent">, message: string): SequencePlan => ({
  kind: "stuck",
  reason,
  message,
});

const foreign = (issuer: string): SequencePlan =>
  stuck(
    "IssuerMismatch",
    `the tokens are issued by another cluster (${issuer}): stop that one, delete this FencedSequence, and give a spec.tokens.floor above every token that it handed out`,
  );

/** The next thing to do. Each but `level` and `stuck` is followed by another look. */
export const planSequence = (input: SequenceInput): SequencePlan => {
  const { sequence, issuer } = input;
  switch (sequence.state) {
    case "unavailable":
      return stuck("StoreUnavailable", `the sequence cannot be read: ${sequence.message}`);
    case "missing":
    case "unopened":
      return planOpening(input);
    case "copied":
      if (sequence.issuer !== issuer) return foreign(sequence.issuer);
      return {
        kind: "open",
        at: jumped(everything(input, sequence.ceiling)),
        why: "the FencedSequence is a copy put back from elsewhere, and may be older than what was granted",
      };
    case "open":
      if (sequence.issuer !== issuer) return foreign(sequence.issuer);
      if (sequence.sealed)
        return stuck(
          "SequenceSealed",
          "the sequence was moved to another store: nothing is granted from here",
        );
      return planOpen(input, sequence.ceiling);
    default: {
      const never: never = sequence;
      return never;
    }
  }
};

/** Above all of it no token was ever handed out, as far as anything tells. */
const everything = ({ floor, lease, mirrored, mark, restored }: SequenceInput, claimed: Token): Token =>
  // Also a void credit: what stands in a Lease of ours was once reserved.
  highest(
    floor,
    lease?.ours ? lease.credit?.ceiling : noToken,
    mirrored.granted,
    mirrored.ceiling,
    mark,
    restored,
    claimed,
  );

const planOpening = (input: SequenceInput): SequencePlan => {
  const { floor, lease, mirrored, mark, restored } = input;
  const seen = everything(input, noToken);
  const at = restored === undefined ? seen : jumped(seen);
  const credit = lease === undefined ? undefined : validCredit(lease);
  const seenBefore = mirrored.ceiling !== undefined || lease?.credit !== undefined;
  if (!seenBefore && (mark ?? noToken) === noToken)
    return { kind: "open", at, why: restored === undefined ? undefined : wentBack };
  if (credit !== undefined)
    return { kind: "open", at, why: "the sequence was gone; the Lease tells how far it went" };
  if (mark !== undefined)
    return { kind: "open", at, why: "the sequence was gone; the boundary tells how far it went" };
  const least = highest(mirrored.granted, mirrored.ceiling, lease?.credit?.ceiling);
  if (floor > noToken && floor >= least)
    return { kind: "open", at, why: "the sequence was gone; spec.tokens.floor tells how far it went" };
  return stuck(
    "SequenceMissing",
    `the sequence is gone, and nothing tells how far it went: set spec.tokens.floor above every token that was ever handed out (the last ceiling seen was ${least})`,
  );
};

const planOpen = (input: SequenceInput, ceiling: Token): SequencePlan => {
  const { floor, lease, mirrored, mark, restored } = input;
  const credit = lease === undefined ? undefined : validCredit(lease);
  if (restored !== undefined) return { kind: "mend", seen: everything(input, ceiling), why: wentBack };
  if (credit !== undefined && credit.ceiling > ceiling)
    return { kind: "mend", seen: everything(input, ceiling), why: "the Lease stands above the sequence" };
  if (highest(mirrored.granted, mirrored.ceiling) > ceiling)
    return {
      kind: "mend",
      seen: everything(input, ceiling),
      why: "the sequence stands below what it was seen at",
    };
  if (mark !== undefined && mark > ceiling) {
    if (mark > ceiling + believable)
      return stuck(
        "ImplausibleMark",
        `the boundary shows mark ${mark}, far above every token granted: mend the mark, or raise spec.tokens.floor to it, which takes the verb force`,
      );
    return { kind: "raise", from: ceiling, to: mark, why: "the boundary knows a higher token" };
  }
  if (floor > ceiling) return { kind: "raise", from: ceiling, to: floor, why: "spec.tokens.floor" };
  const spent = credit === undefined || credit.token >= credit.ceiling;
  if (ceiling === lastToken && spent)
    return stuck(
      "TokensExhausted",
      "the last token was granted, and there is none above it: make a FencedResource with another name",
    );
  return { kind: "level", ceiling };
};
