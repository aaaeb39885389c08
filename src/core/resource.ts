import type { Token } from "./token.ts";

/** What the protocol needs of a FencedResource. Its status decides nothing but how long an unclean loss is waited out. */
export interface ResourceSpec {
  namespace: string;
  name: string;
  uid: string;
  deleted: boolean;
  suspended: boolean;
  durationSeconds: number;
  renewIntervalSeconds: number;
  lockDelaySeconds: number;
  /** No token at or below it is granted. */
  floor: Token;
  /** Tokens reserved by one write to the sequence. */
  reserve: bigint;
  store: "Status" | "PostgreSQL";
  guarantee: "Fenced" | "Idempotent" | "Advisory";
  boundary: {
    type: "None" | "PostgreSQL" | "Gateway" | "Kubernetes";
    advance: "OnGrant" | "OnFirstWrite";
    /** Canonical text of the whole section: what a hash of the boundary is made of. */
    text: string;
  };
}
