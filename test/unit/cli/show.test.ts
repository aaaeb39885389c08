import { describe, expect, it } from "vitest";
import { parseFencedResource } from "../../../src/api/fencedresource.ts";
import { leaseSchema } from "../../../src/api/lease.ts";
import { leaseAnnotations, leaseName, resourceLabel } from "../../../src/api/names.ts";
import { crds } from "../../../src/cli/crds.ts";
import { outputOf, record, resourceNamed } from "../../../src/cli/get.ts";
import { cells, heads, secondsBetween, shown, timeOf } from "../../../src/cli/show.ts";
import { columns, paintFor, printable, span } from "../../../src/cli/text.ts";

const now = timeOf("2026-12-01T00:01:00.000000Z");
if (now === undefined) throw new Error("no time");

const resource = (status: object = {}) =>
  parseFencedResource({
    metadata: {
      name: "orders",
      namespace: "shop",
      uid: "r",
      resourceVersion: "1",
      creationTimestamp: "2026-11-30T22:01:00Z",
    },
    spec: {},
    status,
  });

const lease = (notes: Record<string, string> = {}, renewTime = "2026-12-01T00:00:55.000000Z") =>
  leaseSchema.parse({
    metadata: {
      name: leaseName("orders"),
      namespace: "shop",
      uid: "l",
      resourceVersion: "2",
      labels: { [resourceLabel]: "orders" },
      annotations: {
        [leaseAnnotations.token]: "42",
        [leaseAnnotations.ceiling]: "64",
        [leaseAnnotations.creditUid]: "l",
        ...notes,
      },
    },
    spec: {
      holderIdentity: "user:abc/0f8fad5b-d9cb-469f-a165-70867728950e",
      leaseDurationSeconds: 15,
      renewTime,
      acquireTime: "2026-12-01T00:00:10.000000Z",
    },
  });

const table = { namespaces: false, wide: false, paint: (_: unknown, text: string) => text, now };

describe("one row", () => {
  it("S2-06 has holder and token from the Lease, whatever the status mirrors", () => {
    const one = shown(
      resource({
        tokens: { granted: "41" },
        holder: { identity: "user:old/x", display: "old", token: "41", since: "2026-12-01T00:00:00Z" },
      }),
      lease({ [leaseAnnotations.holderLabel]: "alice" }),
      now,
    );
    expect(cells(one, table)).toEqual(["orders", "alice", "42", "Advisory", "", "120m"]);
    expect(one.state).toMatchObject({ expired: false, leaseExpiry: "2026-12-01T00:01:10.000000Z" });
  });

  it("a free one has no holder", () => {
    expect(cells(shown(resource(), undefined, now), table)).toEqual([
      "orders",
      "",
      "",
      "Advisory",
      "",
      "120m",
    ]);
  });

  it("one whose lease has run out says so", () => {
    const late = shown(resource(), lease({}, "2026-12-01T00:00:44.000000Z"), now);
    expect(cells(late, table)[1]).toBe("user:abc/0f8fad5b-d9cb-469f-a165-70867728950e (expired)");
  });

  it("the controller's word counts where this machine's clock is slow", () => {
    const identity = "user:abc/0f8fad5b-d9cb-469f-a165-70867728950e";
    const holder = (display: string) => ({
      holder: { identity, display, token: "42", since: "2026-12-01T00:00:10.000000Z" },
    });
    expect(shown(resource(holder("alice (expired)")), lease(), now).state.expired).toBe(true);
    expect(shown(resource(holder("alice")), lease(), now).state.expired).toBe(false);
  });

  it("wide, and with namespaces, has what the heads say", () => {
    const wide = { ...table, wide: true, namespaces: true };
    const one = shown(resource({ waiters: 3, boundary: { grantedMark: "40" } }), lease(), now);
    expect(cells(one, wide)).toHaveLength(heads(wide).length);
    expect(cells(one, wide).slice(-4)).toEqual(["40", "3", "Status", "None"]);
    expect(cells(one, wide)[0]).toBe("shop");
  });

  it("texts of others move no cursor, in a table and in records", () => {
    const hostile = "a\u001b[31m\u009b2J\r\nb\u202ec\u2028d";
    const one = shown(resource(), lease({ [leaseAnnotations.holderLabel]: hostile }), now);
    expect(cells(one, table)[1]).toBe("a [31m 2J b c d");
    for (const form of ["json", "yaml"] as const) {
      const text = record(one.state, form);
      expect(text).not.toMatch(/[^\P{C}\n]|\p{Zl}|\\u|\\x/u);
      expect(text).toContain("a [31m 2J b c d");
    }
  });
});

