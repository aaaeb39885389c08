/** Certificates that the controller keeps itself, with its own rights, while pods are made all the time. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { imageRepository, injectPath, webhookName } from "../../../src/api/injection.ts";
import { systemNamespace, systemService } from "../../../src/api/names.ts";
import { injectionWebhook } from "../../../src/api/webhook.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { KubeError } from "../../../src/kube/errors.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import { systemClock } from "../../../src/runtime/clock.ts";
import { splitBundle } from "../../../src/runtime/x509.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { type Controller, install, startController } from "../../support/fenceline/install.ts";
import { scoped } from "../../support/fenceline/webhook.ts";
import { optedIn, type TestPod } from "../../support/pods.ts";
import { refusal, resource } from "../crds/support.ts";

// The names that the roles give rights on are there once only: a cluster of our own.
let lab: Lab;
let ns: string;
let replicas: Controller[] = [];
const secret = "fenceline-tls";

beforeAll(async () => {
  lab = await startApi();
  await install(lab);
  ns = await lab.namespace("shop");
  const config = {
    certificate: {
      secret,
      managed: { names: ["127.0.0.1", "localhost"], servingSeconds: 8, authoritySeconds: 12 },
    },
    injection: { image: `${imageRepository}:test`, server: "https://127.0.0.1:8443" },
  };
  replicas = await Promise.all(["a", "b"].map((replica) => startController(lab, { replica, config })));
});
afterAll(async () => {
  await Promise.all(replicas.map((replica) => replica.kill()));
  await lab?.[Symbol.asyncDispose]();
});

const bundle = async (): Promise<string> => {
  const found = JSON.parse(await lab.kubectl(["get", "secret", secret, "-n", systemNamespace, "-o", "json"]));
  return Buffer.from(found.data["ca.crt"], "base64").toString();
};
const inNamespace = async (namespace: string): Promise<string> =>
  lab
    .kubectl(["get", "cm", "fenceline-ca", "-n", namespace, "-o", String.raw`jsonpath={.data.ca\.crt}`])
    .catch(() => "");

test("decision 10: the authorities are told to a namespace as soon as it has a FencedResource", async () => {
  expect(await inNamespace(ns)).toBe("");
  await lab.apply(resource(ns, "orders"));
  await expect.poll(() => inNamespace(ns), { timeout: 20_000 }).toContain("BEGIN CERTIFICATE");
  const free = await lab.namespace("free");
  expect(await inNamespace(free)).toBe("");
});

test("1,000 pods and more are made across a rotation of authority and certificate, and none is refused", async () => {
  const [{ server } = { server: "" }] = replicas;
  const url = `${server}${injectPath}`;
  const template = injectionWebhook({ systemNamespace, service: systemService });
  await lab.apply(scoped(template, webhookName, [ns], { url }));
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path: lab.kubeconfig, context: lab.context }, systemClock),
    clock: systemClock,
  });
  const client = makeKubeClient(transport);
  const make = async (): Promise<string | undefined> => {
    try {
      const pod = await client.post(`/api/v1/namespaces/${ns}/pods?dryRun=All`, optedIn());
      return (pod as TestPod).spec.initContainers?.[0]?.name;
    } catch (error) {
      if (error instanceof KubeError) return error.message;
      throw error;
    }
  };
  await expect.poll(make, { timeout: 20_000 }).toBe("fenceline-agent");
  const [before = ""] = splitBundle(await bundle());
  const seen = new Set<string>();
  let made = 0;
  let trusted = before;
  const results = new Map<string | undefined, number>();
  // Until the authority of the beginning is trusted no longer: announced, promoted and retired.
  while (made < 1_000 || trusted.includes(before)) {
    const batch = await Promise.all(Array.from({ length: 10 }, make));
    for (const each of batch) results.set(each, (results.get(each) ?? 0) + 1);
    made += batch.length;
    if (made % 50 === 0) {
      trusted = await bundle();
      for (const each of splitBundle(trusted)) seen.add(each);
    }
  }
  await transport.close();
  console.log(`${made} pods across ${seen.size} authorities`);
  expect(Object.fromEntries(results)).toEqual({ "fenceline-agent": made });
  expect(seen.size).toBeGreaterThanOrEqual(2);
  // Pods that run learn of it by their ConfigMap.
  await expect
    .poll(async () => splitBundle(await inNamespace(ns)).includes(before), { timeout: 20_000 })
    .toBe(false);
}, 120_000);

test("FM-26 the webhook is down: labelled pods are refused in plain words, all others are made", async () => {
  await Promise.all(replicas.map((replica) => replica.kill()));
  const create = (pod: object, ...args: string[]) =>
    lab.kubectl(["create", "-n", ns, "-f", "-", "--dry-run=server", ...args], { input: JSON.stringify(pod) });
  expect(await refusal(create(optedIn()))).toContain(`failed calling webhook "${webhookName}"`);
  const plain = { ...optedIn(), metadata: { name: "plain" } };
  await create(plain);
  for (const namespace of [systemNamespace, "kube-system"]) {
    const own = { ...plain, metadata: { name: "own" }, spec: strict };
    await lab.kubectl(["create", "-n", namespace, "-f", "-", "--dry-run=server"], {
      input: JSON.stringify(own),
    });
  }
  // Set to be ignored: the policy refuses what would run unguarded. Without the policy too, it is made.
  const patch = JSON.stringify([{ op: "replace", path: "/webhooks/0/failurePolicy", value: "Ignore" }]);
  await lab.kubectl(["patch", "mutatingwebhookconfiguration", webhookName, "--type=json", "-p", patch]);
  await expect
    .poll(() => refusal(create(optedIn())), { timeout: 20_000 })
    .toContain("got no agent: the webhook inject.fenceline.dev is not there, is ignored");
  await lab.kubectl(["delete", "validatingadmissionpolicybinding", "pods.fenceline.dev"]);
  await expect
    .poll(
      () =>
        create(optedIn()).then(
          () => "made",
          () => "refused",
        ),
      { timeout: 20_000 },
    )
    .toBe("made");
});

const strict = {
  securityContext: { runAsUser: 1000, runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  containers: [
    {
      name: "app",
      image: "app:1",
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
    },
  ],
};
