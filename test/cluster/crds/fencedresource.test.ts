import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { fencedResourceDefinition, parseFencedResource } from "../../../src/api/fencedresource.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { crds, install, kubectlWith, patchStatus, policies, rbac, refusal, resource } from "./support.ts";

const cluster = sharedCluster();
let ns: string;
let name: string;
let made = 0;

beforeAll(async () => {
  await install(cluster, crds, rbac, policies);
  ns = await cluster.namespace("shop");
});
beforeEach(() => {
  made += 1;
  name = `orders-${made}`;
});

const create = (spec: object, called = name) =>
  kubectlWith(cluster, ["create", "-f", "-"], resource(ns, called, spec));
const patch = (spec: object) =>
  cluster.kubectl(["patch", "fr", name, "-n", ns, "--type=merge", "-p", JSON.stringify({ spec })]);
const setStatus = (status: object) => patchStatus(cluster, ["fr", name, "-n", ns], status);
const read = async (called = name) =>
  parseFencedResource(JSON.parse(await cluster.kubectl(["get", "fr", called, "-n", ns, "-o", "json"])));
/** The table of `kubectl get`, as cells. */
const columns = async (...args: string[]) =>
  (await cluster.kubectl(["get", "fr", name, "-n", ns, ...args]))
    .trimEnd()
    .split("\n")
    .map((line) => line.trim().split(/ {2,}/));

describe("defaults", () => {
  test("an empty spec is a whole one", async () => {
    await create({});
    expect((await read()).spec).toEqual({
      suspend: false,
      lease: { durationSeconds: 15, lockDelaySeconds: 0 },
      tokens: { store: "Status", reserve: 64, floor: "0" },
      boundary: { type: "None", advance: "OnGrant" },
    });
  });

  test("each part may be left half empty", async () => {
    await create({ lease: {}, tokens: {}, boundary: {} });
    expect((await read()).spec.boundary).toEqual({ type: "None", advance: "OnGrant" });
  });

  test("PostgreSQL needs a login and a table", async () => {
    const postgresql = { secretRef: { name: "orders-db" }, tables: [{ name: "orders" }] };
    await create({ boundary: { type: "PostgreSQL", postgresql } });
    expect((await read()).spec.boundary.postgresql).toEqual({
      secretRef: { name: "orders-db", key: "url" },
      manage: false,
      mode: "Hold",
      tables: [{ schema: "public", name: "orders" }],
    });
  });

  test("a Gateway needs an upstream", async () => {
    await create({
      boundary: { type: "Gateway", gateway: { upstream: "https://payments.internal.example" } },
    });
    expect((await read()).spec.boundary.gateway).toMatchObject({
      idempotency: "Required",
      retentionHours: 168,
    });
  });
});

const table = { name: "orders" };
const login = { name: "orders-db" };
const postgresql = { secretRef: login, tables: [table] };

