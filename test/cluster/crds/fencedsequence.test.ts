import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { parseFencedSequence } from "../../../src/api/fencedsequence.ts";
import { sequenceName } from "../../../src/api/names.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { crds, install, kubectlWith, patchStatus, policies, rbac, refusal, us } from "./support.ts";

const cluster = sharedCluster();
let resource: `${string}/${string}`;
let name: string;
let uid: string;

beforeAll(() => install(cluster, crds, rbac, policies));
beforeEach(async () => {
  resource = `shop/orders-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  name = sequenceName(resource);
  await kubectlWith(cluster, ["create", "-f", "-", ...us], {
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedSequence",
    metadata: { name },
    spec: { resource },
  });
  uid = (await read()).metadata.uid;
});

const read = async () => parseFencedSequence(await json());
const json = async () => JSON.parse(await cluster.kubectl(["get", "fs", name, "-o", "json"]));

const patch = (status: object | null) => patchStatus(cluster, ["fs", name], status);
const open = (ceiling: string, base = "0") => patch({ base, ceiling, uid, issuer: "a" });
/** PUT of a status, or of none. */
const put = async (change: (object: Record<string, unknown>) => void) => {
  const object = await json();
  change(object);
  return kubectlWith(cluster, ["replace", "--subresource=status", "-f", "-", ...us], object);
};

describe("FM-38 the ceiling never falls", () => {
  test.each([
    ["128", "127"],
    ["128", "9"],
    ["9223372036854775807", "9223372036854775806"],
    ["9007199254740993", "9007199254740992"],
  ])("from %s to %s", async (from, to) => {
    await open(from);
    expect(await refusal(patch({ ceiling: to }))).toContain(
      `status.ceiling: Invalid value: "${to}": may not fall from ${from} to ${to}: tokens above it may have been handed out`,
    );
    expect((await read()).status?.ceiling).toBe(from);
  });

  test.each([
    ["9", "10"],
    ["9007199254740992", "9007199254740993"],
    ["1", "9223372036854775807"],
  ])("and rises from %s to %s, exactly", async (from, to) => {
    await open(from);
    await patch({ ceiling: to });
    expect((await read()).status?.ceiling).toBe(to);
  });

  test("nor vanishes: as a field, with the whole status, by null, by a body without it", async () => {
    await open("128");
    const gone = "status.ceiling may not vanish: tokens up to it may have been handed out";
    expect(await refusal(patch({ ceiling: null }))).toContain("status.ceiling: Required value");
    expect(await refusal(patch(null))).toContain(gone);
    expect(
      await refusal(
        put((object) => {
          delete object["status"];
        }),
      ),
    ).toContain(gone);
    expect(
      await refusal(
        put((object) => {
          object["status"] = null;
        }),
      ),
    ).toContain(gone);
    expect(
      await refusal(
        put((object) => {
          object["status"] = {};
        }),
      ),
    ).toContain("status.ceiling: Required value");
    expect((await read()).status?.ceiling).toBe("128");
  });

  test.each(["9223372036854775808", "-1", "042", "1e3", "", "9223372036854775807.0"])(
    "%j is no ceiling",
    async (ceiling) => {
      expect(await refusal(open(ceiling))).toContain("status.ceiling: Invalid value");
    },
  );
});

test("an update of the object itself leaves the status alone", async () => {
  await open("128");
  const object = await json();
  delete object.status;
  await kubectlWith(cluster, ["replace", "-f", "-"], object);
  expect((await read()).status?.ceiling).toBe("128");
});

test("all of base, ceiling, uid and issuer, or nothing", async () => {
  for (const field of ["base", "ceiling", "uid", "issuer"])
    expect(await refusal(patch({ base: "0", ceiling: "64", uid, issuer: "a", [field]: null }))).toContain(
      `status.${field}: Required value`,
    );
});

test("the ceiling is never below where the sequence was opened", async () => {
  expect(await refusal(open("64", "65"))).toContain("status.ceiling: Invalid value: may not be below base");
});

test("spec stays as it is", async () => {
  expect(
    await refusal(
      cluster.kubectl(["patch", "fs", name, "--type=merge", "-p", '{"spec":{"resource":"shop/other"}}']),
    ),
  ).toContain("cannot be changed: each resource has a sequence of its own");
});

test("a sealed sequence stands still until it is opened again", async () => {
  await open("64");
  await patch({ sealed: true });
  expect(await refusal(patch({ ceiling: "128" }))).toContain("may not move while the sequence is sealed");
  await patch({ sealed: false, ceiling: "128" });
});

test("another issuer only with a higher ceiling", async () => {
  await open("64");
  const message = "may change only together with a higher ceiling: two clusters never issue the same token";
  expect(await refusal(patch({ issuer: "b" }))).toContain(message);
  await patch({ issuer: "b", ceiling: "65" });
});

test("what a person sees", async () => {
  await open("9223372036854775807");
  const [head, row] = (await cluster.kubectl(["get", "fs", name])).trimEnd().split("\n");
  expect(head?.trim().split(/ {2,}/)).toEqual(["NAME", "RESOURCE", "CEILING", "SEALED"]);
  expect(row?.trim().split(/ {2,}/)).toEqual([name, resource, "9223372036854775807", "false"]);
});
