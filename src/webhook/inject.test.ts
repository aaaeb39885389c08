import { describe, expect, test } from "vitest";
import { patched } from "../../test/support/jsonpatch.ts";
import { optedIn, settings, type TestContainer, type TestPod } from "../../test/support/pods.ts";
import { inject } from "./inject.ts";

/** The pod after injection; fails where it was refused. */
const injected = (pod: TestPod): { pod: TestPod; warnings: string[] } => {
  const result = inject(pod, settings);
  if (result.outcome !== "patch") throw new Error(JSON.stringify(result));
  return { pod: patched(pod, result.patch), warnings: result.warnings };
};

const refusal = (pod: unknown): string => {
  const result = inject(pod, settings);
  return result.outcome === "refused" ? result.message : `not refused: ${result.outcome}`;
};

const agentOf = (pod: TestPod): TestContainer | undefined => pod.spec.initContainers?.[0];
const variable = (container: TestContainer | undefined, name: string) =>
  container?.env?.find((each) => each.name === name)?.value;

const plain: TestContainer = { name: "app", image: "app:1" };

describe("a pod that opts in", () => {
  const { pod, warnings } = injected(optedIn());

  test("has the agent as a native sidecar before everything else", () => {
    expect(agentOf(pod)).toMatchObject({
      name: "fenceline-agent",
      image: settings.image,
      args: ["agent"],
      restartPolicy: "Always",
      ports: [{ containerPort: 7474 }],
      startupProbe: { httpGet: { path: "/startupz", port: 7474 }, failureThreshold: 2_147_483_647 },
    });
    expect(agentOf(pod)?.command).toBeUndefined();
  });

  test("tells its agent what it asked for", () => {
    const agent = agentOf(pod);
    expect(variable(agent, "FENCELINE_SERVER")).toBe(settings.server);
    expect(variable(agent, "FENCELINE_RESOURCES")).toBe("orders");
    expect(variable(agent, "FENCELINE_WAIT")).toBe("Block");
    expect(variable(agent, "FENCELINE_ON_LOSS")).toBe("Terminate");
    expect(variable(agent, "FENCELINE_WAIT_TIMEOUT")).toBeUndefined();
    expect(agent?.env?.find(({ name }) => name === "FENCELINE_NAMESPACE")?.valueFrom).toEqual({
      fieldRef: { apiVersion: "v1", fieldPath: "metadata.namespace" },
    });
  });

  test("shares the files with the app, read-only, and the credential with nobody", () => {
    const [app] = pod.spec.containers;
    expect(app?.volumeMounts).toEqual([
      { name: "fenceline", mountPath: "/var/run/fenceline", readOnly: true },
    ]);
    expect(app?.env).toEqual([
      { name: "FENCELINE_DIR", value: "/var/run/fenceline" },
      { name: "FENCELINE_AGENT_URL", value: "http://127.0.0.1:7473" },
    ]);
    expect(pod.spec.volumes?.map(({ name }) => name)).toEqual([
      "fenceline",
      "fenceline-state",
      "fenceline-credential",
    ]);
    expect(pod.spec.volumes?.[2]?.projected).toMatchObject({
      sources: [{ serviceAccountToken: { audience: "fenceline" } }, { configMap: { name: "fenceline-ca" } }],
    });
  });

  test("is stopped when its right is lost, and tells when it starts", () => {
    const [app] = pod.spec.containers;
    expect(app?.livenessProbe).toMatchObject({
      httpGet: { path: "/livez", port: 7474 },
      periodSeconds: 1,
      failureThreshold: 3,
    });
    expect(app?.lifecycle?.postStart).toEqual({
      httpGet: { path: "/started/app", port: 7474, scheme: "HTTP" },
    });
    expect(warnings).toEqual([]);
  });

  test("injected again, it stays as it is", () => {
    expect(inject(pod, settings)).toEqual({ outcome: "patch", patch: [], warnings: [] });
  });

  test("has an agent that Pod Security restricted lets in, whatever the pod's own user is", () => {
    const root = injected(optedIn({}, { securityContext: { runAsUser: 0 } })).pod;
    expect(agentOf(root)?.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      privileged: false,
      readOnlyRootFilesystem: true,
      runAsGroup: 65_532,
      runAsNonRoot: true,
      runAsUser: 65_532,
      seccompProfile: { type: "RuntimeDefault" },
    });
  });
});