describe("refused when it is made", () => {
  test.each<[string, object, string]>([
    [
      "timings without room for two lost renewals",
      { lease: { durationSeconds: 15, renewIntervalSeconds: 6 } },
      "spec.lease.renewIntervalSeconds: Invalid value: leaves no room for two lost renewals: give at most a third of durationSeconds, or leave it out",
    ],
    [
      "a duration too short to renew within",
      { lease: { durationSeconds: 2 } },
      "spec.lease.durationSeconds: Invalid value: 2: spec.lease.durationSeconds in body should be greater than or equal to 3",
    ],
    [
      "an absurd duration",
      { lease: { durationSeconds: 99_999_999_999 } },
      "spec.lease.durationSeconds: Invalid value: 99999999999: spec.lease.durationSeconds in body should be less than or equal to 3600",
    ],
    [
      "a fraction",
      { lease: { durationSeconds: 3.5 } },
      'spec.lease.durationSeconds: Invalid value: "number": spec.lease.durationSeconds in body must be of type integer: "number"',
    ],
    [
      "PostgreSQL without its section",
      { boundary: { type: "PostgreSQL" } },
      "spec.boundary.postgresql: Invalid value: goes with type: PostgreSQL, which needs it: set both or neither",
    ],
    [
      "a section that does not match the type",
      { boundary: { postgresql } },
      "goes with type: PostgreSQL, which needs it: set both or neither",
    ],
    [
      "a Gateway section with another type",
      { boundary: { gateway: { upstream: "https://example.com" } } },
      "goes with type: Gateway, which needs it: set both or neither",
    ],
    [
      "a boundary that is not built",
      { boundary: { type: "Kubernetes" } },
      'spec.boundary.type: Unsupported value: "Kubernetes": supported values: "None", "PostgreSQL", "Gateway"',
    ],
    [
      "managing without the owner's login",
      { boundary: { type: "PostgreSQL", postgresql: { ...postgresql, manage: true } } },
      "goes with manage: true, and manage: true needs it: set both or neither",
    ],
    [
      "the owner's login without managing",
      { boundary: { type: "PostgreSQL", postgresql: { ...postgresql, adminSecretRef: login } } },
      "goes with manage: true, and manage: true needs it: set both or neither",
    ],
    [
      "no table",
      { boundary: { type: "PostgreSQL", postgresql: { ...postgresql, tables: [] } } },
      "spec.boundary.postgresql.tables in body should have at least 1 items",
    ],
    [
      "a table twice",
      { boundary: { type: "PostgreSQL", postgresql: { ...postgresql, tables: [table, table] } } },
      'spec.boundary.postgresql.tables[1]: Duplicate value: {"name":"orders","schema":"public"}',
    ],
    [
      "an upstream that is no address",
      { boundary: { type: "Gateway", gateway: { upstream: "file:///etc/passwd" } } },
      'spec.boundary.gateway.upstream: Invalid value: "file:///etc/passwd": spec.boundary.gateway.upstream in body should match',
    ],
    [
      "an unknown field",
      { lease: { durationSecond: 5 } },
      'strict decoding error: unknown field "spec.lease.durationSecond"',
    ],
    [
      "a floor as a number",
      { tokens: { floor: 5 } },
      'spec.tokens.floor in body must be of type string: "integer"',
    ],
    [
      "more tokens than one write may reserve",
      { tokens: { reserve: 1001 } },
      "should be less than or equal to 1000",
    ],
  ])("%s", async (_, spec, message) => {
    expect(await refusal(create(spec))).toContain(message);
  });

  test.each(["-1", "042", "1e3", "+7", " 7", "", "0x10", "seven"])("FM-38 a floor of %j", async (floor) => {
    expect(await refusal(create({ tokens: { floor } }))).toContain(
      "spec.tokens.floor in body should match '^(0|[1-9][0-9]{0,18})$'",
    );
  });

  test.each(["9223372036854775808", "9999999999999999999"])("FM-38 a floor of %s", async (floor) => {
    expect(await refusal(create({ tokens: { floor } }))).toContain(
      "tokens end at 9223372036854775807: give a smaller one",
    );
  });
});

describe("refused when it is changed", () => {
  test("a floor that shrinks", async () => {
    await create({ tokens: { floor: "100" } });
    for (const floor of ["99", "9", "0"])
      expect(await refusal(patch({ tokens: { floor } }))).toContain(
        `spec.tokens.floor: Invalid value: "${floor}": may only grow: give 100 or more, for tokens never go back`,
      );
    await patch({ tokens: { floor: "1000" } });
    expect((await read()).spec.tokens.floor).toBe("1000");
  });

  test("a floor that is taken out, alone or with all of tokens", async () => {
    await create({ tokens: { floor: "100" } });
    const message = "may only grow: give 100 or more, for tokens never go back";
    expect(await refusal(patch({ tokens: { floor: null } }))).toContain(message);
    expect(await refusal(patch({ tokens: null }))).toContain(message);
  });

  test("the store of tokens", async () => {
    await create({});
    expect(await refusal(patch({ tokens: { store: "PostgreSQL" } }))).toContain(
      'spec.tokens.store: Invalid value: "PostgreSQL": cannot be changed: make a new FencedResource with the other store',
    );
  });

  test("a duration that leaves the renewals no room", async () => {
    await create({ lease: { durationSeconds: 30, renewIntervalSeconds: 10 } });
    expect(await refusal(patch({ lease: { durationSeconds: 15 } }))).toContain(
      "leaves no room for two lost renewals",
    );
  });
});

describe("exact at the ends", () => {
  test.each(["9007199254740993", "9223372036854775807"])("FM-38 the floor %s", async (floor) => {
    await create({ tokens: { floor } });
    expect((await read()).spec.tokens.floor).toBe(floor);
    expect(await cluster.kubectl(["get", "fr", name, "-n", ns, "-o", "yaml"])).toContain(`floor: "${floor}"`);
  });

  test("FM-39 two names of 253 characters with a common start", async () => {
    const names = ["a", "b"].map((end) => "n".repeat(252) + end);
    for (const long of names) await create({}, long);
    for (const long of names) expect((await read(long)).metadata.name).toBe(long);
    expect(await refusal(create({}, "n".repeat(254)))).toContain("must be no more than 253 characters");
  });
});

