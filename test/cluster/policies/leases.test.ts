import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { leaderLease, leaseAnnotations, resourceLabel, systemNamespace } from "../../../src/api/names.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { kubectlWith, refusal, us } from "../crds/support.ts";
import { bound, credit, enforced, lease, type LeaseBody, untilMay } from "./support.ts";

const cluster = sharedCluster();
let ns: string;
let name: string;
let people: { who: string; as: string[] }[];
let made = 0;

beforeAll(async () => {
  await enforced(cluster);
  ns = await cluster.namespace("shop");
  people = [
    { who: "cluster administrator", as: [] },
    { who: "administrator of the namespace", as: await bound(cluster, ns, "admin") },
  ];
  // The usual roles know nothing of Leases: with the right, the policy is what is left.
  const anything = ["--verb=*", "--resource=leases.coordination.k8s.io"];
  await cluster.kubectl(["create", "role", "leases", "-n", ns, ...anything]);
  const admin = `admin-of-${ns}`;
  await cluster.kubectl(["create", "rolebinding", "leases", "-n", ns, "--role=leases", `--user=${admin}`]);
  await untilMay(cluster, [`--as=${admin}`], "update", "leases.coordination.k8s.io", "-n", ns);
});
beforeEach(() => {
  made += 1;
  name = `orders-${made}`;
});

const create = (body: LeaseBody, as: readonly string[] = us) =>
  kubectlWith(cluster, ["create", "-f", "-", ...as], body);
const replace = (body: LeaseBody, as: readonly string[] = us) =>
  kubectlWith(cluster, ["replace", "-f", "-", ...as], body);
const merge = (patch: object, as: readonly string[] = us) =>
  cluster.kubectl([
    "patch",
    "lease",
    `fenceline-${name}`,
    "-n",
    ns,
    "--type=merge",
    "-p",
    JSON.stringify(patch),
    ...as,
  ]);
const read = async (): Promise<LeaseBody & { metadata: { uid: string } }> =>
  JSON.parse(await cluster.kubectl(["get", "lease", `fenceline-${name}`, "-n", ns, "-o", "json"]));
const path = () => `/apis/coordination.k8s.io/v1/namespaces/${ns}/leases/fenceline-${name}`;

/** A Lease of ours that granted `token` to `holder`. */
const granted = async (token: string, holder = "pod:a/1") => {
  await create(lease(ns, name));
  const { metadata } = await read();
  await merge({ metadata: { annotations: credit(metadata.uid, token) }, spec: { holderIdentity: holder } });
  return read();
};

const ours = `Leases with the label ${resourceLabel} are written by Fenceline alone: take the resource away with "fenceline release`;

