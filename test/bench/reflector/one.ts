/**
 * One cache in a process of its own: `node --expose-gc one.ts ours|peer leases|pods URL`. Prints a line of JSON.
 * Memory is what is there after a collection, before and after the first whole list.
 */
import { CoordinationV1Api, CoreV1Api, KubeConfig, makeInformer } from "@kubernetes/client-node";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { leaseKind, podKind } from "../../../src/kube/kinds.ts";
import { makeReflector } from "../../../src/kube/reflector.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import type { Kind, KubeObject } from "../../../src/kube/types.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";

const [who, kind, url = ""] = process.argv.slice(2);
const path = kind === "pods" ? "/api/v1/pods" : "/apis/coordination.k8s.io/v1/leases";

const config = join(tmpdir(), `bench-${process.pid}`);
writeFileSync(
  config,
  JSON.stringify({
    "current-context": "bench",
    contexts: [{ name: "bench", context: { cluster: "bench", user: "bench" } }],
    clusters: [{ name: "bench", cluster: { server: url, "insecure-skip-tls-verify": true } }],
    users: [{ name: "bench", user: {} }],
  }),
);

const ours = async <T extends KubeObject>(kind: Kind<T>): Promise<() => number> => {
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path: config }, systemClock),
    clock: systemClock,
  });
  const reflector = makeReflector({
    transport,
    kind,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
  });
  void reflector.start(new AbortController().signal);
  await reflector.synced();
  return () => reflector.list().length;
};

const peer = async (): Promise<() => number> => {
  const kube = new KubeConfig();
  kube.loadFromFile(config);
  const informer =
    kind === "pods"
      ? makeInformer(kube, path, () => kube.makeApiClient(CoreV1Api).listPodForAllNamespaces())
      : makeInformer(kube, path, () => kube.makeApiClient(CoordinationV1Api).listLeaseForAllNamespaces());
  await informer.start();
  return () => informer.list().length;
};

const settled = async () => {
  for (let i = 0; i < 5; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    globalThis.gc?.();
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap: heapUsed, external, rss };
};

const before = await settled();
const start = performance.now();
const size = who === "peer" ? await peer() : await (kind === "pods" ? ours(podKind) : ours(leaseKind));
const seconds = (performance.now() - start) / 1000;
const peakRss = process.resourceUsage().maxRSS * 1024;
const after = await settled();
console.log(
  JSON.stringify({
    objects: size(),
    seconds,
    heap: after.heap - before.heap,
    total: after.heap,
    peakRss,
  }),
);
process.exit();