describe("text", () => {
  it.each([
    [0, "0s"],
    [-5, "0s"],
    [119, "119s"],
    [120, "2m"],
    [150, "2m30s"],
    [3600, "60m"],
    [4 * 3600 + 60, "4h1m"],
    [9 * 3600, "9h"],
    [49 * 3600, "2d1h"],
    [400 * 86_400, "400d"],
  ])("%i s is %s", (seconds, text) => expect(span(seconds)).toBe(text));

  it.each([
    ["2026-12-01T00:00:00Z", 60],
    ["2026-12-01T00:00:00.500000Z", 59.5],
    ["2026-12-01T01:00:00+01:00", 60],
    ["yesterday", undefined],
    ["2026-13-01T00:00:00Z", undefined],
    [null, undefined],
  ])("%s is a time, or none", (text, seconds) => {
    const time = timeOf(text);
    expect(time === undefined ? undefined : secondsBetween(time, now)).toBe(seconds);
  });

  it("columns are as wide as they must be, and lines end where the text does", () => {
    expect(
      columns([
        ["NAME", "HOLDER"],
        ["orders", ""],
        ["b", "日本"],
      ]),
    ).toBe("NAME     HOLDER\norders\nb        日本\n");
  });

  it("colours are for people who look on and did not ask for none", () => {
    const out = (isTTY: boolean) => ({ write: () => true, isTTY });
    expect(paintFor(out(true), {})("red", "x")).toBe("\u001b[31mx\u001b[39m");
    expect(paintFor(out(true), { NO_COLOR: "1" })("red", "x")).toBe("x");
    expect(paintFor(out(true), { TERM: "dumb" })("red", "x")).toBe("x");
    expect(paintFor(out(false), {})("red", "x")).toBe("x");
  });

  it("printable keeps what people write in any script", () => {
    expect(printable("  naïve 日本 🙂 ")).toBe("naïve 日本 🙂");
  });
});

describe("what is typed", () => {
  it("a resource with its namespace, or in that of the context", () => {
    expect(resourceNamed("shop/orders", "other")).toEqual({ namespace: "shop", name: "orders" });
    expect(resourceNamed("orders", "other")).toEqual({ namespace: "other", name: "orders" });
  });

  it.each(["", "/", "a/", "/b", "a/b/c", "A/b", "a/b\u001b", `a/${"b".repeat(254)}`])(
    "%j is none",
    (text) => {
      expect(() => resourceNamed(text, "shop")).toThrow("write namespace/name");
    },
  );

  it("an output is one that there is", () => {
    expect(outputOf("json")).toBe("json");
    expect(outputOf(undefined)).toBeUndefined();
    expect(() => outputOf("xml")).toThrow("-o xml: give wide, json, yaml");
  });
});

describe("crds", () => {
  it("prints both definitions, and policies only where asked", () => {
    expect(crds(false)).toMatch(
      /name: fencedresources\.fenceline\.dev[\s\S]*---\n[\s\S]*name: fencedsequences\./,
    );
    expect(crds(false)).not.toContain("kind: ValidatingAdmissionPolicy");
    expect(crds(true)).toContain("kind: ValidatingAdmissionPolicy");
  });
});
