import { higher, lastToken, type Token } from "../core/token.ts";
import type { ResourceKey, SequenceStore } from "./port.ts";

interface Row {
  base: Token;
  ceiling: Token;
  issuer: string;
  sealed: boolean;
}

/** Sequences in this process's memory: for simulation and tests, where losing them is the point. */
export const makeMemoryStore = (issuer: string, rows = new Map<ResourceKey, Row>()): SequenceStore => ({
  async reserve(resource, count, atLeast) {
    const row = rows.get(resource);
    if (row === undefined) return { outcome: "not_ready", reason: "missing" };
    if (row.issuer !== issuer) return { outcome: "issuer_mismatch", issuer: row.issuer };
    if (row.sealed) return { outcome: "sealed" };
    const base = higher(row.ceiling, atLeast);
    if (count > 0n && base === lastToken) return { outcome: "exhausted" };
    const ceiling = base + count <= lastToken ? ((base + count) as Token) : lastToken;
    rows.set(resource, { ...row, ceiling });
    return { outcome: "reserved", base, ceiling };
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
