import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { leaderLease, leaseName, resourceLabelValue, sequenceName } from "./names.ts";
import { nameText } from "./text.ts";

const part = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?$/);
const name = fc
  .array(part, { minLength: 1, maxLength: 8 })
  .map((parts) => parts.join("."))
  .filter((text) => text.length <= 253);
const label = /^[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$/;

describe("FM-39 names of what belongs to a resource", () => {
  test("are the resource's own where there is room", () => {
    expect(leaseName("orders")).toBe("fenceline-orders");
    expect(resourceLabelValue("orders")).toBe("orders");
  });

  test("are valid, and differ where the resources do", () => {
    fc.assert(
      fc.property(name, name, (a, b) => {
        expect(nameText.safeParse(leaseName(a)).success).toBe(true);
        expect(resourceLabelValue(a)).toMatch(label);
        if (a === b) return;
        expect(leaseName(a)).not.toBe(leaseName(b));
        expect(resourceLabelValue(a)).not.toBe(resourceLabelValue(b));
      }),
    );
  });

  test("differ for two of 253 characters with a common start", () => {
    const [a, b] = ["a", "b"].map((end) => "n".repeat(252) + end) as [string, string];
    expect(leaseName(a)).not.toBe(leaseName(b));
    expect(leaseName(a)).toHaveLength(253);
    expect(resourceLabelValue(a)).not.toBe(resourceLabelValue(b));
  });

  test("cannot be met by naming a resource like a hashed one", () => {
    const long = "n".repeat(253);
    const forged = leaseName(long).slice("fenceline-".length);
    expect(leaseName(forged)).not.toBe(leaseName(long));
    expect(resourceLabelValue(resourceLabelValue(long))).not.toBe(resourceLabelValue(long));
  });

  test("stay valid where a long name is cut at a dot", () => {
    for (const at of [190, 201, 202, 203, 204]) {
      const cut = `${"n".repeat(at)}.${"n".repeat(252 - at)}`;
      expect(nameText.safeParse(leaseName(cut)).success).toBe(true);
      expect(resourceLabelValue(`${"n".repeat(21)}..${"n".repeat(60)}`)).toMatch(label);
    }
  });

  test("one name in two namespaces has two sequences", () => {
    expect(sequenceName("shop/orders")).not.toBe(sequenceName("shop2/orders"));
    expect(sequenceName("shop/orders")).toMatch(/^[0-9a-f]{64}$/);
  });

  test("never meet the leader's Lease", () => {
    fc.assert(
      fc.property(name, (each) => {
        expect(leaseName(each)).not.toBe(leaderLease);
      }),
    );
  });
});
