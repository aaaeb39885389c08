/**
 * A protected place in memory that does what §7 of the protocol asks of one: marks and effects are durable together,
 * compare and effect are one step, a transaction under way is waited for and ended after a while, and whoever lost its
 * past is closed until it is opened again.
 */
import type { Advance, Marks, Verification } from "../../src/boundary/port.ts";
import type { HolderId } from "../../src/core/lease.ts";
import { higher, noToken, type Token } from "../../src/core/token.ts";
import type { Recorder } from "./recorder.ts";
import type { TrueTime } from "./time.ts";

export type Refusal = "stale_fencing_token" | "token_never_issued" | "boundary_closed" | "aborted";

interface State {
  granted: Token;
  holder: HolderId | undefined;
  refused: bigint;
  /** What the protected state is: token and attempt of the last effect. */
  last: { token: Token; attempt: HolderId } | undefined;
}

interface Transaction {
  attempt: HolderId;
  token: Token;
  over: boolean;
}

/** Transactions that block an advance are ended after this time. */
export const evictMs = 2_000;

export interface DurableBoundary {
  readonly name: string;
  onGrant: boolean;
  advance(token: Token, holder: HolderId): Promise<Advance>;
  marks(): Promise<Marks>;
  verify(): Promise<Verification>;
  reopen(token: Token, holder: HolderId | undefined, closing: string): Promise<Advance>;
  /** Compares and holds what it saw until `commit`, which makes the effect durable. */
  enter(token: Token, attempt: HolderId): Promise<Transaction | Refusal>;
  commit(transaction: Transaction): "accepted" | Refusal;
  /** As a restart of the database: what was open is gone, and it is closed until it is opened again. */
  restart(): void;
  snapshot(): State;
  /** As a restore from a backup, or a failover to a copy that is behind. */
  restore(state: State): void;
  mark(): Token;
}

export const makeDurableBoundary = (
  { name, resource, onGrant }: { name: string; resource: string; onGrant: boolean },
  { time, recorder }: { time: TrueTime; recorder: Recorder },
): DurableBoundary => {
  let state: State = { granted: noToken, holder: undefined, refused: 0n, last: undefined };
  let closing: string | undefined;
  let closings = 0;
  let open = new Set<Transaction>();
  let exclusive: Promise<void> | undefined;
  let drained: (() => void) | undefined;

  const noteMark = (by: "advance" | "reopen" | "restore") =>
    recorder.note({
      kind: "mark",
      resource,
      boundary: name,
      at: recorder.stamp(),
      token: state.granted,
      attempt: state.holder,
      by,
    });

  const noteEffect = (outcome: "accepted" | "refused", { token, attempt }: Omit<Transaction, "over">) => {
    const at = recorder.stamp();
    const event = { kind: "effect", resource, boundary: name, attempt, token, start: at, end: at } as const;
    recorder.note({ ...event, outcome, ...(outcome === "accepted" && { at }) });
  };

  const end = (transaction: Transaction) => {
    transaction.over = true;
    open.delete(transaction);
    if (open.size === 0) drained?.();
  };

  const freed = async (): Promise<void> => {
    const other = exclusive;
    if (other === undefined) return;
    await other;
    await freed();
  };

  /** Nobody is within, and nobody enters, until what follows at once is done. */
  const alone = async (): Promise<void> => {
    await freed();
    if (open.size === 0) return;
    const turn = Promise.withResolvers<void>();
    exclusive = turn.promise;
    const empty = Promise.withResolvers<void>();
    drained = empty.resolve;
    const cancel = time.at(time.now() + evictMs, () => {
      for (const transaction of open) end(transaction);
    });
    await empty.promise;
    cancel();
    drained = undefined;
    exclusive = undefined;
    turn.resolve();
  };

  const judge = (token: Token): Refusal | undefined => {
    if (closing !== undefined) return "boundary_closed";
    if (token < state.granted) return "stale_fencing_token";
    return boundary.onGrant && token > state.granted ? "token_never_issued" : undefined;
  };

  const close = () => {
    for (const transaction of open) end(transaction);
    open = new Set();
    closing = `closing-${++closings}`;
  };

  const boundary: DurableBoundary = {
    name,
    onGrant,

    async advance(token, holder) {
      await alone();
      if (closing !== undefined) return { outcome: "closed", closing };
      const same = token === state.granted && holder === state.holder;
      if (token <= state.granted && !same) return { outcome: "refused", mark: state.granted };
      state = { ...state, granted: token, holder };
      noteMark("advance");
      return { outcome: "ok" };
    },

    marks: async () => ({
      outcome: "ok",
      granted: state.granted,
      used: state.last?.token ?? noToken,
      refused: { stale: state.refused, missing: 0n },
      closing,
    }),

    async reopen(token, holder, expected) {
      await alone();
      if (closing === undefined) return { outcome: "ok" };
      if (closing !== expected) return { outcome: "closed", closing };
      closing = undefined;
      if (token > state.granted) state = { ...state, granted: token, holder };
      noteMark("reopen");
      return { outcome: "ok" };
    },

    verify: async () => ({ outcome: "proven" }),

    async enter(token, attempt) {
      await freed();
      const refusal = judge(token);
      if (refusal !== undefined) {
        state = { ...state, refused: state.refused + 1n };
        noteEffect("refused", { token, attempt });
        return refusal;
      }
      if (token > state.granted) {
        state = { ...state, granted: higher(token, state.granted), holder: attempt };
        noteMark("advance");
      }
      const transaction = { attempt, token, over: false };
      open.add(transaction);
      return transaction;
    },

    commit(transaction) {
      if (transaction.over) {
        noteEffect("refused", transaction);
        return "aborted";
      }
      end(transaction);
      state = { ...state, last: { token: transaction.token, attempt: transaction.attempt } };
      noteEffect("accepted", transaction);
      return "accepted";
    },

    restart: close,
    snapshot: () => state,
    restore(past) {
      close();
      state = past;
      noteMark("restore");
    },
    mark: () => state.granted,
  };
  return boundary;
};
