import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { cli } from "../../unit/cli/inprocess.ts";
import { endAll, fenceline, type Run } from "../../unit/cli/fenceline.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Controller, install, startController, workerToken } from "../../support/fenceline/install.ts";

/** Of its own: a controller leads one cluster. */
let cluster: Lab;
collectOnFailure(() => cluster);
let controller: Controller;

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
  controller = await startController(cluster, { replica: "cli" });
});
afterAll(async () => {
  await controller?.stop();
  await cluster?.[Symbol.asyncDispose]();
});
afterEach(endAll);

/** A namespace with one resource that is ready to be granted. */
const resourceIn = async (
  name: string,
  spec: object = { lease: { durationSeconds: 3 } },
): Promise<string> => {
  const namespace = await cluster.namespace(name);
  await cluster.apply({
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    metadata: { name: "orders", namespace },
    spec,
  });
  await cluster.kubectl(["wait", "fr/orders", "-n", namespace, "--for=condition=Ready", "--timeout=30s"]);
  return namespace;
};

const access = async (namespace: string, who: string) => [
  "--server",
  controller.server,
  "--ca-file",
  controller.caFile,
  "--token-file",
  await workerToken(cluster, namespace, who),
];

const exec = async (
  namespace: string,
  who: string,
  command: readonly string[],
  flags: readonly string[] = [],
): Promise<Run> =>
  fenceline([
    "exec",
    "--resource",
    `${namespace}/orders`,
    "--label",
    who,
    ...(await access(namespace, who)),
    ...flags,
    "--",
    ...command,
  ]);

const worker = ["sh", "-c", 'echo "works with $FENCELINE_TOKEN"; exec sleep 60'];
const onCluster = () => ["--kubeconfig", cluster.kubeconfig, "--context", cluster.context];
const tokenOf = (run: Run): bigint => BigInt(/works with (\d+)/.exec(run.stdout())?.[1] ?? "0");

interface State {
  resource: string;
  highestToken: string;
  holder: string | null;
  holderLabel: string | null;
  leaseExpiry: string | null;
  updated: string | null;
}
const stateOf = async (namespace: string): Promise<State> =>
  JSON.parse((await cli(["get", `${namespace}/orders`, ...onCluster(), "-o", "json"])).stdout) as State;

describe("two that fight for one resource", () => {
  it("FM-13 FM-03 one works, the other waits, and takes over with a higher token when the first one ends", async () => {
    const namespace = await resourceIn("cli-fight");
    const first = await exec(namespace, "alice", worker);
    await first.says("works with");
    const second = await exec(namespace, "bob", worker);
    await second.says("waiting for user:");
    expect(second.stdout()).toBe("");
    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(143);
    expect(first.stderr()).toContain("released token");
    await second.says("works with");
    expect(tokenOf(second)).toBeGreaterThan(tokenOf(first));
    const table = await cli(["get", `${namespace}/orders`, ...onCluster()]);
    expect(table.stdout).toMatch(/^NAME +HOLDER +TOKEN +GUARANTEE +READY +AGE\n/);
    expect(table.stdout).toMatch(new RegExp(`\\norders +bob +${tokenOf(second)} +Advisory +True +\\d+`));
    second.child.kill("SIGTERM");
    expect(await second.ended).toBe(143);
  });

  it("S1-45 one that was stopped for too long loses, learns it first, and stops its command", async () => {
    const namespace = await resourceIn("cli-stop");
    const first = await exec(namespace, "alice", worker);
    await first.says("works with");
    first.child.kill("SIGSTOP");
    const second = await exec(namespace, "bob", worker);
    await second.says("works with");
    expect(tokenOf(second)).toBeGreaterThan(tokenOf(first));
    first.child.kill("SIGCONT");
    expect(await first.ended).toBe(122);
    expect(first.stderr()).toContain("lost (deadline)");
    expect((await stateOf(namespace)).holderLabel).toBe("bob");
  });

  it("S1-47 one that may not wait is told who holds it: 121", async () => {
    const namespace = await resourceIn("cli-busy");
    const first = await exec(namespace, "alice", worker);
    await first.says("works with");
    const second = await exec(namespace, "bob", worker, ["--no-wait"]);
    expect(await second.ended).toBe(121);
    expect(second.stderr()).toContain("is held by user:");
  });

  it("one that was taken away by force stops, and the reason is on record", async () => {
    const namespace = await resourceIn("cli-force");
    const first = await exec(namespace, "alice", worker);
    await first.says("works with");
    const operator = await access(namespace, "operator");
    const release = ["release", `${namespace}/orders`, "--force", "--reason", "maintenance", ...operator];
    const refused = await cli(release);
    expect(refused).toMatchObject({ code: 1, stdout: "" });
    expect(refused.stderr).toMatch(/^fenceline: .*refused \(forbidden\).*\n$/);
    await cluster.apply({
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { name: "operator-may-force", namespace },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "fenceline-admin" },
      subjects: [{ kind: "ServiceAccount", name: "operator", namespace }],
    });
    await expect
      .poll(async () => (await cli(release)).stdout, { timeout: 20_000 })
      .toContain("taken away from user:");
    expect(await first.ended).toBe(122);
    expect(first.stderr()).toContain("lost (forced)");
    const described = await cli(["describe", `${namespace}/orders`, ...onCluster()]);
    expect(described.stdout).toMatch(/Taken away: .*maintenance/);
    await expect.poll(async () => (await cli(release)).stdout).toBe(`${namespace}/orders: nobody held it\n`);
  });
});

