import { describe, expect, test } from "vitest";
import { conditionReasons } from "../api/names.ts";
import { conditionsOf, type Findings } from "./conditions.ts";

const fine: Findings = {
  invalid: undefined,
  suspended: false,
  lease: undefined,
  tokens: undefined,
  boundary: "none",
  open: undefined,
};
const time = "2026-01-01T00:00:00Z";
const judge = (found: Partial<Findings>, before: Parameters<typeof conditionsOf>[0] = [], at = time) =>
  Object.fromEntries(
    conditionsOf(before, { ...fine, ...found }, "Advisory", 3, at).map((condition) => [
      condition.type,
      condition,
    ]),
  );

describe("conditions", () => {
  const rows: [string, Partial<Findings>, string, string, string][] = [
    ["in order", {}, "Ready", "True", "Ready"],
    ["in order", {}, "LeaseBound", "True", "Bound"],
    ["in order", {}, "TokensConsistent", "True", "Consistent"],
    ["without a boundary", {}, "BoundaryGuarded", "True", "NoBoundary"],
    ["guarded", { boundary: "guarded" }, "BoundaryGuarded", "True", "Guarded"],
    ["a way past the guard", { boundary: "guarded", open: "d" }, "BoundaryGuarded", "False", "BoundaryOpen"],
    ["a way past the guard", { boundary: "guarded", open: "d" }, "Ready", "True", "Ready"],
    ["suspended", { suspended: true }, "Ready", "False", "Suspended"],
    ["invalid", { invalid: "no" }, "Ready", "False", "InvalidSpec"],
    [
      "foreign Lease",
      { lease: { reason: "ForeignLease", message: "m" } },
      "LeaseBound",
      "False",
      "ForeignLease",
    ],
    ["foreign Lease", { lease: { reason: "ForeignLease", message: "m" } }, "Ready", "False", "LeaseNotBound"],
    [
      "sequence missing",
      { tokens: { reason: "SequenceMissing", message: "m" } },
      "TokensConsistent",
      "False",
      "SequenceMissing",
    ],
    [
      "sequence missing",
      { tokens: { reason: "SequenceMissing", message: "m" } },
      "Ready",
      "False",
      "TokensNotConsistent",
    ],
    [
      "boundary not there",
      { boundary: { reason: "BoundaryUnreachable", message: "m" } },
      "BoundaryGuarded",
      "False",
      "BoundaryUnreachable",
    ],
    [
      "boundary not there",
      { boundary: { reason: "BoundaryUnreachable", message: "m" } },
      "Ready",
      "False",
      "BoundaryNotGuarded",
    ],
  ];
  test.each(rows)("%s: %j is %s=%s/%s", (_, found, type, status, reason) => {
    expect(judge(found)[type]).toMatchObject({
      status,
      reason,
      observedGeneration: 3,
      lastTransitionTime: time,
    });
    const reasons: readonly string[] =
      Object.entries(conditionReasons).find(([name]) => name === type)?.[1] ?? [];
    expect(reasons).toContain(reason);
  });

  test("Ready repeats the words of what fails", () => {
    expect(judge({ tokens: { reason: "SequenceMissing", message: "set the floor" } })["Ready"]?.message).toBe(
      "set the floor",
    );
  });

  test("S1-36 Advisory is said to reduce overlap, not to exclude it", () => {
    expect(judge({})["Ready"]?.message).toContain("reduces overlap, does not exclude it");
  });

  test("the time stays while the status stays, and moves with it", () => {
    const before = Object.values(judge({}));
    const later = "2026-01-02T00:00:00Z";
    expect(judge({ boundary: "guarded" }, before, later)["BoundaryGuarded"]?.lastTransitionTime).toBe(time);
    expect(judge({ suspended: true }, before, later)["Ready"]?.lastTransitionTime).toBe(later);
  });

  test("conditions of others stay", () => {
    const other = {
      type: "Other",
      status: "True" as const,
      reason: "R",
      message: "m",
      lastTransitionTime: time,
    };
    expect(judge({}, [other])["Other"]).toEqual(other);
  });
});
