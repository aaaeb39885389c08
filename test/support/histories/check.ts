/** All checks on one history, each resource on its own. */
import { deadFromTheGrantOn, pastRefused } from "./effects.ts";
import type { HistoryEvent, Violation } from "./history.ts";
import { linearizable } from "./order.ts";
import { lossesAskedFor, pastNotRevived, progress, takenInTime } from "./ownership.ts";
import { orderedTokens, ownedTokens, uniqueTokens } from "./tokens.ts";

export interface CheckOptions {
  /** How many times as fast as the history's clock the clock of a coordinator may run. */
  fastest?: number;
}

/** What was broken, earliest first. An empty list is all that a correct system ever leads to. */
export const checkHistory = (
  history: readonly HistoryEvent[],
  { fastest = 1 }: CheckOptions = {},
): Violation[] => {
  const resources = new Set(history.flatMap(({ resource }) => (resource === undefined ? [] : [resource])));
  return [...resources]
    .flatMap((resource) => {
      const own = history.filter((event) => event.resource === undefined || event.resource === resource);
      return [
        ...uniqueTokens(own),
        ...orderedTokens(own),
        ...ownedTokens(own),
        ...pastRefused(own),
        ...pastNotRevived(own),
        ...lossesAskedFor(own),
        ...takenInTime(own, fastest),
        ...progress(own),
        ...deadFromTheGrantOn(own),
        ...linearizable(own, resource),
      ];
    })
    .toSorted((a, b) => a.at - b.at);
};