describe("exec with a kubeconfig and a service account", () => {
  const withAccount = (namespace: string, command: readonly string[]) =>
    fenceline([
      "exec",
      "--resource",
      `${namespace}/orders`,
      "--server",
      controller.server,
      "--ca-file",
      controller.caFile,
      "--service-account",
      "carol",
      ...onCluster(),
      "--",
      ...command,
    ]);

  it("asks for a token of that account and runs as it", async () => {
    const namespace = await resourceIn("cli-account");
    await workerToken(cluster, namespace, "carol");
    const run = withAccount(namespace, ["sh", "-c", 'echo "works with $FENCELINE_TOKEN"']);
    expect(await run.ended).toBe(0);
    expect(tokenOf(run)).toBeGreaterThan(0n);
  });

  it("an account that is not there is one line and 124", async () => {
    const namespace = await resourceIn("cli-noaccount");
    const run = withAccount(namespace, ["true"]);
    expect(await run.ended).toBe(124);
    expect(run.stderr()).toMatch(/^fenceline: .*carol.*\n$/);
  });
});

describe("bearers that are no good", () => {
  it.each<[string, (namespace: string) => Promise<string>]>([
    [
      "made for somebody else",
      (namespace) => cluster.token({ namespace, sa: "dave", expirationSeconds: 600 }),
    ],
    ["no token at all", async () => "hello"],
    ["too large", async () => "x".repeat(20_000)],
    [
      "expired",
      async () => {
        const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
        return `${part({ alg: "RS256" })}.${part({ aud: ["fenceline"], exp: 1000 })}.${createHash("sha256").digest("base64url")}`;
      },
    ],
  ])("%s: 124 or 123 and one line that does not repeat it", async (name, make) => {
    const namespace = await resourceIn(`cli-bearer-${name.replaceAll(/[^a-z]/g, "")}`);
    const token = await make(namespace);
    const file = join(cluster.kubeconfig, "..", `${namespace}.bad-token`);
    await writeFile(file, token);
    const run = fenceline([
      "exec",
      "--resource",
      `${namespace}/orders`,
      "--server",
      controller.server,
      "--ca-file",
      controller.caFile,
      "--token-file",
      file,
      "--",
      "true",
    ]);
    expect([123, 124]).toContain(await run.ended);
    expect(run.stderr()).toMatch(/^fenceline: [^\n]*\n$/);
    expect(run.stderr()).not.toContain(token);
  });

  it("one without rights, and a resource that is not there", async () => {
    const namespace = await resourceIn("cli-rights");
    const file = join(cluster.kubeconfig, "..", `${namespace}.token`);
    await writeFile(
      file,
      await cluster.token({ namespace, sa: "eve", audience: "fenceline", expirationSeconds: 600 }),
    );
    const as = ["--server", controller.server, "--ca-file", controller.caFile, "--token-file"];
    const run = fenceline(["exec", "--resource", `${namespace}/orders`, ...as, file, "--", "true"]);
    expect(await run.ended).toBe(124);
    expect(run.stderr()).toContain("refused (forbidden)");
    const may = await workerToken(cluster, namespace, "alice");
    const none = fenceline(["exec", "--resource", `${namespace}/none`, ...as, may, "--", "true"]);
    expect(await none.ended).toBe(124);
    expect(none.stderr()).toContain("refused (unknown_resource)");
  });
});

