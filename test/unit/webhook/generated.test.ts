/** Pods and reviews that nobody would write, by the thousands. */
import { strict as assert } from "node:assert";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import * as fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { injectPath } from "../../../src/api/injection.ts";
import { makeMetrics } from "../../../src/runtime/metrics.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { makeApiServer } from "../../../src/runtime/httpserver.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { inject } from "../../../src/webhook/inject.ts";
import { addInjection } from "../../../src/webhook/route.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { patched } from "../../support/jsonpatch.ts";
import { optedIn, review, settings, type TestContainer, type TestPod } from "../../support/pods.ts";

const some = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
/** Leaves out what is undefined, as JSON does. */
const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value));

// Few and plain, because what is drawn costs more than what is tested; odd texts are the hostile reviews' part.
const name = fc.constantFrom(..."abcdefghijkl".split("").map((letter) => `${letter}-1`));
const text = fc.constantFrom("", "a", "PATH", "$(A)", "/x", "ü", "0", "FENCELINE_DIR");

const security = fc.record(
  {
    runAsUser: fc.nat(70_000),
    runAsNonRoot: fc.boolean(),
    readOnlyRootFilesystem: fc.boolean(),
    privileged: fc.boolean(),
    capabilities: fc.constant({ drop: ["ALL"] }),
  },
  { requiredKeys: [] },
);
const quantities = fc.record({ cpu: fc.constantFrom("1", "100m"), memory: fc.constant("1Gi") });

const container = (names: fc.Arbitrary<string>, volumes: readonly string[]): fc.Arbitrary<TestContainer> =>
  fc.record({
    name: names,
    image: text,
    env: some(
      fc.array(
        fc.oneof(
          fc.record({
            name: fc.oneof(text, fc.constantFrom("FENCELINE_DIR", "FENCELINE_AGENT_URL")),
            value: text,
          }),
          fc.record({ name: text, valueFrom: fc.constant({ fieldRef: { fieldPath: "metadata.name" } }) }),
        ),
        { maxLength: 4 },
      ),
    ),
    volumeMounts: some(
      volumes.length === 0
        ? fc.constant([])
        : fc.array(
            fc.record({
              name: fc.constantFrom(...volumes),
              mountPath: text.map((path) => `/data/${path}`),
            }),
            { maxLength: 3 },
          ),
    ),
    ports: some(fc.array(fc.record({ containerPort: fc.integer({ min: 1, max: 7000 }) }), { maxLength: 2 })),
    livenessProbe: some(fc.constant({ exec: { command: ["true"] } })),
    lifecycle: some(fc.record({ preStop: fc.constant({ sleep: { seconds: 1 } }) })),
    resources: some(fc.record({ limits: quantities, requests: quantities }, { requiredKeys: [] })),
    securityContext: some(security),
    restartPolicy: some(fc.constantFrom("Never", "Always")),
  }) as fc.Arbitrary<TestContainer>;

const notes = fc.record(
  {
    resources: fc.array(name, { minLength: 1, maxLength: 8 }).map((names) => names.join(",")),
    "on-loss": fc.constantFrom("Terminate", "Report"),
    "agent-cpu": fc.integer({ min: 10, max: 1000 }).map((milli) => `${milli}m`),
    "agent-memory": fc.integer({ min: 48, max: 512 }).map((mega) => `${mega}Mi`),
  },
  { requiredKeys: ["resources"] },
);
const waiting = fc.oneof(
  fc.constantFrom<Record<string, string>[]>({}, { wait: "Start" }, { wait: "Fail" }, { wait: "Block" }),
  fc
    .integer({ min: 1, max: 604_800 })
    .map((seconds): Record<string, string> => ({ "wait-timeout": String(seconds) })),
);

const pods: fc.Arbitrary<TestPod> = fc
  .uniqueArray(name, { maxLength: 3 })
  .chain((volumes) =>
    fc.tuple(
      notes,
      waiting,
      fc.record({
        volumes: some(fc.constant(volumes.map((each) => ({ name: each, emptyDir: {} })))),
        containers: fc.uniqueArray(container(name, volumes), {
          minLength: 1,
          maxLength: 4,
          selector: (each) => each.name,
        }),
        initContainers: some(fc.array(container(name, volumes), { maxLength: 3 })),
        restartPolicy: fc.constantFrom("Never", "OnFailure", "Always"),
        securityContext: some(security),
        automountServiceAccountToken: some(fc.boolean()),
      }),
    ),
  )
  .map(([asked, wait, spec]) => plain(optedIn({ ...asked, ...wait }, spec as Partial<TestPod["spec"]>)));

const ours = new Set(["fenceline", "fenceline-state", "fenceline-credential"]);
const variables = new Set(["FENCELINE_DIR", "FENCELINE_AGENT_URL"]);

/** A container without what injection may add to it. */
const bare = ({ env, volumeMounts, livenessProbe, lifecycle, ...rest }: TestContainer) => ({
  ...rest,
  env: (env ?? []).filter((each) => !variables.has(each.name)),
  volumeMounts: (volumeMounts ?? []).filter((each) => !ours.has(each.name)),
  livenessProbe: JSON.stringify(livenessProbe ?? 0).includes('"port":7474') ? undefined : livenessProbe,
  preStop: lifecycle?.preStop,
});

