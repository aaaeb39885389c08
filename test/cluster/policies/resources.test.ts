import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { kubectlWith, refusal, resource } from "../crds/support.ts";
import { bound, enforced, person } from "./support.ts";

const cluster = sharedCluster();
let ns: string;
let name: string;
let made = 0;
/** May do everything to FencedResources but `force`, and read no Secret. */
let bob: string[];
/** Like bob, and may get the two Secrets by name. */
let carol: string[];

const kinds = {
  apiGroups: ["fenceline.dev"],
  resources: ["fencedresources"],
  verbs: ["get", "create", "update", "patch", "delete", "deletecollection", "list"],
};

beforeAll(async () => {
  await enforced(cluster);
  ns = await cluster.namespace("shop");
  bob = await person(cluster, ns, "bob", [kinds]);
  const secrets = {
    apiGroups: [""],
    resources: ["secrets"],
    resourceNames: ["orders-db", "orders-db-admin"],
    verbs: ["get"],
  };
  carol = await person(cluster, ns, "carol", [kinds, secrets]);
});
beforeEach(() => {
  made += 1;
  name = `orders-${made}`;
});

const create = (spec: object, as: readonly string[]) =>
  kubectlWith(cluster, ["create", "-f", "-", ...as], resource(ns, name, spec));
const patch = (spec: object, as: readonly string[]) =>
  cluster.kubectl(["patch", "fr", name, "-n", ns, "--type=merge", "-p", JSON.stringify({ spec }), ...as]);

const guarded = {
  type: "PostgreSQL",
  postgresql: { secretRef: { name: "orders-db" }, tables: [{ name: "orders" }] },
};

const unreadable = (secret: string, field: string) =>
  `bob-of-${ns} may not get the Secret ${ns}/${secret}, so it may not be named in spec.boundary.postgresql.${field}: ask for the right to get it`;

describe("whoever names a Secret must be allowed to get it", () => {
  test("when it is made", async () => {
    expect(await refusal(create({ boundary: guarded }, bob))).toContain(unreadable("orders-db", "secretRef"));
    await create({ boundary: guarded }, carol);
  });

  test("when it is named later", async () => {
    await create({}, bob);
    expect(await refusal(patch({ boundary: guarded }, bob))).toContain(unreadable("orders-db", "secretRef"));
    await patch({ boundary: guarded }, carol);
  });

  test("when what is done with it changes", async () => {
    await create({ boundary: guarded }, carol);
    const tables = { boundary: { postgresql: { tables: [{ name: "salaries" }] } } };
    expect(await refusal(patch(tables, bob))).toContain(unreadable("orders-db", "secretRef"));
    await patch(tables, carol);
  });

  test("the owner's login too", async () => {
    await create({ boundary: guarded }, carol);
    const other = { boundary: { postgresql: { manage: true, adminSecretRef: { name: "somebody-elses" } } } };
    expect(await refusal(patch(other, carol))).toContain(`may not get the Secret ${ns}/somebody-elses`);
    await patch(
      { boundary: { postgresql: { manage: true, adminSecretRef: { name: "orders-db-admin" } } } },
      carol,
    );
  });

  test("and the rest of the resource is open to those who are not", async () => {
    await create({ boundary: guarded }, carol);
    await patch({ suspend: true }, bob);
    await cluster.kubectl(["annotate", "fr", name, "-n", ns, "note=mine", ...bob]);
    await patch({ boundary: { type: "None", postgresql: null } }, bob);
    expect(await cluster.kubectl(["delete", "fr", name, "-n", ns, "--wait=false", ...bob])).toContain(
      "deleted",
    );
  });
});

const floor = (value: bigint) => ({ tokens: { floor: value.toString() } });

const tooHigh = (value: bigint) =>
  `raising spec.tokens.floor to ${value} burns more than 2^32 tokens: it needs the verb force on this FencedResource, which bob-of-${ns} has not`;

describe("a large jump of the floor needs the verb force", () => {
  const jump = 2n ** 32n;

  test("when it is made", async () => {
    expect(await refusal(create(floor(jump + 1n), bob))).toContain(tooHigh(jump + 1n));
    await create(floor(jump), bob);
  });

  test("when it is raised", async () => {
    await create(floor(7n), bob);
    expect(await refusal(patch(floor(jump + 8n), bob))).toContain(tooHigh(jump + 8n));
    await patch(floor(jump + 7n), bob);
  });

  test("FM-38 up to the end of the range", async () => {
    const last = 2n ** 63n - 1n;
    expect(await refusal(create(floor(last), bob))).toContain(tooHigh(last));
    await create(floor(last), await bound(cluster, ns, "admin"));
  });
});

test("many are deleted at once", async () => {
  const other = await cluster.namespace("shop");
  for (const each of ["a", "b"]) await kubectlWith(cluster, ["create", "-f", "-"], resource(other, each));
  await cluster.kubectl([
    "delete",
    "--raw",
    `/apis/fenceline.dev/v1alpha1/namespaces/${other}/fencedresources`,
  ]);
  expect(await cluster.kubectl(["get", "fr", "-n", other, "-o", "name"])).toBe("");
});

/** Our policies as the API server sees them. */
const find = async () => {
  const list: { items: Found[] } = JSON.parse(
    await cluster.kubectl([
      "get",
      "validatingadmissionpolicies",
      "-l",
      "app.kubernetes.io/name=fenceline",
      "-o",
      "json",
    ]),
  );
  return list.items;
};

test("no expression of any policy is doubted by the API server", async () => {
  await expect
    .poll(async () => (await find()).filter(({ status }) => status?.observedGeneration === undefined), {
      timeout: 20_000,
    })
    .toEqual([]);
  const found = await find();
  expect(found.length).toBeGreaterThanOrEqual(7);
  const doubts = found.flatMap(({ status }) => status?.typeChecking?.expressionWarnings ?? []);
  expect(doubts).toEqual([]);
});

interface Found {
  status?: { observedGeneration?: number; typeChecking?: { expressionWarnings?: object[] } };
}