describe("what people read", () => {
  it("S1-21 get -o json prints id, highest token, owner, expiry and the time of the last change", async () => {
    const namespace = await resourceIn("cli-json");
    expect(await stateOf(namespace)).toMatchObject({
      resource: `${namespace}/orders`,
      highestToken: "0",
      holder: null,
      leaseExpiry: null,
    });
    const run = await exec(namespace, "alice", worker);
    await run.says("works with");
    const state = await stateOf(namespace);
    expect(state).toMatchObject({
      resource: `${namespace}/orders`,
      highestToken: tokenOf(run).toString(),
      holder: expect.stringMatching(/^user:[0-9a-f]+\/[0-9a-f-]{36}$/),
      leaseExpiry: expect.stringMatching(/^\d{4}-.*\.\d{6}Z$/),
      updated: expect.stringMatching(/^\d{4}-.*\.\d{6}Z$/),
    });
    const yaml = await cli(["get", "orders", "-n", namespace, ...onCluster(), "-o", "yaml"]);
    expect(yaml.stdout).toContain(`highestToken: "${tokenOf(run)}"\n`);
    const list = await cli(["get", "-A", ...onCluster(), "-o", "json"]);
    const { items } = JSON.parse(list.stdout) as { items: State[] };
    expect(items.find((item) => item.resource === state.resource)?.holder).toBe(state.holder);
    run.child.kill("SIGKILL");
    await expect
      .poll(async () => (await cli(["get", "-n", namespace, ...onCluster()])).stdout, { timeout: 20_000 })
      .toContain("alice (expired)");
  });

  it("S1-36 describe says what Advisory is, and tells holder, conditions and transfers", async () => {
    const namespace = await resourceIn("cli-describe");
    const run = await exec(namespace, "alice", worker);
    await run.says("works with");
    const describeIt = async () =>
      (await cli(["describe", "-n", namespace, "orders", ...onCluster()])).stdout;
    await expect
      .poll(describeIt, { timeout: 20_000 })
      .toMatch(/Transfers.*\n.*WHEN.*\n +\d+s ago +1 +nobody +user:.* +Granted\n/);
    const text = await describeIt();
    expect(text).toMatch(/Guarantee: +Advisory: reduces overlap, does not exclude it\n/);
    expect(text).toMatch(/Holder: +alice\n/);
    expect(text).toMatch(/Lease: +ends in \ds unless renewed; 3 s, renewed every 1 s\n/);
    expect(text).toMatch(/Conditions\n +TYPE +STATUS +REASON +SINCE +MESSAGE\n/);
    expect(text).toMatch(/\n +Ready +True +/);
  });

  it("the flags of kubectl fence may stand before and after the verb", async () => {
    const namespace = await resourceIn("cli-plugin");
    const before = await cli(["-n", namespace, ...onCluster(), "get"], { plugin: true });
    const after = await cli(["get", "-n", namespace, ...onCluster()], { plugin: true });
    expect(before).toMatchObject({ code: 0, stdout: expect.stringContaining("orders") });
    expect(after.stdout.split("\n")[0]).toBe(before.stdout.split("\n")[0]);
    const byEnv = await cli(["get", "-n", namespace], { env: { KUBECONFIG: cluster.kubeconfig } });
    expect(byEnv).toMatchObject({ code: 0, stdout: expect.stringContaining("orders") });
  });

  it("watch tells a hand-over line by line, and no renewal", async () => {
    const namespace = await resourceIn("cli-watch");
    const watch = fenceline(["watch", `${namespace}/orders`, ...onCluster()]);
    await watch.says("orders");
    const run = await exec(namespace, "alice", worker);
    await watch.says("alice");
    await run.says("works with");
    const renewed = async () => (await stateOf(namespace)).updated;
    const before = await renewed();
    await expect.poll(renewed, { timeout: 10_000 }).not.toBe(before);
    run.child.kill("SIGTERM");
    await run.ended;
    const rows = () => watch.stdout().trimEnd().split("\n");
    await expect.poll(() => rows().at(-1), { timeout: 10_000 }).not.toContain("alice");
    await cluster.kubectl(["delete", "fr/orders", "-n", namespace]);
    await watch.says("(deleted)");
    watch.child.kill("SIGINT");
    expect(await watch.ended).toBe(130);
    expect(rows().length).toBeLessThan(12);
    expect(watch.stderr()).toBe("");
  });

  it("watch -o json is a line of JSON each", async () => {
    const namespace = await resourceIn("cli-watchjson");
    const watch = fenceline(["watch", "-n", namespace, "-o", "json", ...onCluster()]);
    await watch.says("\n");
    watch.child.kill("SIGTERM");
    expect(await watch.ended).toBe(143);
    const [line = ""] = watch.stdout().split("\n");
    expect(JSON.parse(line)).toMatchObject({ resource: `${namespace}/orders` });
  });

  it("crds can be applied as they are printed", async () => {
    const { stdout } = await cli(["crds", "--policies"]);
    const said = await cluster.kubectl(
      ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"],
      {
        input: stdout,
      },
    );
    expect(said).toContain("fencedresources.fenceline.dev serverside-applied");
    expect(said).toContain("validatingadmissionpolicy");
    expect((await cli(["crds"])).stdout).not.toContain("AdmissionPolicy");
  });
});

