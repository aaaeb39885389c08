/** I5, I6, I7, and when a lease may be taken: what may be said of ownership. */
import { endOf, grantsOf, type HistoryEvent, ofKind, type Violation } from "./history.ts";

/**
 * I5: no renewal that was asked for after another attempt's higher grant had been answered succeeds. I6: nor a release.
 * Not judged over a restore, which gives the Lease back to whoever had it then, and which a boundary survives.
 */
export const pastNotRevived = (history: readonly HistoryEvent[]): Violation[] => {
  const grants = grantsOf(history);
  const restores = ofKind(history, "disruption").filter(({ what }) => what !== "delete");
  return [...ofKind(history, "renew"), ...ofKind(history, "release")].flatMap((event): Violation[] => {
    if (event.outcome !== "done") return [];
    const later = grants.find(
      ({ end, token, attempt }) => end < event.start && token > event.token && attempt !== event.attempt,
    );
    if (later === undefined || restores.some(({ at }) => at >= later.start && at <= endOf(event))) return [];
    const verb = event.kind === "renew" ? "renewed" : "released";
    return [
      {
        invariant: event.kind === "renew" ? "I5" : "I6",
        resource: event.resource,
        message: `${event.attempt} ${verb} ${event.token} after ${later.attempt} had been granted ${later.token}`,
        at: endOf(event),
      },
    ];
  });
};

/** A call of unknown outcome may still do its work at any later time. */
const lasted = ({ outcome, end }: { outcome: string; end: number | undefined }): number =>
  outcome === "unknown" ? Number.POSITIVE_INFINITY : endOf({ end });

/** I6: nobody loses a Lease to nobody, unless its holder asked for that, or an operator, or a foreign hand. */
export const lossesAskedFor = (history: readonly HistoryEvent[]): Violation[] => {
  const commits = ofKind(history, "commit");
  const disruptions = ofKind(history, "disruption");
  const releases = ofKind(history, "release");
  const forces = ofKind(history, "force");
  return commits.flatMap((commit, index): Violation[] => {
    const before = commits[index - 1];
    const { lease, at, resource } = commit;
    const was = before?.lease;
    if (before === undefined || was?.holder === undefined || lease === undefined) return [];
    if (lease.holder !== undefined || lease.uid !== was.uid) return [];
    const asked =
      forces.some((force) => force.start <= at && lasted(force) >= before.at) ||
      releases.some(
        ({ attempt, token, start }) => attempt === was.holder && token === was.token && start <= at,
      ) ||
      disruptions.some((hand) => hand.at >= before.at && hand.at <= at);
    if (asked) return [];
    const message = `${was.holder} lost the Lease under token ${was.token}, and nobody had asked for that`;
    return [{ invariant: "I6", resource, message, at }];
  });
};

/**
 * A living holder's Lease is taken only after its record stood unchanged for its duration, as seen by a clock that runs
 * at most `fastest` times as fast as the history's own.
 */
export const takenInTime = (history: readonly HistoryEvent[], fastest: number): Violation[] => {
  const commits = ofKind(history, "commit");
  const disruptions = ofKind(history, "disruption");
  let since = Number.NEGATIVE_INFINITY;
  return commits.flatMap(({ lease, at, resource }, index): Violation[] => {
    const was = commits[index - 1]?.lease;
    const stood = since;
    const same = (key: "uid" | "holder" | "token" | "renewTime") => was?.[key] === lease?.[key];
    if (!(same("uid") && same("holder") && same("token") && same("renewTime"))) since = at;
    if (was?.holder === undefined || lease?.holder === undefined || same("holder") || !same("uid")) return [];
    if (disruptions.some((hand) => hand.at >= stood && hand.at <= at)) return [];
    const least = ((was.durationSeconds ?? 0) * 1000) / fastest;
    if (at - stood >= least - 1) return [];
    const message = `${lease.holder} took the Lease of ${was.holder} after ${Math.round(at - stood)} ms, not ${least}`;
    return [{ invariant: "expiry", resource, message, at }];
  });
};

/** I7: in a calm, no wait sees more than its bound without a renewal or a grant. */
export const progress = (history: readonly HistoryEvent[]): Violation[] => {
  const commits = ofKind(history, "commit").filter(({ lease }) => lease?.holder !== undefined);
  const waits = ofKind(history, "wait");
  return ofKind(history, "calm").flatMap((calm) =>
    waits.flatMap((wait): Violation[] => {
      const [from, to] = [Math.max(wait.start, calm.start), Math.min(endOf(wait), calm.end)];
      if (calm.resource !== undefined && calm.resource !== wait.resource) return [];
      const moments = [from, ...commits.map(({ at }) => at).filter((at) => at > from && at < to), to];
      const late = moments.find((at, index) => at - (moments[index - 1] ?? at) > calm.boundMs);
      if (late === undefined) return [];
      const message = `${wait.attempt} waited for ${calm.boundMs} ms, and nobody was granted anything`;
      return [{ invariant: "I7", resource: wait.resource, message, at: late }];
    }),
  );
};
