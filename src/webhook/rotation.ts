/**
 * When a certificate is made anew, and who signs it.
 *
 * | authority | does | leaves when |
 * | --- | --- | --- |
 * | next | is trusted, signs nothing | it has been trusted everywhere for long enough: then it signs |
 * | signing | signs the serving certificate | at two thirds of its life a next one is made |
 * | retired | is trusted, signs nothing | it has expired |
 *
 * So whoever trusts the whole bundle accepts the serving certificate at every moment, also the one that another replica
 * still shows. The serving certificate is signed anew at two thirds of its own life.
 */
import { type WallTime, wallTime } from "../core/time.ts";
import { type Certificate, type Pair, readCertificate, splitBundle } from "../runtime/x509.ts";

/** Seconds. */
export interface Lives {
  servingSeconds: number;
  authoritySeconds: number;
}

/** What is kept in the Secret. */
export interface Keys {
  serving: Pair | undefined;
  authority: Pair | undefined;
  next: Pair | undefined;
  /** Every authority that is trusted, as one PEM. */
  trusted: string;
}

export type Step =
  | { step: "nothing" }
  /** There is no authority that can sign: everything begins anew. */
  | { step: "found" }
  /** Make the next authority. */
  | { step: "announce" }
  /** The next authority signs from now on. */
  | { step: "promote"; authority: Pair }
  /** Sign a serving certificate. */
  | { step: "sign"; authority: Pair }
  /** Nothing is made; the expired are trusted no longer. */
  | { step: "retire" };

const seconds = (time: WallTime, more: number): WallTime =>
  wallTime(time + BigInt(Math.round(more * 1_000_000)));

/** Clocks of others may be behind by this much. */
export const backdateSeconds = (life: number): number => Math.floor(Math.min(300, life / 20));

/** How long an authority is trusted before it signs: longer than the kubelets take to bring it into every pod. */
const announceSeconds = ({ authoritySeconds }: Lives): number => Math.min(86_400, authoritySeconds / 12);

const twoThirds = ({ from, until }: Certificate): WallTime => wallTime(from + ((until - from) * 2n) / 3n);

/** How often somebody should look, in milliseconds. */
export const checkMs = ({ servingSeconds }: Lives): number => Math.min(60_000, servingSeconds * 50);

/** The bundle without what has expired, and with these authorities. */
export const bundleOf = (trusted: string, more: readonly (Pair | undefined)[], now: WallTime): string => {
  const all = [
    ...splitBundle(trusted),
    ...more.flatMap((pair) => (pair === undefined ? [] : splitBundle(pair.cert))),
  ];
  return [...new Set(all)].filter((pem) => (readCertificate(pem)?.until ?? now) > now).join("");
};

/** From `now` on for `life` seconds. */
export const validity = (now: WallTime, life: number): { from: WallTime; until: WallTime } => {
  const from = seconds(now, -backdateSeconds(life));
  return { from, until: seconds(from, life) };
};

/**
 * What is to be done now. `spread`: the bundle has reached everybody that it was written for. `names`: of the serving
 * certificate.
 */
export const nextStep = (
  keys: Keys,
  now: WallTime,
  { lives, names, spread }: { lives: Lives; names: readonly string[]; spread: boolean },
): Step => {
  const { authority, next, serving } = keys;
  const signing = authority && readCertificate(authority.cert);
  const coming = next && readCertificate(next.cert);
  const expired = signing === undefined || signing.until <= now;
  if (next !== undefined && coming !== undefined && coming.until > now) {
    const trustedSince = seconds(coming.from, backdateSeconds(lives.authoritySeconds));
    const ripe = spread && now >= seconds(trustedSince, announceSeconds(lives));
    if (expired || ripe) return { step: "promote", authority: next };
  }
  if (authority === undefined || expired) return { step: "found" };
  if (coming === undefined && now >= twoThirds(signing)) return { step: "announce" };
  const shown = serving && readCertificate(serving.cert);
  if (
    shown === undefined ||
    now >= twoThirds(shown) ||
    !shown.signedBy(authority.cert) ||
    !names.every((name) => shown.names.includes(name))
  )
    return { step: "sign", authority };
  return bundleOf(keys.trusted, [authority, next], now) === keys.trusted
    ? { step: "nothing" }
    : { step: "retire" };
};
