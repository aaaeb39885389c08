/** Which bounds and faults the model is checked within, and which rules it is checked without. */

/** Counts, and switches of 0 or 1, as the model names them. */
export interface Bounds {
  ATTEMPTS: number;
  REPLICAS: number;
  /** Over all replicas. */
  REQUESTS: number;
  /** Tokens that one write of the sequence reserves. */
  BLOCK: number;
  /** Renewals and releases too. */
  KEEP: number;
  /** Commits whose answer, or request, gets lost. */
  LOSSES: number;
  /** A boundary with `advance: OnGrant`; else none. */
  BOUNDARY: number;
  /** Deletions of the Lease. */
  DELETES: number;
  /** A deleted Lease is put back from a copy. */
  COPY: number;
  /** etcd is restored, and nobody notices. */
  RESTORE: number;
  /** The sequence is deleted. */
  SEQUENCE: number;
  /** Times that the spec names another boundary. */
  SWITCHES: number;
  /** Times that the boundary restarts, or is restored from a copy. */
  CLOSE: number;
}

const bounds = (some: Partial<Bounds>): Bounds => ({
  ATTEMPTS: 2,
  REPLICAS: 2,
  REQUESTS: 3,
  BLOCK: 2,
  KEEP: 0,
  LOSSES: 0,
  BOUNDARY: 0,
  DELETES: 0,
  COPY: 0,
  RESTORE: 0,
  SEQUENCE: 0,
  SWITCHES: 0,
  CLOSE: 0,
  ...some,
});

export interface Scenario {
  name: string;
  /** Within these every state is visited. */
  bounds: Bounds;
  /** The smaller bounds of the ordinary test run. */
  quick: Bounds;
}

const scenario = (name: string, some: Partial<Bounds>, less: Partial<Bounds>): Scenario => ({
  name,
  bounds: bounds(some),
  quick: bounds({ ...some, ...less }),
});

export const scenarios: readonly Scenario[] = [
  scenario("Lease deleted, no boundary", { KEEP: 1, LOSSES: 1, DELETES: 2 }, { DELETES: 1 }),
  scenario("three attempts", { ATTEMPTS: 3, KEEP: 1, LOSSES: 1, DELETES: 1 }, { LOSSES: 0 }),
  scenario("Lease put back from a copy", { KEEP: 1, DELETES: 1, COPY: 1, LOSSES: 1 }, { KEEP: 0, LOSSES: 0 }),
  scenario("boundary", { BOUNDARY: 1, KEEP: 1, DELETES: 1, LOSSES: 1 }, { REQUESTS: 2 }),
  scenario("sequence deleted", { BOUNDARY: 1, DELETES: 1, SEQUENCE: 1 }, { REQUESTS: 2 }),
  scenario("etcd restored, unnoticed", { BOUNDARY: 1, RESTORE: 1 }, { REQUESTS: 2 }),
  scenario("another boundary", { BOUNDARY: 1, SWITCHES: 1, LOSSES: 1 }, { REQUESTS: 2, LOSSES: 0 }),
  scenario("boundary restarted or restored", { BOUNDARY: 1, CLOSE: 1 }, { REQUESTS: 2 }),
  scenario(
    "boundary restarted, etcd restored",
    { BOUNDARY: 1, REQUESTS: 2, CLOSE: 2, RESTORE: 1 },
    { CLOSE: 1 },
  ),
];

export interface Removal {
  rule: string;
  bounds: Bounds;
  /** `first`: a shortest way would take too much memory. */
  search: "shortest" | "first";
}

const without = (rule: string, some: Partial<Bounds>, search: Removal["search"] = "shortest"): Removal => ({
  rule,
  bounds: bounds(some),
  search,
});

const small = { REPLICAS: 1, REQUESTS: 2, BOUNDARY: 1 };

/** Each rule, and the least that it takes to break something without it. */
export const removals: readonly Removal[] = [
  without("credit_uid", { REPLICAS: 1, DELETES: 1, COPY: 1 }),
  without("reserve_cas", { DELETES: 1, BLOCK: 1 }),
  without("reserve_after_read", { DELETES: 1, BLOCK: 1 }),
  without("commit_uid", { REQUESTS: 2, DELETES: 2 }),
  without("commit_version", { REQUESTS: 2, DELETES: 2 }),
  without("reread_fresh", { LOSSES: 1 }),
  without("reread_credit", { REPLICAS: 1, DELETES: 1, COPY: 1, LOSSES: 1 }),
  without("reread_hash", { BOUNDARY: 1, SWITCHES: 1, LOSSES: 1 }, "first"),
  without("reread_token", { REQUESTS: 2, LOSSES: 1 }),
  without("advance_kept", { ...small, SWITCHES: 1 }),
  without("keep_commit", { REQUESTS: 2, BOUNDARY: 1 }),
  without("advance_first", { REPLICAS: 1, BOUNDARY: 1 }),
  without("advance_repeat", { REPLICAS: 1, BOUNDARY: 1 }),
  without("advance_reread", { BOUNDARY: 1, LOSSES: 1 }),
  without("create_empty", { REQUESTS: 2, DELETES: 2 }),
  without("hash_uid", { ...small, SWITCHES: 1, COPY: 1, DELETES: 1 }, "first"),
  without("switch_order", { ...small, SWITCHES: 2 }),
  without("compare_commit", { ...small, SWITCHES: 1 }),
  without("compare_repeat", { BOUNDARY: 1, SWITCHES: 1 }, "first"),
  without("advance_after_commit", { REQUESTS: 2, BOUNDARY: 1 }),
  without("advance_before_answer", { REPLICAS: 1, BOUNDARY: 1 }),
  without("advance_strict", { ...small, RESTORE: 1 }),
  without("never_lower", { REQUESTS: 2, BOUNDARY: 1 }),
  without("renew_token", { REQUESTS: 4, KEEP: 1 }),
  without("renew_credit", { REPLICAS: 1, KEEP: 1, DELETES: 1, COPY: 1 }),
  without("release_match", { KEEP: 1 }),
  without("release_version", { KEEP: 1 }),
  without("closed_refuses", { REQUESTS: 2, BOUNDARY: 1, CLOSE: 1 }, "first"),
  without("reopen_read", { ...small, CLOSE: 1 }),
  without("reopen_max", { ...small, CLOSE: 1, RESTORE: 1 }, "first"),
  without("effect_atomic", { REPLICAS: 1, BOUNDARY: 1 }),
  without("effect_token", { REPLICAS: 1, BOUNDARY: 1 }),
];