describe("everybody else", () => {
  test("may not make one", async () => {
    for (const { as } of people)
      expect(
        await refusal(create(lease(ns, name, { notes: { [leaseAnnotations.resource]: name } }), as)),
      ).toContain(`${ours} ${ns}/${name} --force --reason ..."`);
  });

  test.each<[string, (as: string[]) => Promise<string>]>([
    ["PUT another holder", async (as) => replace({ ...(await read()), spec: { holderIdentity: "me" } }, as)],
    ["patch the holder", (as) => merge({ spec: { holderIdentity: "me" } }, as)],
    [
      "patch the token",
      (as) => merge({ metadata: { annotations: { [leaseAnnotations.token]: "100" } } }, as),
    ],
    ["remove the label", (as) => merge({ metadata: { labels: null } }, as)],
    ["change the label", (as) => merge({ metadata: { labels: { [resourceLabel]: "other" } } }, as)],
    ["add a finalizer", (as) => merge({ metadata: { finalizers: ["example.com/mine"] } }, as)],
    ["add an annotation", (as) => merge({ metadata: { annotations: { note: "mine" } } }, as)],
    [
      "apply",
      (as) =>
        kubectlWith(
          cluster,
          ["apply", "--server-side", "--force-conflicts", "-f", "-", ...as],
          lease(ns, name, { holder: "me" }),
        ),
    ],
  ])("may not %s", async (_, attack) => {
    const before = await granted("42");
    for (const { as } of people) expect(await refusal(attack(as))).toContain(ours);
    expect(await read()).toEqual(before);
  });

  test("may not add the label to a Lease of their own", async () => {
    await create(lease(ns, name, { label: null, holder: "me", notes: credit("forged", "1") }), []);
    for (const { as } of people)
      expect(await refusal(merge({ metadata: { labels: { [resourceLabel]: name } } }, as))).toContain(ours);
  });

  test("may write back what they read, as a migration of the storage does", async () => {
    const before = await granted("42");
    await replace(before, []);
    expect((await read()).metadata.resourceVersion).toBe(before.metadata.resourceVersion);
  });

  test("FM-27 may delete one, in the foreground too, and many at once", async () => {
    await granted("42");
    await cluster.kubectl(["delete", "lease", `fenceline-${name}`, "-n", ns, ...(people[1]?.as ?? [])]);
    await granted("43");
    await cluster.kubectl([
      "delete",
      "lease",
      `fenceline-${name}`,
      "-n",
      ns,
      "--cascade=foreground",
      "--timeout=30s",
    ]);
    const { metadata } = await granted("44");
    await cluster.kubectl(["delete", "--raw", `/apis/coordination.k8s.io/v1/namespaces/${ns}/leases`]);
    expect(await refusal(cluster.kubectl(["get", "lease", metadata.name, "-n", ns]))).toContain("NotFound");
  });
});