describe("what cannot be read", () => {
  it("a resource that is not there: one line and 1", async () => {
    const namespace = await cluster.namespace("cli-none");
    const said = await cli(["get", `${namespace}/orders`, ...onCluster()]);
    expect(said).toEqual({
      code: 1,
      stdout: "",
      stderr: `fenceline: there is no FencedResource ${namespace}/orders\n`,
    });
    const none = await cli(["get", "-n", namespace, ...onCluster()]);
    expect(none).toEqual({ code: 0, stdout: "", stderr: `No FencedResources in namespace ${namespace}.\n` });
  });

  it.each<[string, string[], number]>([
    ["no file", ["--kubeconfig", "/no/such/file"], 2],
    ["no context", ["--kubeconfig", "KUBECONFIG", "--context", "nowhere"], 2],
  ])("%s: one line and 2", async (_, flags, code) => {
    const said = await cli([
      "get",
      ...flags.map((flag) => (flag === "KUBECONFIG" ? cluster.kubeconfig : flag)),
    ]);
    expect(said).toMatchObject({ code, stdout: "" });
    expect(said.stderr).toMatch(/^fenceline: kubeconfig [^\n]*\n$/);
  });

  it("no rights: one line and 1", async () => {
    const kubeconfig = await cluster.credentials("cli-nobody");
    const said = await cli([
      "get",
      "-n",
      "default",
      "--kubeconfig",
      kubeconfig,
      "--context",
      cluster.context,
    ]);
    expect(said).toMatchObject({ code: 1, stdout: "" });
    expect(said.stderr).toMatch(/^fenceline: [^\n]*fencedresources[^\n]*\n$/);
  });

  it("nobody there: one line and 6", async () => {
    const file = join(cluster.kubeconfig, "..", "cli-nobody-there");
    const text = await cluster.kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]);
    await writeFile(file, text.replaceAll(/https:\/\/127\.0\.0\.1:\d+/g, "https://127.0.0.1:1"));
    for (const verb of ["get", "watch"]) {
      const said = await cli([verb, "-n", "default", "--kubeconfig", file]);
      expect(said).toMatchObject({ code: 6, stdout: "" });
      expect(said.stderr).toMatch(/^fenceline: [^\n]*\n$/);
    }
  });
});
