import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { timingProblem } from "../core/timing.ts";
import { generate, generated, outdated } from "./generate.ts";
import { parseFencedResource } from "./fencedresource.ts";
import { parseFencedSequence } from "./fencedsequence.ts";
import { policies } from "./policies.ts";

interface Schema {
  description?: string;
  type?: string;
  format?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  minimum?: number;
  maximum?: number;
  maxItems?: number;
  default?: unknown;
}

const forbidden = ["oneOf", "anyOf", "allOf", "not", "propertyNames", "$ref", "nullable"];

/** What the API server's structural schemas ask for, and no number without a width. */
const structural = (schema: Schema): boolean =>
  schema.type !== undefined &&
  forbidden.every((key) => !(key in schema)) &&
  (schema.properties === undefined || schema.additionalProperties === undefined) &&
  (schema.type !== "integer" || schema.format === "int32" || schema.format === "int64");

/** Does the description give bounds and default? kubectl explain shows nothing else. */
const toldInWords = ({ description = "", minimum, maximum, maxItems, ...schema }: Schema): boolean =>
  [minimum, maximum, maxItems].every((bound) => bound === undefined || description.includes(String(bound))) &&
  (schema.default === undefined || typeof schema.default === "object" || /default/i.test(description));

const definitions = [...generated()]
  .filter(([path]) => path.startsWith("crds/"))
  .map(([path, text]): [string, Schema] => {
    const crd = parseAllDocuments(text)[0]?.toJS();
    return [path, crd.spec.versions[0].schema.openAPIV3Schema];
  });

/** Every schema below this one, by its path. */
const walk = (schema: Schema, path: string): [string, Schema][] => [
  [path, schema],
  ...Object.entries(schema.properties ?? {}).flatMap(([name, child]) => walk(child, `${path}.${name}`)),
  ...(schema.items === undefined ? [] : walk(schema.items, `${path}[]`)),
  ...(typeof schema.additionalProperties === "object" ? walk(schema.additionalProperties, `${path}.*`) : []),
];

describe("files", () => {
  test("are those of the repository", async () => {
    expect(await outdated(fileURLToPath(new URL("../..", import.meta.url)))).toEqual([]);
  });

  test("that differ or are missing are named", async () => {
    const root = await mkdtemp(join(tmpdir(), "fenceline-generate-"));
    try {
      expect(await outdated(root)).toEqual([...generated().keys()]);
      await generate(root);
      expect(await outdated(root)).toEqual([]);
      await writeFile(join(root, "crds/fenceline.dev_fencedresources.yaml"), "changed");
      expect(await outdated(root)).toEqual(["crds/fenceline.dev_fencedresources.yaml"]);
    } finally {
      await rm(root, { recursive: true });
    }
  });

  test("are the same each time", () => {
    expect(generated()).toEqual(generated());
  });
});

describe.each(definitions)("%s", (_, root) => {
  test("describes every field", () => {
    const silent = walk(root, "")
      .filter(
        ([path, schema]) => !path.startsWith(".metadata") && !path.endsWith("[]") && !schema.description,
      )
      .map(([path]) => path);
    expect(silent).toEqual([]);
  });

  test("is structural", () => {
    expect(walk(root, "").filter(([, schema]) => !structural(schema))).toEqual([]);
  });

  test("says in its words what it says in its bounds", () => {
    const silent = walk(root, "")
      .filter(([path]) => path.startsWith(".spec") && !path.endsWith("[]"))
      .filter(([, schema]) => !toldInWords(schema));
    expect(silent).toEqual([]);
  });
});

const metadata = { name: "orders", namespace: "shop", uid: "u", resourceVersion: "1" };

describe("what the server sends", () => {
  test("is read with defaults, and without what is not known", () => {
    const object = parseFencedResource({ metadata, spec: { more: 1 }, status: { more: 1 } });
    expect(object.spec).toEqual({
      suspend: false,
      lease: { durationSeconds: 15, lockDelaySeconds: 0 },
      tokens: { store: "Status", reserve: 64, floor: "0" },
      boundary: { type: "None", advance: "OnGrant" },
    });
    expect(object.status).toEqual({});
  });

  test("a default that is not told still fits", () => {
    const { lease } = parseFencedResource({ metadata, spec: {} }).spec;
    expect(timingProblem({ ...lease, renewIntervalSeconds: 5 })).toBeUndefined();
  });

  test("a status of another time is left out, a spec is not", () => {
    expect(
      parseFencedResource({ metadata, spec: {}, status: { guarantee: "Absolute" } }).status,
    ).toBeUndefined();
    expect(() => parseFencedResource({ metadata, spec: { boundary: { type: "Other" } } })).toThrow(
      "boundary",
    );
  });

  test.each([{ ceiling: 64 }, { ceiling: "064" }, { ceiling: undefined }, { uid: "" }])(
    "a sequence with %j is not believed",
    (change) => {
      const status = { base: "0", ceiling: "64", uid: "u", issuer: "a", ...change };
      expect(() => parseFencedSequence({ metadata, spec: { resource: "shop/orders" }, status })).toThrow(
        "status",
      );
    },
  );
});

test("policies follow the installation's namespace and accounts", () => {
  const text = JSON.stringify(
    policies({ systemNamespace: "elsewhere", accounts: ["one", "two"], agentRepository: "mirror/fenceline" }),
  );
  expect(text).toContain("['system:serviceaccount:elsewhere:one', 'system:serviceaccount:elsewhere:two']");
  expect(text).not.toContain("fenceline-system");
});
