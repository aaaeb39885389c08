/**
 * Is there an order of moments, one within each answered call, that a single owner's register would have allowed?
 *
 * Tokens are the witness: ownership under token *t* comes before ownership under every higher one. So it is enough to
 * give each ownership the earliest beginning that its calls allow, and to see whether any call is over before that, or
 * begins after the next one must have begun.
 */
import { endOf, type HistoryEvent, ofKind, type Violation } from "./history.ts";

interface Tenure {
  attempt: string;
  token: bigint;
  /** No earlier than the first question that may have led to it. */
  earliest: number;
  /** Successful calls that prove that it was this attempt's. */
  proofs: { start: number; end: number; what: string; last: boolean }[];
}

/** Calls of one stretch between restores of the API server: a restore gives back what was taken. */
const stretches = (history: readonly HistoryEvent[]): [number, number][] => {
  const cuts = ofKind(history, "disruption")
    .filter(({ what }) => what !== "delete")
    .map(({ at }) => at)
    .toSorted((a, b) => a - b);
  return [...cuts, Number.POSITIVE_INFINITY].map((end, index) => [
    cuts[index - 1] ?? Number.NEGATIVE_INFINITY,
    end,
  ]);
};

const tenuresIn = (history: readonly HistoryEvent[], [from, to]: [number, number]): Tenure[] => {
  const tenures = new Map<string, Tenure>();
  const firstAsked = new Map<string, number>();
  const within = ({ start, end }: { start: number; end: number | undefined }) =>
    start > from && end !== undefined && end < to;
  for (const { attempt, start } of ofKind(history, "acquire"))
    firstAsked.set(attempt, Math.min(start, firstAsked.get(attempt) ?? start));
  const prove = (attempt: string, token: bigint, start: number, end: number, what: string, last = false) => {
    const key = `${attempt} ${token}`;
    const tenure = tenures.get(key) ?? {
      attempt,
      token,
      earliest: firstAsked.get(attempt) ?? start,
      proofs: [],
    };
    tenure.proofs.push({ start, end, what, last });
    tenures.set(key, tenure);
  };
  for (const event of history) {
    if (event.kind === "acquire" && event.outcome === "granted" && event.token !== undefined && within(event))
      prove(event.attempt, event.token, event.start, endOf(event), "grant");
    if ((event.kind === "renew" || event.kind === "release") && event.outcome === "done" && within(event))
      prove(event.attempt, event.token, event.start, endOf(event), event.kind, event.kind === "release");
    if (event.kind === "force" && event.outcome === "done" && within(event))
      if (event.attempt !== undefined && event.token !== undefined)
        prove(event.attempt, event.token, event.start, endOf(event), "force", true);
  }
  return [...tenures.values()].toSorted((a, b) => (a.token < b.token ? -1 : a.token > b.token ? 1 : 0));
};

/** Each resource on its own: pass the history of one. */
export const linearizable = (history: readonly HistoryEvent[], resource: string): Violation[] => {
  const violations: Violation[] = [];
  for (const stretch of stretches(history)) {
    let floor = Number.NEGATIVE_INFINITY;
    for (const { attempt, token, earliest, proofs } of tenuresIn(history, stretch)) {
      const begins = Math.max(floor, earliest);
      const over = proofs.find(({ end }) => end < begins);
      if (over !== undefined)
        violations.push({
          invariant: "order",
          resource,
          message: `the ${over.what} of ${attempt} under ${token} was answered before anything allowed it`,
          at: over.end,
        });
      // Every proof has a moment in it, and the next ownership begins after the last of them.
      floor = Math.max(begins, ...proofs.map(({ start }) => start));
      const given = Math.min(...proofs.map(({ last, end }) => (last ? end : Number.POSITIVE_INFINITY)));
      const revived = proofs.find(({ start, last }) => !last && start > given);
      if (revived !== undefined)
        violations.push({
          invariant: "order",
          resource,
          message: `the ${revived.what} of ${attempt} under ${token} began after its release was answered`,
          at: revived.end,
        });
    }
  }
  return violations;
};