test("10,000 pods: injected once they hold our sidecar and all that they had; twice changes nothing", {
  timeout: 120_000,
}, () => {
  fc.assert(
    fc.property(pods, (pod) => {
      const first = inject(pod, settings);
      if (first.outcome !== "patch") throw new Error(JSON.stringify(first));
      const after = patched(pod, first.patch);
      assert.equal(after.spec.initContainers?.[0]?.name, "fenceline-agent");
      assert.deepEqual(after.spec.containers.map(bare), pod.spec.containers.map(bare));
      const others = after.spec.initContainers?.filter((each) => !each.name.startsWith("fenceline-"));
      assert.deepEqual(others, pod.spec.initContainers ?? []);
      const volumes = after.spec.volumes?.filter((each) => !ours.has(each.name));
      assert.deepEqual(volumes, pod.spec.volumes ?? []);
      const touched = { containers: 0, initContainers: 0, volumes: 0 };
      assert.deepEqual({ ...after.spec, ...touched }, { ...pod.spec, ...touched });
      assert.deepEqual(after.metadata, pod.metadata);
      const mounts = after.spec.containers.flatMap((each) => each.volumeMounts ?? []);
      assert.ok(!mounts.some((mount) => mount.name === "fenceline-credential"));
      assert.deepEqual(inject(after, settings), { outcome: "patch", patch: [], warnings: first.warnings });
    }),
    { numRuns: 10_000 },
  );
});

/** A pod of which one value, anywhere, is something else. */
const broken = fc.tuple(pods, fc.nat(), fc.jsonValue({ maxDepth: 4 })).map(([pod, at, value]) => {
  const spots: { parent: Record<string, unknown>; key: string }[] = [];
  const visit = (parent: Record<string, unknown>): void => {
    for (const key of Object.keys(parent)) {
      spots.push({ parent, key });
      const child = parent[key];
      if (typeof child === "object" && child !== null) visit(child as Record<string, unknown>);
    }
  };
  visit(pod as unknown as Record<string, unknown>);
  const spot = spots[at % spots.length];
  if (spot !== undefined) spot.parent[spot.key] = value;
  return JSON.stringify(review(pod));
});

const nested = fc
  .tuple(
    fc.integer({ min: 1, max: 100_000 }),
    fc.constantFrom<[string, string][]>(["[", "]"], ['{"a":', "}"]),
  )
  .map(([depth, [open, close]]) => {
    const object = `${open.repeat(depth)}0${close.repeat(depth)}`;
    return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":${JSON.stringify(review(0).request).replace('"object":0', `"object":{"metadata":{"labels":{"fenceline.dev/inject":"true"},"annotations":${object}},"spec":${object}}`)}}`;
  });

const many = fc
  .tuple(
    fc.integer({ min: 1, max: 60_000 }),
    fc.constantFrom("containers", "initContainers", "volumes", "env", "labels"),
  )
  .map(([count, where]) => {
    const entries = Array.from({ length: count }, (_, index) => ({ name: `n${index}` }));
    const pod = optedIn();
    if (where === "labels")
      pod.metadata.labels = {
        ...pod.metadata.labels,
        ...Object.fromEntries(entries.map((each) => [each.name, ""])),
      };
    else if (where === "env") pod.spec.containers = [{ name: "app", env: entries }];
    else Object.assign(pod.spec, { [where]: entries });
    return JSON.stringify(review(pod));
  });

const hostile = fc.oneof(
  { weight: 20, arbitrary: broken },
  { weight: 10, arbitrary: fc.jsonValue({ maxDepth: 6 }).map((value) => JSON.stringify(review(value))) },
  { weight: 10, arbitrary: fc.jsonValue({ maxDepth: 6 }).map((value) => JSON.stringify(value)) },
  { weight: 5, arbitrary: fc.string({ unit: "binary", maxLength: 200 }) },
  { weight: 5, arbitrary: fc.tuple(broken, fc.nat()).map(([body, cut]) => body.slice(0, cut % body.length)) },
  { weight: 1, arbitrary: nested },
  { weight: 1, arbitrary: many },
);

describe("hostile reviews", () => {
  const { cert, key } = makeCertificate({ commonName: "webhook" });
  const closers: (() => Promise<void>)[] = [];
  afterAll(async () => {
    for (const close of closers) await close();
  });
  const runs = process.env["FENCELINE_LONG"] === "1" ? 100_000 : 5_000;

  test(`${runs}: each is answered, by a decision or a problem, and none stands in the way of others`, {
    timeout: 600_000,
  }, async () => {
    const metrics = makeMetrics({ perResource: false });
    const app = await makeApiServer({
      clock: systemClock,
      random: systemRandom,
      log: silentLogger,
      certificate: {
        name: "test",
        pollMs: 3_600_000,
        read: async () => ({ cert: Buffer.from(cert), key: Buffer.from(key) }),
      },
    });
    closers.push(() => app.close());
    addInjection(app, { settings, clock: systemClock, duration: metrics.webhookDuration, onRefused() {} });
    let outbound = 0;
    const count = () => (outbound += 1);
    subscribe("net.client.socket", count);
    closers.push(async () => void unsubscribe("net.client.socket", count));
    let longest = 0;
    let answered = 0;
    await fc.assert(
      fc.asyncProperty(hostile, async (payload) => {
        const started = process.cpuUsage();
        const answer = await app.inject({
          method: "POST",
          url: injectPath,
          headers: { "content-type": "application/json" },
          payload,
        });
        longest = Math.max(longest, process.cpuUsage(started).user / 1000);
        answered += 1;
        const { status, response } = answer.json();
        if (answer.statusCode !== 200) assert.ok([400, 413].includes(status));
        else {
          assert.equal(typeof response.allowed, "boolean");
          if (!response.allowed) assert.match(response.status.message, /^fenceline: [^\n]{1,400}$/);
        }
      }),
      { numRuns: runs },
    );
    expect(answered).toBe(runs);
    expect(outbound, "connections opened while answering").toBe(0);
    console.log(`${runs} hostile reviews: the longest took ${longest.toFixed(1)} ms of processor time`);
  });
});
