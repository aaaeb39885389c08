/** I1, I2, I3, I8: what may be said of tokens. */
import { type Grant, grantsOf, type HistoryEvent, ofKind, type Violation } from "./history.ts";

/** I1: no token is granted to two attempts. */
export const uniqueTokens = (history: readonly HistoryEvent[]): Violation[] => {
  const owners = new Map<bigint, Grant>();
  return grantsOf(history).flatMap((grant): Violation[] => {
    const first = owners.get(grant.token);
    if (first === undefined) owners.set(grant.token, grant);
    if (first === undefined || first.attempt === grant.attempt) return [];
    const message = `token ${grant.token} was granted to ${first.attempt} and to ${grant.attempt}`;
    return [{ invariant: "I1", resource: grant.resource, message, at: grant.end }];
  });
};

/**
 * I2: a grant that was answered before another one was asked for has the lower token (the same attempt asked again may
 * get its token again). I8: nor does it go back over a deletion or a restore between the two.
 */
export const orderedTokens = (history: readonly HistoryEvent[]): Violation[] => {
  const grants = grantsOf(history);
  const disruptions = ofKind(history, "disruption");
  const byEnd = grants.toSorted((a, b) => a.end - b.end);
  const violations: Violation[] = [];
  let highest: Grant | undefined;
  let next = 0;
  for (const grant of grants.toSorted((a, b) => a.start - b.start)) {
    for (let past = byEnd[next]; past !== undefined && past.end < grant.start; past = byEnd[++next])
      if (highest === undefined || past.token > highest.token) highest = past;
    if (highest === undefined || grant.token > highest.token) continue;
    if (grant.token === highest.token && grant.attempt === highest.attempt) continue;
    const { attempt, token, end } = highest;
    const disrupted = disruptions.some(({ at }) => at >= end && at <= grant.end);
    violations.push({
      invariant: disrupted ? "I8" : "I2",
      resource: grant.resource,
      message: `${grant.attempt} was granted ${grant.token} after ${attempt} had been granted ${token}`,
      at: grant.end,
    });
  }
  return violations;
};

/**
 * I3: a token is answered, and carries an effect, only for the attempt that a committed Lease named with it. Says
 * nothing where no Lease was watched.
 */
export const ownedTokens = (history: readonly HistoryEvent[]): Violation[] => {
  const commits = ofKind(history, "commit");
  if (commits.length === 0) return [];
  const since = new Map<string, number>();
  for (const { lease, at } of commits) {
    const key = `${lease?.holder} ${lease?.token}`;
    if (lease?.holder !== undefined && !since.has(key)) since.set(key, at);
  }
  const check = (attempt: string, token: bigint, by: number, what: string, resource: string): Violation[] => {
    const at = since.get(`${attempt} ${token}`);
    if (at !== undefined && at <= by) return [];
    const message = `${what} under token ${token} by ${attempt}, which no Lease named with it`;
    return [{ invariant: "I3", resource, message, at: by }];
  };
  return [
    ...grantsOf(history).flatMap(({ attempt, token, end, resource }) =>
      check(attempt, token, end, "a grant", resource),
    ),
    ...ofKind(history, "effect").flatMap(({ attempt, token, outcome, at, end, resource }) =>
      outcome === "accepted" ? check(attempt, token, at ?? end ?? 0, "an effect", resource) : [],
    ),
  ];
};
