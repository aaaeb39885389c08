/** Injection as the API server does it: defaults, other webhooks, admission by Pod Security, controllers' pods. */
import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { imageRepository } from "../../../src/api/injection.ts";
import { inject } from "../../../src/webhook/inject.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { registerWebhook, startWebhook, type Webhook } from "../../support/fenceline/webhook.ts";
import { optedIn, settings as base, type TestPod } from "../../support/pods.ts";
import { kubectlWith, refusal } from "../crds/support.ts";
import { enforced } from "../policies/support.ts";

const cluster = sharedCluster();
const settings = { ...base, image: `${imageRepository}:test` };
let webhook: Webhook;
let ns: string;
let restricted: string;
const registered: string[] = [];

beforeAll(async () => {
  await enforced(cluster);
  webhook = await startWebhook(settings);
  ns = await cluster.namespace("shop");
  restricted = await cluster.namespace("strict");
  await cluster.kubectl(["label", "ns", restricted, "pod-security.kubernetes.io/enforce=restricted"]);
  registered.push(await registerWebhook(cluster, [ns, restricted], webhook));
  await vi.waitFor(() => create(optedIn(), ["--dry-run=server"]), { timeout: 20_000, interval: 100 });
});
afterAll(async () => {
  for (const name of registered) await cluster.kubectl(["delete", "mutatingwebhookconfiguration", name]);
  await webhook?.[Symbol.asyncDispose]();
});

const create = async (pod: TestPod, args: readonly string[] = [], namespace = ns): Promise<TestPod> =>
  JSON.parse(await kubectlWith(cluster, ["create", "-n", namespace, "-o", "json", "-f", "-", ...args], pod));

const named = (pod: TestPod, name: string): TestPod => ({ ...pod, metadata: { ...pod.metadata, name } });

