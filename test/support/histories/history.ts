/**
 * What happened, as outside observers saw it: calls with their beginning and end, and what became durable. The
 * simulation writes such histories, and so can anyone who watches real processes; {@link checkHistory} judges both.
 *
 * All times are milliseconds of one clock that never goes back. A call without an end was never answered. Where two
 * things are recorded at the same moment, neither is taken to come first.
 */
import type { HolderId } from "../../../src/core/lease.ts";

interface Call {
  /** `namespace/name`. */
  resource: string;
  start: number;
  /** Undefined: no answer ever came. */
  end: number | undefined;
}

export type AcquireEvent = Call & {
  kind: "acquire";
  attempt: HolderId;
  /** `unknown`: no answer, or one that promises nothing. It may have been granted all the same. */
  outcome: "granted" | "refused" | "unknown";
  /** With `granted`. */
  token?: bigint;
  /** With `granted`: the coordinator said that the boundary refuses every lower token from now on. */
  advanced?: boolean;
};

type Held<K> = Call & {
  kind: K;
  attempt: HolderId;
  token: bigint;
  /** `done`: renewed, or released; `refused`: nothing was changed. */
  outcome: "done" | "refused" | "unknown";
};
export type HeldEvent = Held<"renew"> | Held<"release">;

export type ForceEvent = Call & {
  kind: "force";
  outcome: "done" | "refused" | "unknown";
  /** With `done`: from whom it was taken. */
  attempt?: HolderId;
  token?: bigint;
};

/** Something done under a token at the place that is protected. `accepted` means durable. */
export type EffectEvent = Call & {
  kind: "effect";
  boundary: string;
  attempt: HolderId;
  token: bigint;
  outcome: "accepted" | "refused" | "unknown";
  /** With `accepted`: when it became durable, where that is known. */
  at?: number;
};

/** A boundary's mark moved: told of a token, opened again at one, closed. */
export interface MarkEvent {
  kind: "mark";
  resource: string;
  boundary: string;
  at: number;
  token: bigint;
  attempt: HolderId | undefined;
  /** Why: `advance` and `reopen` never lower; `restore` puts an old one back and leaves the boundary closed. */
  by: "advance" | "reopen" | "restore";
}

/** A version of the Lease that the API server committed. */
export interface CommitEvent {
  kind: "commit";
  resource: string;
  at: number;
  /** Undefined: the Lease is gone. */
  lease:
    | {
        uid: string;
        holder: HolderId | undefined;
        /** What it grants; 0 where its credit is void. */
        token: bigint;
        durationSeconds: number | undefined;
        /** Changes with every renewal. */
        renewTime: string | undefined;
        /** Name of the boundary that it is bound to. */
        boundary: string | undefined;
      }
    | undefined;
}

/** Somebody else's hand: after it the Lease may say what no call of ours made it say. */
export interface DisruptionEvent {
  kind: "disruption";
  /** Undefined: all of them. */
  resource: string | undefined;
  at: number;
  /** `restore`: the API server went back in time. */
  what: "restore" | "delete" | "edit";
}

/** An attempt waited for its grant, over all the calls that it took. */
export interface WaitEvent {
  kind: "wait";
  resource: string;
  attempt: HolderId;
  start: number;
  end: number | undefined;
}

/** Nothing hindered anybody from `start` to `end`: then, and only then, progress is owed. */
export interface CalmEvent {
  kind: "calm";
  resource: string | undefined;
  start: number;
  end: number;
  /** The longest time in which somebody who waits sees no renewal and no grant. */
  boundMs: number;
}

export type HistoryEvent =
  | AcquireEvent
  | HeldEvent
  | ForceEvent
  | EffectEvent
  | MarkEvent
  | CommitEvent
  | DisruptionEvent
  | WaitEvent
  | CalmEvent;

export type Invariant = "I1" | "I2" | "I3" | "I4" | "I5" | "I6" | "I7" | "I8" | "I9" | "expiry" | "order";

export interface Violation {
  invariant: Invariant;
  resource: string;
  /** One line for people. */
  message: string;
  at: number;
}

/** The events of one kind. */
export const ofKind = <K extends HistoryEvent["kind"]>(
  history: readonly HistoryEvent[],
  kind: K,
): Extract<HistoryEvent, { kind: K }>[] =>
  history.filter((event): event is Extract<HistoryEvent, { kind: K }> => event.kind === kind);

/** A grant that was answered. */
export type Grant = AcquireEvent & { token: bigint; end: number };

const isGrant = (event: AcquireEvent): event is Grant =>
  event.outcome === "granted" && event.token !== undefined && event.end !== undefined;

export const grantsOf = (history: readonly HistoryEvent[]): Grant[] =>
  ofKind(history, "acquire").filter(isGrant);

/** Never answered ends after everything. */
export const endOf = ({ end }: { end: number | undefined }): number => end ?? Number.POSITIVE_INFINITY;