test.each<[string, unknown]>([
  ["without the label", { ...optedIn(), metadata: {} }],
  ["with another value", { ...optedIn(), metadata: { labels: { "fenceline.dev/inject": "false" } } }],
  ["that is none", 42],
  ["that is nothing", null],
])("a pod %s is left alone", (_, pod) => {
  expect(inject(pod, settings)).toEqual({ outcome: "nothing" });
});

describe("annotations", () => {
  test("resources: sorted, each once", () => {
    const { pod } = injected(optedIn({ resources: "b, a,b" }));
    expect(variable(agentOf(pod), "FENCELINE_RESOURCES")).toBe("a,b");
  });

  test("on-loss: Report leaves the app's probes alone", () => {
    const [app] = injected(optedIn({ "on-loss": "Report" })).pod.spec.containers;
    expect(app?.livenessProbe).toBeUndefined();
    expect(app?.lifecycle?.postStart).toBeDefined();
  });

  test.each<[Record<string, string>, string[]]>([
    [{ wait: "Block" }, ["fenceline-agent"]],
    [{ wait: "Start" }, ["fenceline-agent"]],
    [{ wait: "Fail" }, ["fenceline-agent", "fenceline-gate"]],
    [{ "wait-timeout": "60" }, ["fenceline-agent", "fenceline-gate"]],
  ])("%o: init containers %j", (notes, names) => {
    const { pod } = injected(optedIn(notes));
    expect(pod.spec.initContainers?.map(({ name }) => name)).toEqual(names);
    expect(inject(pod, settings)).toMatchObject({ patch: [] });
  });

  test("wait-timeout reaches the agent, and the gate is an ordinary init container", () => {
    const { pod } = injected(optedIn({ "wait-timeout": "60" }));
    expect(variable(agentOf(pod), "FENCELINE_WAIT_TIMEOUT")).toBe("60");
    expect(pod.spec.initContainers?.[1]).toMatchObject({ args: ["agent", "gate"] });
    expect(pod.spec.initContainers?.[1]?.restartPolicy).toBeUndefined();
  });

  test("containers: only the named ones are told", () => {
    const spec = { containers: [plain, { name: "proxy", image: "proxy:1" }] };
    const { pod } = injected(optedIn({ containers: "app" }, spec));
    expect(pod.spec.containers[0]?.volumeMounts).toHaveLength(1);
    expect(pod.spec.containers[1]).toEqual(spec.containers[1]);
  });

  test("agent-cpu and agent-memory", () => {
    const { pod } = injected(optedIn({ "agent-cpu": "0.1", "agent-memory": "128Mi" }));
    expect(agentOf(pod)?.resources).toEqual({
      requests: { cpu: "100m", memory: "128Mi" },
      limits: { cpu: "500m", memory: "128Mi" },
    });
  });

  test("a pod with limits equal to its requests keeps its class of service", () => {
    const resources = { limits: { cpu: "1", memory: "1Gi" }, requests: { cpu: "1", memory: "1Gi" } };
    const { pod } = injected(optedIn({}, { containers: [{ ...plain, resources }] }));
    expect(agentOf(pod)?.resources).toEqual({
      requests: { cpu: "20m", memory: "96Mi" },
      limits: { cpu: "20m", memory: "96Mi" },
    });
  });

  test.each<[Record<string, string>, string]>([
    [{ resources: "" }, "fenceline.dev/resources: 0 resources: give 1 to 8 names, comma-separated"],
    [{ resources: "a,b,c,d,e,f,g,h,i" }, "9 resources: give 1 to 8 names"],
    [{ resources: "Orders" }, "Orders is no name of a resource"],
    [{ "on-loss": "Ignore" }, "fenceline.dev/on-loss is Ignore: give Terminate or Report"],
    [{ wait: "Skip" }, "fenceline.dev/wait is Skip: give Block or Fail or Start"],
    [{ "wait-timeout": "0" }, "give whole seconds from 1 to 604800"],
    [{ "wait-timeout": "1m" }, "give whole seconds from 1 to 604800"],
    [{ "wait-timeout": "604801" }, "give whole seconds from 1 to 604800"],
    [{ "wait-timeout": "9", wait: "Start" }, "goes with fenceline.dev/wait: Block, and this pod has Start"],
    [{ containers: " , " }, "fenceline.dev/containers names no container"],
    [{ containers: "apps" }, "names apps, and the pod has no such container"],
    [{ "agent-cpu": "2" }, "fenceline.dev/agent-cpu is 2: give 10m to 1000m"],
    [{ "agent-memory": "1Gi" }, "fenceline.dev/agent-memory is 1Gi: give 48Mi to 512Mi"],
    [{ "on-los": "Report" }, "there is no annotation fenceline.dev/on-los"],
  ])("%o is refused", (notes, message) => {
    expect(refusal(optedIn(notes))).toContain(message);
  });

  test("a pod that names no resource is told to", () => {
    const pod = optedIn();
    expect(refusal({ ...pod, metadata: { ...pod.metadata, annotations: {} } })).toContain(
      "the annotation fenceline.dev/resources is missing: name the FencedResources",
    );
  });
});