describe("ourselves", () => {
  test("make one only without holder and token", async () => {
    const empty =
      "a Lease of a fenced resource starts without a holder and without a token: make it empty, then acquire";
    expect(await refusal(create(lease(ns, name, { holder: "pod:a/1" })))).toContain(empty);
    expect(await refusal(create(lease(ns, name, { notes: credit("x", "1") })))).toContain(empty);
    await create(lease(ns, name));
  });

  test.each([
    ["42", "41"],
    ["128", "9"],
    ["9223372036854775807", "9223372036854775806"],
    ["9007199254740993", "9007199254740992"],
  ])("FM-38 never lower a token from %s to %s", async (from, to) => {
    const { metadata } = await granted(from);
    expect(await refusal(merge({ metadata: { annotations: credit(metadata.uid, to) } }))).toContain(
      `${leaseAnnotations.token} may not fall from ${from} to ${to}: tokens never go back`,
    );
  });

  test("FM-38 raise it to the end of the range", async () => {
    const { metadata } = await granted("9223372036854775806");
    await merge({ metadata: { annotations: credit(metadata.uid, "9223372036854775807") } });
    expect((await read()).metadata.annotations?.[leaseAnnotations.token]).toBe("9223372036854775807");
  });

  test("never take the token out, nor all annotations", async () => {
    await granted("42");
    const message = `${leaseAnnotations.token} may not fall from 42 to nothing: tokens never go back`;
    expect(await refusal(merge({ metadata: { annotations: { [leaseAnnotations.token]: null } } }))).toContain(
      message,
    );
    expect(await refusal(merge({ metadata: { annotations: null } }))).toContain("stays as it is");
  });

  test("never change whose credit it is", async () => {
    await granted("42");
    const message = `${leaseAnnotations.creditUid} stays as it is`;
    expect(
      await refusal(merge({ metadata: { annotations: { [leaseAnnotations.creditUid]: "other" } } })),
    ).toContain(message);
    expect(
      await refusal(merge({ metadata: { annotations: { [leaseAnnotations.creditUid]: null } } })),
    ).toContain(message);
  });

  test("never take the label off, nor change it", async () => {
    await granted("42");
    const message = `the label ${resourceLabel} stays as it is: delete the Lease instead`;
    // Two policies refuse this, and the API server tells of whichever it asked first.
    const outside = `Fenceline writes only Leases with the label ${resourceLabel}`;
    const taken = await refusal(merge({ metadata: { labels: null } }));
    expect([message, outside].filter((text) => taken.includes(text))).not.toEqual([]);
    expect(await refusal(merge({ metadata: { labels: { [resourceLabel]: "other" } } }))).toContain(message);
  });

  test.each(["-1", "042", "1e3", "+7", " 7", "0x10", "seven", "9223372036854775808", "99999999999999999999"])(
    "FM-38 %j is no token",
    async (token) => {
      const { metadata } = await granted("42");
      const message = `${leaseAnnotations.token} and ${leaseAnnotations.ceiling} must be decimal strings from 0 to 9223372036854775807 without sign or leading zero`;
      expect(await refusal(merge({ metadata: { annotations: credit(metadata.uid, token) } }))).toContain(
        message,
      );
      expect(
        await refusal(merge({ metadata: { annotations: credit(metadata.uid, "42", token) } })),
      ).toContain(message);
    },
  );

  test("start over where the credit is another Lease's", async () => {
    await create(lease(ns, name));
    await merge({ metadata: { annotations: credit("of-a-deleted-lease", "42") } });
    const { metadata } = await read();
    await merge({ metadata: { annotations: credit(metadata.uid, "7") } });
    expect((await read()).metadata.annotations?.[leaseAnnotations.token]).toBe("7");
  });

  test("adopt a Lease that nobody holds, and empty it", async () => {
    await create(lease(ns, name, { label: null, notes: credit("forged", "100") }), []);
    const label = { labels: { [resourceLabel]: name } };
    expect(await refusal(merge({ metadata: label }))).toContain(
      "starts without a holder and without a token",
    );
    await merge({ metadata: { ...label, annotations: null } });
  });

  test("FM-39 never adopt a Lease that somebody holds", async () => {
    await create(lease(ns, name, { label: null, holder: "somebody" }), []);
    expect(
      await refusal(
        merge({ metadata: { labels: { [resourceLabel]: name } }, spec: { holderIdentity: null } }),
      ),
    ).toContain("a Lease that somebody holds is not taken over: wait until it is free, or delete it");
  });

  test("write no other Lease but the leader's", async () => {
    const message = `Fenceline writes only Leases with the label ${resourceLabel}, and ${leaderLease} in ${systemNamespace}`;
    expect(await refusal(create(lease(ns, name, { label: null })))).toContain(message);
    await create(lease(ns, name, { label: null }), []);
    expect(await refusal(merge({ spec: { holderIdentity: "us" } }))).toContain(message);

    const leader = lease(systemNamespace, "leader", { label: null, holder: "us" });
    leader.metadata.name = leaderLease;
    await kubectlWith(cluster, ["create", "--dry-run=server", "-f", "-", ...us], leader);
    leader.metadata.namespace = ns;
    expect(await refusal(create(leader))).toContain(message);

    const node = lease("kube-node-lease", "node", { label: null, holder: "us" });
    expect(await refusal(create(node))).toContain(message);
  });
});

/** What somebody read of a Lease that is gone now, without its uid and with a holder. */
const deleted = async (body: LeaseBody, as: readonly string[]) => {
  await create(body, as);
  const { metadata, ...rest } = await read();
  await cluster.kubectl(["delete", "lease", metadata.name, "-n", ns]);
  const { uid: _, ...withoutUid } = metadata;
  return { ...rest, metadata: withoutUid, spec: { holderIdentity: "pod:late/1" } };
};

const put = (body: object, as: readonly string[]) =>
  kubectlWith(cluster, ["replace", "--raw", path(), "-f", "-", ...as], body);

describe("FM-27 a PUT without uid on a Lease that was deleted meanwhile", () => {
  test("makes a ghost with the old holder where no policy looks", async () => {
    await put(await deleted(lease(ns, name, { label: null }), []), []);
    expect((await read()).spec.holderIdentity).toBe("pod:late/1");
  });

  test("is refused by the policy, for ourselves too", async () => {
    const ghost = await deleted(lease(ns, name), us);
    expect(await refusal(put(ghost, us))).toContain("starts without a holder and without a token");
    expect(await refusal(cluster.kubectl(["get", "lease", `fenceline-${name}`, "-n", ns]))).toContain(
      "NotFound",
    );
  });
});
