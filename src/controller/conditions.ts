/** What the status says of a resource, in words that say what to do. Pure: findings in, conditions out. */
import type { Condition } from "../api/fencedresource.ts";
import { type ConditionReason, type ConditionType, conditionTypes, type Guarantee } from "../api/names.ts";

/** Why one condition does not hold, or undefined where it does. */
export interface Trouble<T extends ConditionType = ConditionType> {
  reason: ConditionReason<T>;
  message: string;
}

export interface Findings {
  /** Why the spec cannot work; admission refuses such specs, older objects may have one. */
  invalid: string | undefined;
  suspended: boolean;
  lease: Trouble<"LeaseBound"> | undefined;
  tokens: Trouble<"TokensConsistent"> | undefined;
  /** `none`: the resource has no boundary. The reason is the boundary's own. */
  boundary: "guarded" | "none" | { reason: string; message: string };
  /** Which way around a guard that is in place is open, or why it could not be tried. */
  open: string | undefined;
}

/** What each guarantee means, for people who read no manual. */
export const guaranteeText: Record<Guarantee, string> = {
  Fenced: "stale writes are refused at the boundary",
  Idempotent: "each effect happens once per key",
  Advisory: "reduces overlap, does not exclude it",
};

interface Statement {
  status: Condition["status"];
  reason: string;
  message: string;
}

const holds = (reason: string, message: string): Statement => ({ status: "True", reason, message });
const fails = ({ reason, message }: { reason: string; message: string }): Statement => ({
  status: "False",
  reason,
  message,
});

const statements = (found: Findings, guarantee: Guarantee): Record<ConditionType, Statement> => ({
  Ready: ready(found, guarantee),
  LeaseBound:
    found.lease === undefined
      ? holds("Bound", "the Lease is there, and Fenceline's own")
      : fails(found.lease),
  BoundaryGuarded: boundary(found),
  TokensConsistent:
    found.tokens === undefined
      ? holds("Consistent", "every token granted from now on is higher than all before it")
      : fails(found.tokens),
});

const not = (reason: ConditionReason<"Ready">, message: string): Statement => fails({ reason, message });

const ready = (
  { invalid, suspended, lease, tokens, boundary }: Findings,
  guarantee: Guarantee,
): Statement => {
  if (invalid !== undefined) return not("InvalidSpec", invalid);
  if (lease !== undefined) return not("LeaseNotBound", lease.message);
  if (tokens !== undefined) return not("TokensNotConsistent", tokens.message);
  if (typeof boundary !== "string") return not("BoundaryNotGuarded", boundary.message);
  if (suspended)
    return not("Suspended", "nobody is granted the resource, a holder keeps it: set spec.suspend to false");
  return holds("Ready", `tokens are granted; ${guarantee}: ${guaranteeText[guarantee]}`);
};

const boundary = ({ boundary, open }: Findings): Statement => {
  if (boundary === "guarded" && open !== undefined)
    return fails({ reason: "BoundaryOpen", message: `a stale write may get through: ${open}` });
  if (boundary === "guarded") return holds("Guarded", "the boundary is guarded and was told of the Lease");
  if (boundary === "none")
    return holds(
      "NoBoundary",
      "nothing compares tokens: the lease reduces overlap, does not exclude it; where a stale write would do harm, name its place in spec.boundary",
    );
  return fails(boundary);
};

/** The conditions as of now; a status that stays keeps its time. Conditions of others are left alone. */
export const conditionsOf = (
  before: readonly Condition[],
  found: Findings,
  guarantee: Guarantee,
  observedGeneration: number | undefined,
  time: string,
): Condition[] => {
  const now = statements(found, guarantee);
  const own = conditionTypes.map((type): Condition => {
    const last = before.find((condition) => condition.type === type);
    return {
      type,
      ...now[type],
      ...(observedGeneration === undefined ? {} : { observedGeneration }),
      lastTransitionTime: last?.status === now[type].status ? last.lastTransitionTime : time,
    };
  });
  const others = before.filter(({ type }) => !conditionTypes.some((ours) => ours === type));
  return [...own, ...others];
};
