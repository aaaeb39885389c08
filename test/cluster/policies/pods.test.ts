/** Opted-in pods without the webhook, and what people are told when they apply what makes such pods. */
import { beforeAll, describe, expect, test } from "vitest";
import { imageRepository } from "../../../src/api/injection.ts";
import { inject } from "../../../src/webhook/inject.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { patched } from "../../support/jsonpatch.ts";
import { optedIn, settings as base, type TestContainer, type TestPod } from "../../support/pods.ts";
import { kubectlWith, refusal } from "../crds/support.ts";
import { enforced } from "./support.ts";

const cluster = sharedCluster();
const settings = { ...base, image: `${imageRepository}:1.0.0` };
let ns: string;

beforeAll(async () => {
  await enforced(cluster);
  ns = await cluster.namespace("shop");
});

const create = (pod: object, ...args: string[]) =>
  kubectlWith(cluster, ["create", "-n", ns, "-f", "-", ...args], pod);
const tried = (pod: object) => create(pod, "--dry-run=server");

/** As the webhook would make it, and then changed. */
const injected = (change: (agent: TestContainer, pod: TestPod) => void = () => {}): TestPod => {
  const asked = optedIn();
  const result = inject(asked, settings);
  const pod = patched(asked, result.outcome === "patch" ? result.patch : []);
  const agent = pod.spec.initContainers?.[0];
  if (agent !== undefined) change(agent, pod);
  return pod;
};

describe("an opted-in pod", () => {
  test("is let in with our agent, of any version", async () => {
    for (const tag of [":1.0.0", ":2.0.0", `@sha256:${"a".repeat(64)}`])
      expect(await tried(injected((agent) => (agent.image = imageRepository + tag)))).toContain("created");
  });

  test("is refused without one", async () => {
    await expect
      .poll(() => refusal(tried(optedIn())), { timeout: 20_000 })
      .toContain("this pod asks for Fenceline (label fenceline.dev/inject) and got no agent");
    const ordinary = injected((_, pod) => {
      pod.spec.containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
      pod.spec.initContainers = [];
      for (const each of pod.spec.containers) delete each.restartPolicy;
      delete pod.spec.containers[1]?.startupProbe;
    });
    expect(await refusal(tried(ordinary))).toContain("got no agent");
  });

  test.each<[string, (agent: TestContainer, pod: TestPod) => void]>([
    ["another image", (agent) => (agent.image = "evil/fenceline:1")],
    ["an image that begins like ours", (agent) => (agent.image = `${imageRepository}-evil:1`)],
    ["another command", (agent) => (agent.command = ["sleep"])],
    ["other arguments", (agent) => (agent.args = ["version"])],
    ["another port", (agent) => (agent.ports = [{ containerPort: 80 }])],
    ["another probe", (agent) => (agent.startupProbe = { httpGet: { port: 80, path: "/" } })],
    ["no probe", (agent) => delete agent.startupProbe],
    ["a hook", (agent) => (agent.lifecycle = { preStop: { exec: { command: ["true"] } } })],
    [
      "an ordinary init container",
      (agent) => {
        delete agent.restartPolicy;
        delete agent.startupProbe;
        delete agent.lifecycle;
      },
    ],
  ])("is refused with an agent that has %s", async (_, change) => {
    expect(await refusal(tried(injected(change)))).toContain(
      "the container fenceline-agent is not the one that Fenceline injects",
    );
  });

  test("says true or false", async () => {
    const label = (value: string) => ({
      ...optedIn(),
      metadata: { name: "worker", labels: { "fenceline.dev/inject": value } },
    });
    expect(await refusal(tried(label("yes")))).toContain('must be "true" or "false"');
    await tried(label("false"));
  });

  test("keeps its label and its annotations; the rest may change, and it can be deleted", async () => {
    await create(injected());
    await create({ ...optedIn(), metadata: { name: "plain" } });
    const change = (kind: "label" | "annotate", pod: string, text: string) =>
      cluster.kubectl([kind, "pod", pod, "-n", ns, "--overwrite", text]);
    expect(await refusal(change("label", "worker", "fenceline.dev/inject-"))).toContain("stays as it is");
    expect(await refusal(change("label", "worker", "fenceline.dev/inject=false"))).toContain(
      "stays as it is",
    );
    expect(await refusal(change("label", "plain", "fenceline.dev/inject=true"))).toContain("stays as it is");
    for (const text of [
      "fenceline.dev/resources=other",
      "fenceline.dev/on-loss=Report",
      "fenceline.dev/resources-",
    ])
      expect(await refusal(change("annotate", "worker", text))).toContain("stay as they are");
    await change("label", "worker", "mine=1");
    await change("annotate", "worker", "mine=1");
    const status = JSON.stringify({ status: { message: "seen" } });
    await cluster.kubectl([
      "patch",
      "pod",
      "worker",
      "-n",
      ns,
      "--subresource=status",
      "--type=merge",
      "-p",
      status,
    ]);
    await cluster.kubectl(["delete", "--raw", `/api/v1/namespaces/${ns}/pods`]);
    await cluster.kubectl(["wait", "pod", "--all", "--for=delete", "--timeout=30s", "-n", ns]);
  });
});

