/** I4, I9: what may become durable at a boundary. */
import {
  type EffectEvent,
  grantsOf,
  type HistoryEvent,
  type MarkEvent,
  ofKind,
  type Violation,
} from "./history.ts";

/** A mark told or an effect accepted, somewhen from `from` to `until`. */
interface Step {
  event: MarkEvent | EffectEvent;
  boundary: string;
  token: bigint;
  from: number;
  until: number;
}

/**
 * I4: once a boundary accepted or was told of a token, no effect with a lower one becomes durable there: whatever was
 * restored meanwhile. Effects of unknown moment count only where their whole call came later.
 */
export const pastRefused = (history: readonly HistoryEvent[]): Violation[] => {
  const steps = history.flatMap((event): Step[] => {
    if (event.kind === "mark" && event.by !== "restore")
      return [{ event, boundary: event.boundary, token: event.token, from: event.at, until: event.at }];
    if (event.kind !== "effect" || event.outcome !== "accepted") return [];
    const { boundary, token, at, start, end = start } = event;
    return [{ event, boundary, token, from: at ?? start, until: at ?? end }];
  });
  const byUntil = steps.toSorted((a, b) => a.until - b.until);
  const highest = new Map<string, bigint>();
  const violations: Violation[] = [];
  let next = 0;
  for (const step of steps.toSorted((a, b) => a.from - b.from)) {
    for (let past = byUntil[next]; past !== undefined && past.until < step.from; past = byUntil[++next]) {
      const known = highest.get(past.boundary);
      if (known === undefined || past.token > known) highest.set(past.boundary, past.token);
    }
    const known = highest.get(step.boundary);
    if (known === undefined || step.token >= known) continue;
    violations.push({
      invariant: "I4",
      resource: step.event.resource,
      message:
        step.event.kind === "effect"
          ? `an effect under token ${step.token} by ${step.event.attempt} became durable at ${step.boundary} after token ${known}`
          : `the mark of ${step.boundary} fell from ${known} to ${step.token}`,
      at: step.until,
    });
  }
  return violations;
};

/**
 * I9: a grant that says that older tokens are dead was told, under this token and for this attempt, to the boundary that
 * its Lease was bound to at some time of the call.
 */
export const deadFromTheGrantOn = (history: readonly HistoryEvent[]): Violation[] => {
  const commits = ofKind(history, "commit");
  const told = new Map<string, { boundary: string; at: number }[]>();
  for (const { token, attempt, boundary, at } of ofKind(history, "mark")) {
    const key = `${attempt} ${token}`;
    told.set(key, [...(told.get(key) ?? []), { boundary, at }]);
  }
  /** Names of the boundaries that the Lease was bound to between these moments; undefined: nobody watched. */
  const bound = (start: number, end: number): Set<string | undefined> | undefined => {
    if (commits.length === 0) return undefined;
    const names = new Set<string | undefined>();
    for (const [index, { at, lease }] of commits.entries())
      if (at <= end && (commits[index + 1]?.at ?? end) >= start) names.add(lease?.boundary);
    return names;
  };
  return grantsOf(history).flatMap((grant): Violation[] => {
    if (grant.advanced !== true) return [];
    const names = bound(grant.start, grant.end);
    const heard = (told.get(`${grant.attempt} ${grant.token}`) ?? []).some(
      ({ boundary, at }) => at <= grant.end && (names === undefined || names.has(boundary)),
    );
    if (heard) return [];
    const message = `${grant.attempt} was granted ${grant.token}, of which its boundary had not been told`;
    return [{ invariant: "I9", resource: grant.resource, message, at: grant.end }];
  });
};