describe("status", () => {
  const time = "2026-01-02T03:04:05.000000Z";
  const full = {
    observedGeneration: 3,
    guarantee: "Fenced",
    issuer: "cluster-a",
    holder: {
      identity: "pod:0f8fad5b/1",
      display: "worker-a (expired)",
      pod: "worker-a",
      label: "worker-a",
      token: "9223372036854775807",
      since: time,
    },
    waiters: 2,
    waitersByReplica: { "controller-1": { count: 2 } },
    transfers: [{ token: "42", from: "a", to: "b", reason: "Expired", time }],
    tokens: { granted: "9223372036854775807", ceiling: "9223372036854775807" },
    boundary: { grantedMark: "42", verifiedTime: time, refusedStaleTime: time },
    conditions: [
      {
        type: "Ready",
        status: "True",
        lastTransitionTime: time,
        reason: "Ready",
        message: "",
        observedGeneration: 3,
      },
    ],
  };

  test("is kept as it was written, every field of it", async () => {
    await create({});
    await setStatus(full);
    expect((await read()).status).toEqual(full);
  });

  test("what a person sees of it", async () => {
    await create({});
    expect(await columns()).toEqual([
      ["NAME", "HOLDER", "TOKEN", "GUARANTEE", "READY", "AGE"],
      [name, expect.stringMatching(/^\d+s$/)],
    ]);
    await setStatus(full);
    expect(await columns()).toEqual([
      ["NAME", "HOLDER", "TOKEN", "GUARANTEE", "READY", "AGE"],
      [name, "worker-a (expired)", "9223372036854775807", "Fenced", "True", expect.stringMatching(/^\d+s$/)],
    ]);
    const [head, row] = await columns("-o", "wide");
    expect(head?.slice(6)).toEqual(["MARK", "WAITERS", "STORE", "BOUNDARY"]);
    expect(row?.slice(6)).toEqual(["42", "2", "Status", "None"]);
  });

  test("the category shows it", async () => {
    await create({});
    expect(await cluster.kubectl(["get", "fenceline", "-n", ns])).toContain(
      `fencedresource.fenceline.dev/${name}`,
    );
  });
});

test.each(["FencedResource", "FencedSequence"])(
  "kubectl explain describes every field of %s",
  async (kind) => {
    // What explain shows is this document, and nothing else.
    const document: { components: { schemas: Record<string, Schema> } } = JSON.parse(
      await cluster.kubectl(["get", "--raw", "/openapi/v3/apis/fenceline.dev/v1alpha1"]),
    );
    const schema = document.components.schemas[`dev.fenceline.v1alpha1.${kind}`] ?? {};
    expect(Object.keys(schema.properties ?? {})).toEqual([
      "apiVersion",
      "kind",
      "metadata",
      "spec",
      "status",
    ]);
    expect(undescribed(schema, kind)).toEqual([]);
  },
);

test("kubectl explain gives units, bounds and default", async () => {
  const text = await cluster.kubectl(["explain", "fr.spec.lease.durationSeconds"]);
  expect(text.replaceAll(/\s+/g, " ")).toContain("Seconds for which a renewal holds: 3 to 3600, default 15.");
});

interface Schema {
  description?: string;
  $ref?: string;
  allOf?: unknown[];
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
}

/** Paths of the fields that nobody described. */
const undescribed = (schema: Schema, path: string): string[] =>
  Object.entries({
    ...schema.properties,
    ...(schema.items === undefined ? {} : schema.items.properties),
    ...(typeof schema.additionalProperties === "object" ? schema.additionalProperties.properties : {}),
  }).flatMap(([name, child]) => [
    ...((child.description ?? "") === "" ? [`${path}.${name}`] : []),
    ...undescribed(child, `${path}.${name}`),
  ]);

test("the definition in the repository is the one that is served", async () => {
  const served = JSON.parse(
    await cluster.kubectl(["get", "crd", "fencedresources.fenceline.dev", "-o", "json"]),
  );
  expect(served.spec.names).toMatchObject({
    shortNames: fencedResourceDefinition.shortNames,
    categories: ["fenceline"],
  });
  expect(served.status.conditions).toContainEqual(
    expect.objectContaining({ type: "NamesAccepted", status: "True" }),
  );
  expect(served.status.conditions).not.toContainEqual(
    expect.objectContaining({ type: "NonStructuralSchema" }),
  );
});
