import type { BoundaryDriver } from "../../src/boundary/registry.ts";
import type { Advance, Boundary } from "../../src/boundary/port.ts";
import type { HolderId } from "../../src/core/lease.ts";
import { noToken, type Token } from "../../src/core/token.ts";

/** `request-lost`: the mark did not move. `answer-lost`: it did. */
export type BoundaryFault = "request-lost" | "answer-lost";

/** A boundary that keeps its mark in memory, strict as a real one, and fails when a test says so. */
export interface FakeBoundary {
  boundary: Boundary;
  driver: BoundaryDriver;
  /** Every `advance` so far, in order, as `token holder`. */
  calls: string[];
  mark(): Token;
  /** As if somebody had announced this elsewhere. */
  raise(token: Token, holder: HolderId): void;
  /** It forgot: what a restored database does to a mark. */
  rewind(token: Token): void;
  close(closing: string): void;
  /** The next `times` advances fail like this. */
  fail(fault: BoundaryFault, times?: number): void;
  /** Which way leads there (a Secret's version): another one is another boundary. */
  through(way: string): void;
  /** It cannot be reached from here. */
  unready(reason: string | undefined): void;
  /** Run before each `advance` is looked at: what else happens at that moment. */
  meanwhile(run: (() => Promise<void>) | undefined): void;
}

export const makeFakeBoundary = (): FakeBoundary => {
  let mark: { token: Token; holder: HolderId | undefined } = { token: noToken, holder: undefined };
  let closing: string | undefined;
  let faults: BoundaryFault[] = [];
  let way = "secret/1";
  let reason: string | undefined;
  let beside: (() => Promise<void>) | undefined;
  const calls: string[] = [];

  const raised = (token: Token, holder: HolderId): Advance => {
    if (closing !== undefined) return { outcome: "closed", closing };
    const same = token === mark.token && holder === mark.holder;
    if (token <= mark.token && !same) return { outcome: "refused", mark: mark.token };
    mark = { token, holder };
    return { outcome: "ok" };
  };

  const boundary: Boundary = {
    async advance(token, holder) {
      calls.push(`${token} ${holder}`);
      const run = beside;
      beside = undefined;
      await run?.();
      const fault = faults.shift();
      if (fault === "request-lost") return { outcome: "unknown", message: "connection reset" };
      const outcome = raised(token, holder);
      return fault === "answer-lost" ? { outcome: "unknown", message: "connection reset" } : outcome;
    },
    async marks() {
      return {
        outcome: "ok",
        granted: mark.token,
        used: noToken,
        refused: { stale: 0n, missing: 0n },
        closing,
      };
    },
    async verify() {
      return { outcome: "proven" };
    },
    async reopen(token, holder, expected) {
      if (closing !== expected) return { outcome: "unknown", message: "closed by another id, or open" };
      closing = undefined;
      if (token > mark.token) mark = { token, holder };
      return { outcome: "ok" };
    },
  };

  return {
    boundary,
    driver: async () =>
      reason === undefined
        ? { kind: "reached", boundary, through: way }
        : { kind: "unready", reason, message: `the boundary is ${reason}` },
    calls,
    mark: () => mark.token,
    raise: (token, holder) => {
      mark = { token, holder };
    },
    rewind: (token) => {
      mark = { token, holder: undefined };
    },
    close: (id) => {
      closing = id;
    },
    fail: (fault, times = 1) => {
      faults = [...faults, ...Array.from({ length: times }, () => fault)];
    },
    through: (next) => {
      way = next;
    },
    unready: (why) => {
      reason = why;
    },
    meanwhile: (run) => {
      beside = run;
    },
  };
};