describe("what cannot work is refused", () => {
  const volume = { name: "mine", emptyDir: {} };
  const mounts = (mountPath: string, name = "mine") => ({
    volumes: [volume],
    containers: [{ ...plain, volumeMounts: [{ name, mountPath }] }],
  });
  test.each<[string, Partial<TestPod["spec"]>, string]>([
    ["host network", { hostNetwork: true }, "remove hostNetwork"],
    ["Windows", { os: { name: "windows" } }, "this pod on Windows"],
    ["Windows nodes", { nodeSelector: { "kubernetes.io/os": "windows" } }, "this pod on Windows"],
    ["the agent's name", { containers: [{ name: "fenceline-agent" }] }, "the name fenceline-agent is taken"],
    [
      "the agent's volume",
      { volumes: [{ name: "fenceline", emptyDir: {} }] },
      "has a volume fenceline of its own",
    ],
    ["port 7473", { containers: [{ ...plain, ports: [{ containerPort: 7473 }] }] }, "uses port 7473"],
    [
      "port 7474 of an init container",
      { initContainers: [{ name: "first", ports: [{ containerPort: 7474 }] }] },
      "container first uses port 7474",
    ],
    ["the agent's folder", mounts("/var/run/fenceline"), "mounts a volume at /var/run/fenceline"],
    ["by its other path", mounts("/run/fenceline/orders/"), "mounts a volume at /var/run/fenceline"],
    [
      "the agent's credential",
      mounts("/steal", "fenceline-credential"),
      "which is the agent's: remove the mount",
    ],
    [
      "the files, writable",
      mounts("/var/run/fenceline", "fenceline"),
      "which is the agent's: remove the mount",
    ],
    ["no container", { containers: [] }, "the pod cannot be read: spec.containers"],
  ])("%s", (_, spec, message) => {
    expect(refusal(optedIn({}, spec))).toContain(message);
  });

  test("a folder beside the agent's is the pod's own", () => {
    expect(inject(optedIn({}, mounts("/var/run/fenceline-data")), settings).outcome).toBe("patch");
  });

  test("the resources that were asked for are told with it", () => {
    expect(inject(optedIn({ resources: "a, b" }, { hostNetwork: true }), settings)).toMatchObject({
      resources: ["a", "b"],
    });
  });
});

