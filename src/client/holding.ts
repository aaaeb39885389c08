/**
 * Rights for programs in TypeScript: acquired from the coordinator, renewed in the background, given back.
 *
 * A right can end while the work goes on, and this process may be the last to hear of it. Only the boundary decides:
 * send the token with every write.
 */
import type { Guarantee } from "../api/names.ts";
import { makeCoordinatorClient } from "../holder/client.ts";
import { type Holder, type Holding as Hold, makeHolder, type ReleaseEnd } from "../holder/holder.ts";
import { HoldLost } from "../holder/right.ts";
import type { NoGrant } from "../holder/wait.ts";
import { systemClock, systemRandom } from "../runtime/clock.ts";
import { makeHttpClient } from "../runtime/httpclient.ts";
import { silentLogger } from "../runtime/logger.ts";
import { fenceRefusal, StaleToken } from "./refusal.ts";

export { HoldLost };

export interface ConnectOptions {
  /** The coordinator: `https://host:port`. */
  server: string;
  /** Certificates to trust, PEM; read again when it changed. Left out: those of the platform. */
  caFile?: string;
  /** The bearer token, with audience `fenceline`; read again when it changed. */
  tokenFile: string;
}

/** One coordinator, for any number of rights. */
export interface Client extends Holder {
  /** Closes the kept connections. Give back first what is held. */
  close(): void;
}

export interface AcquireOptions {
  /** Milliseconds to wait while another holds it; 0: not at all; left out: for as long as it takes. */
  waitMs?: number;
  /** Milliseconds to wait for the coordinator's first answer. Default 10,000. */
  contactMs?: number;
  /** What people see as the holder's name: 1 to 128 printable characters. */
  label?: string;
  /** Ends the wait. */
  signal?: AbortSignal;
}

/** A right. It fits `withFence` as it is. */
export interface Holding {
  /** `namespace/name`. */
  readonly resource: string;
  readonly token: bigint;
  /** What the boundary made true when the token was granted. */
  readonly guarantee: Guarantee;
  /** Aborted with {@link HoldLost} on loss. Final. */
  readonly lost: AbortSignal;
  /**
   * The state now. A process that was stopped, or whose event loop was blocked, may ask here before its timers had
   * their turn: the deadline is judged first. `uncertain`: start nothing new.
   */
  state(): "held" | "uncertain" | "lost" | "released";
  /** Ends the renewals and gives the right back, within 2 s. Never rejects. Asks again after an end that was `unknown`. */
  release(): Promise<ReleaseEnd>;
}

/** Somebody else holds it, and `waitMs` is over. */
export class HoldBusy extends Error {
  override readonly name = "HoldBusy";
  /** `pod:<uid>/<attempt>` or `user:<hash>/<attempt>`, where it is known. */
  readonly holder: string | undefined;
  constructor(resource: string, detail: string, holder: string | undefined) {
    super(`${resource} is busy: ${detail}`);
    this.holder = holder;
  }
}

/** The coordinator says no, and asking again will not help. */
export class HoldRefused extends Error {
  override readonly name = "HoldRefused";
  /** Of the coordinator's problem, as `forbidden` or `not_found`. */
  readonly code: string;
  constructor(resource: string, code: string, detail: string) {
    super(`${resource} is refused (${code}): ${detail}`);
    this.code = code;
  }
}

/** No answer of the coordinator, or it cannot work. */
export class HoldUnreachable extends Error {
  override readonly name = "HoldUnreachable";
  constructor(resource: string, detail: string) {
    super(`the coordinator cannot be reached for ${resource}: ${detail}`);
  }
}

/** Throws where `server` is no https address. Sends nothing yet. */
export const connect = ({ server, caFile, tokenFile }: ConnectOptions): Client => {
  const http = makeHttpClient({ server, caFile, bearerFile: tokenFile, clock: systemClock });
  const client = makeCoordinatorClient({ http, clock: systemClock });
  const holder = makeHolder({ client, clock: systemClock, random: systemRandom, log: silentLogger });
  return { ...holder, close: () => http.close() };
};

