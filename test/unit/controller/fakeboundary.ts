/** Boundaries in memory that keep the rules of the port, and remember in which order they were told what. */
import type { Boundaries } from "../../../src/boundary/guard.ts";
import type { Advance, Boundary } from "../../../src/boundary/port.ts";
import type { HolderId } from "../../../src/core/lease.ts";
import { noToken, type Token } from "../../../src/core/token.ts";

export class FakeBoundary implements Boundary {
  granted: Token = noToken;
  holder: HolderId | undefined;
  closing: string | undefined;
  reachable = true;
  readonly log: string[] = [];
  /** Runs before an advance is judged. */
  onAdvance: (() => Promise<void>) | undefined;

  async advance(token: Token, holder: HolderId): Promise<Advance> {
    await this.onAdvance?.();
    this.log.push(`advance ${token} ${holder}`);
    if (!this.reachable) return { outcome: "unknown", message: "no route" };
    if (this.closing !== undefined) return { outcome: "closed", closing: this.closing };
    if (token < this.granted || (token === this.granted && this.holder !== holder))
      return { outcome: "refused", mark: this.granted };
    this.granted = token;
    this.holder = holder;
    return { outcome: "ok" };
  }

  async marks() {
    if (!this.reachable) return { outcome: "unknown" as const, message: "no route" };
    return {
      outcome: "ok" as const,
      granted: this.granted,
      used: noToken,
      refused: { stale: 0n, missing: 0n },
      closing: this.closing,
    };
  }

  async verify() {
    return { outcome: "proven" as const };
  }

  async reopen(token: Token, holder: HolderId | undefined, closing: string): Promise<Advance> {
    this.log.push(`reopen ${token} ${holder} ${closing}`);
    if (this.closing === undefined) return { outcome: "ok" };
    if (this.closing !== closing) return { outcome: "closed", closing: this.closing };
    this.closing = undefined;
    if (token > this.granted) {
      this.granted = token;
      this.holder = holder;
    }
    return { outcome: "ok" };
  }
}

/** A boundary per name of the first table; `None` has none. */
export const fakeBoundaries = (known: Record<string, FakeBoundary>): Boundaries => ({
  async guard(resource, leaseUid) {
    if (resource.boundary.type === "None") return { kind: "none", hash: undefined };
    const name = /"tables":\[\{"schema":"public","name":"(\w+)"/.exec(resource.boundary.text)?.[1] ?? "";
    const boundary = known[name];
    return boundary === undefined
      ? { kind: "unready", reason: "BoundaryNotInstalled", message: `no boundary ${name}` }
      : { kind: "ready", hash: `${leaseUid}/${name}`, onGrant: true, boundary };
  },
});

/** `spec` of a resource behind the boundary of this name. */
export const behind = (table: string) => ({
  boundary: {
    type: "PostgreSQL",
    advance: "OnGrant",
    postgresql: {
      secretRef: { name: "db", key: "url" },
      manage: false,
      mode: "Hold",
      tables: [{ schema: "public", name: table }],
    },
  },
});