const strict: Partial<TestPod["spec"]> = {
  securityContext: { runAsUser: 1000, runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  containers: [
    {
      name: "app",
      image: "app:1",
      securityContext: {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      },
    },
  ],
};

describe("a pod", () => {
  test.each<[string, Record<string, string>, Partial<TestPod["spec"]>]>([
    ["plain", {}, {}],
    ["wait-fail", { wait: "Fail", resources: "a,b" }, {}],
    ["no-token", {}, { automountServiceAccountToken: false }],
    ["root", {}, { securityContext: { runAsUser: 0 } }],
    [
      "inits",
      {},
      {
        initContainers: [
          { name: "one", image: "i:1" },
          { name: "two", image: "i:1", restartPolicy: "Always" },
        ],
      },
    ],
    [
      "guaranteed",
      {},
      { containers: [{ name: "app", image: "app:1", resources: { limits: { cpu: "1", memory: "1Gi" } } }] },
    ],
  ])("%s: what is stored is what was injected, defaults and all", async (name, notes, spec) => {
    const stored = await create(named(optedIn(notes, spec), name));
    expect(stored.spec.initContainers?.[0]?.name).toBe("fenceline-agent");
    expect(inject(stored, settings)).toEqual({ outcome: "patch", patch: [], warnings: [] });
  });

  test("has an agent without the service account's own token", async () => {
    const stored = await create(named(optedIn(), "token"));
    const tokens = (mounts: { name: string }[] = []) =>
      mounts.filter((mount) => mount.name.startsWith("kube-api-access"));
    expect(tokens(stored.spec.containers[0]?.volumeMounts)).toHaveLength(1);
    expect(tokens(stored.spec.initContainers?.[0]?.volumeMounts)).toEqual([]);
  });

  test("is let in where Pod Security is restricted", async () => {
    const stored = await create(named(optedIn({ "wait-timeout": "60" }, strict), "strict"), [], restricted);
    expect(stored.spec.initContainers).toHaveLength(2);
  });

  test("takes ephemeral containers without being asked again", async () => {
    const { metadata } = await create(named(optedIn(), "debugged"));
    const path = `/api/v1/namespaces/${ns}/pods/${metadata.name}`;
    const stored = JSON.parse(await cluster.kubectl(["get", "--raw", path]));
    stored.spec.ephemeralContainers = [
      { name: "debug", image: "debug:1", targetContainerName: "app", terminationMessagePolicy: "File" },
    ];
    await cluster.kubectl(["replace", "--raw", `${path}/ephemeralcontainers`, "-f", "-"], {
      input: JSON.stringify(stored),
    });
    const after = JSON.parse(await cluster.kubectl(["get", "--raw", path]));
    expect(after.spec.ephemeralContainers).toMatchObject([{ name: "debug" }]);
    expect(after.spec.ephemeralContainers[0].volumeMounts).toBeUndefined();
  });

  test("that cannot be injected is refused with the reason, and it is told", async () => {
    const hosted = named(optedIn({}, { hostNetwork: true }), "host");
    const said = await refusal(kubectlWith(cluster, ["create", "-n", ns, "-f", "-"], hosted));
    expect(said).toContain("fenceline: the pod uses the host's network");
    expect(webhook.refused).toContainEqual(expect.objectContaining({ namespace: ns, resources: ["orders"] }));
  });

  test("of a person comes with its warnings", async () => {
    const pod = named(optedIn({}, { restartPolicy: "OnFailure" }), "warned");
    const said = await refusal(
      kubectlWith(cluster, ["create", "-n", ns, "-f", "-", "--dry-run=server", "--warnings-as-errors"], pod),
    );
    expect(said).toContain("restarted in place");
  });

  test("that does not ask is not touched", async () => {
    const plain = optedIn();
    const stored = await create({ ...plain, metadata: { name: "free" } });
    expect(stored.spec.initContainers).toBeUndefined();
  });
});

describe("pods of controllers", () => {
  const template = () => {
    const { metadata, spec } = optedIn();
    return {
      metadata: { ...metadata, labels: { ...metadata.labels, app: "w" }, name: undefined },
      spec: { ...spec, restartPolicy: "Always" },
    };
  };
  const selector = { matchLabels: { app: "w" } };
  const job = { template: { ...template(), spec: { ...template().spec, restartPolicy: "Never" } } };
  test.each([
    ["batch/v1", "Job", job],
    ["batch/v1", "CronJob", { schedule: "* * * * *", jobTemplate: { spec: job } }],
    ["apps/v1", "Deployment", { selector, template: template() }],
    ["apps/v1", "StatefulSet", { selector, template: template(), serviceName: "w" }],
  ])("%s %s", async (apiVersion, kind, spec) => {
    const name = `w-${kind.toLowerCase()}`;
    await kubectlWith(cluster, ["create", "-n", ns, "-f", "-"], {
      apiVersion,
      kind,
      metadata: { name },
      spec,
    });
    if (kind === "CronJob")
      await cluster.kubectl(["create", "job", `${name}-now`, `--from=cronjob/${name}`, "-n", ns]);
    await expect
      .poll(
        async () => {
          const { items } = JSON.parse(await cluster.kubectl(["get", "pods", "-n", ns, "-o", "json"]));
          return items.find((pod: TestPod) => pod.metadata.name?.startsWith(name))?.spec.initContainers?.[0]
            .name;
        },
        { timeout: 30_000, interval: 200 },
      )
      .toBe("fenceline-agent");
    await cluster.kubectl(["delete", kind, name, "-n", ns, "--wait=false"]);
  });
});

describe("other webhooks", () => {
  /** What a service mesh does: a sidecar before every other, and one more container beside the app. */
  const startMesh = async (): Promise<Webhook> => {
    const { cert, key } = makeCertificate({ commonName: "mesh", names: ["127.0.0.1"] });
    const server = createServer({ cert, key }, (request, response) => {
      const parts: Buffer[] = [];
      request.on("data", (part: Buffer) => parts.push(part));
      request.on("end", () => {
        const { request: asked } = JSON.parse(Buffer.concat(parts).toString());
        const { initContainers } = asked.object.spec;
        const mesh = { name: "mesh", image: "mesh:1" };
        const first = { ...mesh, restartPolicy: "Always" };
        const patch = [
          initContainers === undefined
            ? { op: "add", path: "/spec/initContainers", value: [first] }
            : { op: "add", path: "/spec/initContainers/0", value: first },
          { op: "add", path: "/spec/containers/-", value: { ...mesh, name: "proxy" } },
        ];
        const answer = {
          uid: asked.uid,
          allowed: true,
          patchType: "JSONPatch",
          patch: Buffer.from(JSON.stringify(patch)).toString("base64"),
        };
        response.setHeader("content-type", "application/json");
        response.end(
          JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response: answer }),
        );
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return {
      url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/mesh`,
      caBundle: Buffer.from(cert).toString("base64"),
      refused: [],
      [Symbol.asyncDispose]: async () => {
        server.closeAllConnections();
        server.close();
      },
    };
  };

  test.each(["a", "z"])(
    "that are asked in the order of %s-mesh and inject: the agent is first, the mesh is whole",
    async (order) => {
      await using mesh = await startMesh();
      const namespace = await cluster.namespace("mesh");
      const names = [
        await registerWebhook(cluster, [namespace], webhook),
        await registerWebhook(cluster, [namespace], mesh, {
          prefix: `${order}-mesh`,
          reinvocationPolicy: "Never",
        }),
      ];
      try {
        await vi.waitFor(
          async () => {
            const { spec } = await create(optedIn(), ["--dry-run=server"], namespace);
            expect(spec.initContainers?.map(({ name }) => name)).toEqual(["fenceline-agent", "mesh"]);
            expect(spec.containers.map(({ name }) => name)).toEqual(["app", "proxy"]);
            for (const { volumeMounts } of spec.containers)
              expect(volumeMounts?.some(({ mountPath }) => mountPath === "/var/run/fenceline")).toBe(true);
          },
          { timeout: 20_000, interval: 200 },
        );
      } finally {
        for (const name of names) await cluster.kubectl(["delete", "mutatingwebhookconfiguration", name]);
      }
    },
  );
});