const noGrant = (resource: string, end: NoGrant, signal: AbortSignal | undefined): unknown => {
  switch (end.kind) {
    case "busy":
      return new HoldBusy(resource, end.detail, end.holder);
    case "lost":
      return new HoldLost(resource, end.reason);
    case "refused":
      return new HoldRefused(resource, end.code, end.detail);
    case "unreachable":
      return new HoldUnreachable(resource, end.detail);
    case "given_up":
      return signal?.reason;
    default: {
      const never: never = end;
      return never;
    }
  }
};

const stateOf = (hold: Hold): ReturnType<Holding["state"]> => {
  const { state } = hold.view();
  // The wait is over: what is not held any more was given back.
  return state === "waiting" ? "released" : state;
};

/**
 * Waits for the right to `resource` and renews it until `release` or loss. The renewals keep the process alive.
 *
 * Rejects with {@link HoldBusy}, {@link HoldLost}, {@link HoldRefused}, {@link HoldUnreachable}, the reason of `signal`,
 * or a TypeError for a name without a namespace.
 */
export const acquire = async (
  client: Client,
  resource: string,
  { waitMs, contactMs = 10_000, label, signal }: AcquireOptions = {},
): Promise<Holding> => {
  if (!/^[^/]+\/[^/]+$/.test(resource))
    throw new TypeError(`${JSON.stringify(resource)} is no resource: write namespace/name`);
  signal?.throwIfAborted();
  const hold = client.hold({ resource, waitMs, contactMs, label }, signal);
  const end = await hold.granted;
  if (end.kind !== "granted") {
    // It may have been granted too late to be a right.
    await hold.release();
    throw noGrant(resource, end, signal);
  }
  const { token, guarantee } = end;
  return {
    resource,
    token,
    guarantee,
    lost: hold.lost,
    state: () => stateOf(hold),
    release: () => hold.release(),
  };
};

/**
 * Acquires, runs `work`, waits until it ended, and gives the right back, whatever came of it. The signal that `work` gets
 * is aborted on loss, and with the caller's own.
 *
 * Rejects as {@link acquire} does, with what `work` threw, and with {@link HoldLost} where the right was gone before the
 * work was over, even if the work succeeded; its `cause` is then what `work` threw.
 */
export const withHolding = async <Result>(
  client: Client,
  resource: string,
  work: (holding: Holding, signal: AbortSignal) => Promise<Result>,
  options: AcquireOptions = {},
): Promise<Result> => {
  const holding = await acquire(client, resource, options);
  const { lost } = holding;
  const signal = options.signal === undefined ? lost : AbortSignal.any([lost, options.signal]);
  const [outcome] = await Promise.allSettled([started(holding, signal, work)]);
  // The deadline is judged now: a right that ends while it is given back has lasted for the work.
  holding.state();
  const lostBefore: unknown = lost.reason;
  const end = await holding.release();
  const cause = outcome.status === "rejected" ? { cause: outcome.reason } : undefined;
  if (lostBefore instanceof HoldLost) throw new HoldLost(resource, lostBefore.reason, cause);
  if (end.kind === "gone" && end.reason !== "released") throw new HoldLost(resource, end.reason, cause);
  if (outcome.status === "rejected") throw outcome.reason;
  return outcome.value;
};

const started = async <Result>(
  holding: Holding,
  signal: AbortSignal,
  work: (holding: Holding, signal: AbortSignal) => Promise<Result>,
): Promise<Result> => {
  // Judges the deadline: nothing is begun under a right that is over.
  holding.state();
  signal.throwIfAborted();
  return work(holding, signal);
};

/**
 * The exit code of a program that ends with `error`: never 0, so that a Job whose right was lost is not complete.
 * 3 busy · 4 lost · 5 stale token refused · 6 unreachable · 1 anything else, as `fenceline` itself has them.
 */
export const exitCodeOf = (error: unknown): 1 | 3 | 4 | 5 | 6 => {
  if (error instanceof HoldBusy) return 3;
  if (error instanceof HoldLost) return 4;
  if (fenceRefusal(error) instanceof StaleToken) return 5;
  if (error instanceof HoldUnreachable) return 6;
  return 1;
};