describe("what stays the app's own", () => {
  test("a livenessProbe, with a warning", () => {
    const livenessProbe = { exec: { command: ["true"] } };
    const { pod, warnings } = injected(optedIn({}, { containers: [{ ...plain, livenessProbe }] }));
    expect(pod.spec.containers[0]?.livenessProbe).toEqual(livenessProbe);
    expect(warnings).toEqual([
      "container app has a livenessProbe of its own and keeps it: a loss is only reported to it, so it must watch its state",
    ]);
  });

  test("a postStart, with a warning; a preStop, without", () => {
    const postStart = { exec: { command: ["true"] } };
    const preStop = { sleep: { seconds: 1 } };
    const own = injected(optedIn({}, { containers: [{ ...plain, lifecycle: { postStart, preStop } }] }));
    expect(own.pod.spec.containers[0]?.lifecycle).toEqual({ postStart, preStop });
    expect(own.warnings).toEqual([expect.stringContaining("container app has a postStart of its own")]);
    const added = injected(optedIn({}, { containers: [{ ...plain, lifecycle: { preStop } }] }));
    expect(added.pod.spec.containers[0]?.lifecycle).toMatchObject({ preStop, postStart: { httpGet: {} } });
    expect(added.warnings).toEqual([]);
  });

  test.each([
    ["OnFailure", undefined, 1],
    ["Always", undefined, 1],
    ["Always", "Never", 0],
    ["Never", undefined, 0],
    ["Never", "OnFailure", 1],
  ])("restartPolicy %s, the container's %s: %i warning", (restartPolicy, own, count) => {
    const containers = [{ ...plain, ...(own === undefined ? {} : { restartPolicy: own }) }];
    const { warnings } = injected(optedIn({}, { restartPolicy, containers }));
    expect(warnings.filter((text) => text.includes("restarted in place"))).toHaveLength(count);
  });

  test("variables of ours that the app had are set right", () => {
    const env = [
      { name: "FENCELINE_DIR", value: "/elsewhere" },
      { name: "MINE", value: "1" },
    ];
    const { pod } = injected(optedIn({}, { containers: [{ ...plain, env }] }));
    expect(pod.spec.containers[0]?.env).toEqual([
      { name: "MINE", value: "1" },
      { name: "FENCELINE_DIR", value: "/var/run/fenceline" },
      { name: "FENCELINE_AGENT_URL", value: "http://127.0.0.1:7473" },
    ]);
  });
});

describe("other injectors", () => {
  /** What a service mesh does: a sidecar of its own first, and a container of the app's. */
  const mesh = (pod: TestPod): TestPod => ({
    ...pod,
    spec: {
      ...pod.spec,
      initContainers: [{ name: "mesh", restartPolicy: "Always" }, ...(pod.spec.initContainers ?? [])],
      volumes: [...(pod.spec.volumes ?? []), { name: "mesh", emptyDir: {} }],
    },
  });

  test("before ours and after ours come to the same", () => {
    const before = injected(mesh(optedIn())).pod;
    const after = injected(mesh(injected(optedIn()).pod)).pod;
    for (const pod of [before, after])
      expect(pod.spec.initContainers?.map(({ name }) => name)).toEqual(["fenceline-agent", "mesh"]);
    expect(inject(after, settings)).toMatchObject({ patch: [] });
  });

  test("a container added later is told too", () => {
    const first = injected(optedIn()).pod;
    const more = {
      ...first,
      spec: { ...first.spec, containers: [...first.spec.containers, { name: "late" }] },
    };
    expect(injected(more).pod.spec.containers[1]?.volumeMounts).toHaveLength(1);
  });

  test("an agent that was changed, or that the pod brought along, is made ours", () => {
    const { pod } = injected(optedIn());
    const foreign = { name: "fenceline-agent", image: "evil", command: ["sh"] };
    for (const initContainers of [[foreign], [{ name: "first" }, foreign]]) {
      const again = injected(optedIn({}, { initContainers })).pod;
      expect(agentOf(again)).toEqual(agentOf(pod));
      expect(again.spec.initContainers).toHaveLength(initContainers.length);
    }
  });
});
