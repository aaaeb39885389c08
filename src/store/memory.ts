import type { Token } from "../core/token.ts";
import { nextBlock } from "./block.ts";
import type { ResourceKey, SequenceStore } from "./port.ts";

interface Row {
  base: Token;
  ceiling: Token;
  issuer: string;
  sealed: boolean;
}

export type MemoryRows = Map<ResourceKey, Row>;

/** Sequences in this process's memory: for simulation and tests, where losing them is the point. */
export const makeMemoryStore = (issuer: string, rows: MemoryRows = new Map()): SequenceStore => ({
  async reserve(resource, count, atLeast) {
    const row = rows.get(resource);
    if (row === undefined) return { outcome: "not_ready", reason: "missing" };
    if (row.issuer !== issuer) return { outcome: "issuer_mismatch", issuer: row.issuer };
    if (row.sealed) return { outcome: "sealed" };
    const block = nextBlock(row.ceiling, count, atLeast);
    if (block === undefined) return { outcome: "exhausted" };
    rows.set(resource, { ...row, ceiling: block.ceiling });
    return { outcome: "reserved", ...block };
  },

  async read(resource) {
    const row = rows.get(resource);
    return row === undefined ? { state: "missing" } : { state: "open", ...row };
  },

  async open(resource, at) {
    const row = rows.get(resource) ?? { base: at, ceiling: at, issuer, sealed: false };
    rows.set(resource, row);
    return { state: "open", ...row };
  },
});