type Spec = Record<string, unknown>;
interface Template {
  metadata: { labels: Record<string, string>; annotations: Record<string, string> };
  spec: Record<string, unknown>;
}

const template = (restartPolicy: string, notes: Record<string, string> = {}, spec: Spec = {}): Template => {
  const { metadata, spec: podSpec } = optedIn(notes);
  return {
    metadata: { labels: { ...metadata.labels, app: "w" }, annotations: metadata.annotations ?? {} },
    spec: { ...podSpec, restartPolicy, ...spec },
  };
};

const selector = { matchLabels: { app: "w" } };
/** Each kind with what it takes to be warned of nothing. */
const kinds: Record<string, (pod: [Record<string, string>?, Spec?], own?: Spec) => object> = {
  Job: (pod, own) => ({
    apiVersion: "batch/v1",
    kind: "Job",
    spec: { podReplacementPolicy: "Failed", template: template("Never", ...pod), ...own },
  }),
  CronJob: (pod, own) => ({
    apiVersion: "batch/v1",
    kind: "CronJob",
    spec: {
      schedule: "@daily",
      jobTemplate: { spec: { podReplacementPolicy: "Failed", template: template("Never", ...pod), ...own } },
    },
  }),
  Deployment: (pod, own) => ({
    apiVersion: "apps/v1",
    kind: "Deployment",
    spec: { selector, strategy: { type: "Recreate" }, template: template("Always", ...pod), ...own },
  }),
  StatefulSet: (pod, own) => ({
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    spec: { selector, serviceName: "w", template: template("Always", ...pod), ...own },
  }),
};

/** What `kubectl apply` warns of; "" for nothing. */
const warned = async (
  kind: string,
  pod: [Record<string, string>?, Spec?] = [],
  own: Spec = {},
  as: string[] = [],
) => {
  const object = { ...kinds[kind]?.(pod, own), metadata: { name: "w" } };
  const args = ["create", "-n", ns, "-f", "-", "--dry-run=server", "--warnings-as-errors", ...as];
  const said = await kubectlWith(cluster, args, object).then(
    () => "",
    (error: unknown) => String((error as { stderr?: string }).stderr),
  );
  return said;
};

const probed = {
  containers: [{ name: "app", image: "app:1", livenessProbe: { exec: { command: ["true"] } } }],
};
const rolling = (maxSurge: number | string) => ({
  strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge, maxUnavailable: 1 } },
});
const own = (key: string): Record<string, string> => ({ [key]: "x" });

describe("whoever applies it is warned", () => {
  test.each(Object.keys(kinds))("%s: of nothing where all is well", async (kind) => {
    expect(await warned(kind)).toBe("");
  });

  test.each(Object.keys(kinds))(
    "%s: of pods that would be refused, and of probes that stay",
    async (kind) => {
      expect(await warned(kind, [{ resources: "" }])).toContain("name the resources in the annotation");
      expect(await warned(kind, [own("on-los")])).toContain("is it misspelt?");
      expect(await warned(kind, [{}, { hostNetwork: true }])).toContain("Remove hostNetwork");
      expect(await warned(kind, [{}, probed])).toContain("a livenessProbe of its own keeps it");
      expect(await warned(kind, [{ "on-loss": "Report" }, probed])).toBe("");
      expect(await warned(kind, [{ containers: "other , another" }, probed])).toBe("");
    },
  );

  test.each(["Job", "CronJob"])("%s: of replacements, and of restarts in place", async (kind) => {
    expect(await warned(kind, [], { podReplacementPolicy: "TerminatingOrFailed" })).toContain(
      "set podReplacementPolicy to Failed",
    );
    expect(await warned(kind, [{}, { restartPolicy: "OnFailure" }])).toContain("set restartPolicy to Never");
  });

  test("Deployment: of a rollout that would not end", async () => {
    const deadlock = "its rollout will not end";
    expect(await warned("Deployment", [], { strategy: undefined })).toContain(deadlock);
    expect(await warned("Deployment", [], rolling("25%"))).toContain(deadlock);
    expect(await warned("Deployment", [], rolling(0))).toBe("");
    expect(await warned("Deployment", [], rolling("0%"))).toBe("");
    expect(await warned("Deployment", [{ wait: "Start" }], rolling(1))).toBe("");
  });

  test.each(["Deployment", "StatefulSet"])("%s: of replicas that are never ready", async (kind) => {
    expect(await warned(kind, [], { replicas: 2 })).toContain("only one replica can hold the resource");
    expect(await warned(kind, [{ wait: "Start" }], { replicas: 2 })).toBe("");
  });

  test("and controllers are not", async () => {
    const as = ["--as=system:serviceaccount:kube-system:cronjob-controller", "--as-group=system:masters"];
    expect(await warned("Job", [{ resources: "" }], {}, as)).toBe("");
  });
});
