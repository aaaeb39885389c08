/** Objects as an API server sends them, 1.6 KB each, managed fields and all. */

export const objectCount = 10_000;
const size = 1_600;

const hash = (n: number) => ((n * 2_654_435_761) >>> 0).toString(16).padStart(8, "0");
const uid = (n: number) => `${hash(n)}-1111-4222-8333-${hash(n + 7)}0000`;
const time = "2026-05-01T12:00:00Z";

const managed = (manager: string, fields: string[], filler: number) => ({
  manager,
  operation: "Update",
  apiVersion: "v1",
  time,
  fieldsType: "FieldsV1",
  fieldsV1: {
    "f:metadata": { "f:annotations": Object.fromEntries(fields.map((field) => [`f:${field}`, {}])) },
    "f:spec": { [`f:${"x".repeat(filler)}`]: {} },
  },
});

type Shape = (n: number, filler: number) => object;

const lease: Shape = (n, filler) => ({
  metadata: {
    name: `fenceline-orders-${n}`,
    namespace: `shop-${n % 50}`,
    uid: uid(n),
    resourceVersion: String(1_000_000 + n),
    creationTimestamp: time,
    labels: { "fenceline.dev/resource": `orders-${n}` },
    annotations: {
      "fenceline.dev/token": String(42 + n),
      "fenceline.dev/token-ceiling": String(64 + n),
      "fenceline.dev/credit-uid": uid(n),
      "fenceline.dev/format": "1",
    },
    managedFields: [
      managed("fenceline", ["token", "token-ceiling", "credit-uid", "ended", "format"], filler),
    ],
  },
  spec: {
    holderIdentity: `pod:${uid(n + 1)}/${uid(n + 2)}`,
    leaseDurationSeconds: 15,
    acquireTime: "2026-05-01T12:00:00.123456Z",
    renewTime: "2026-05-01T12:00:05.123456Z",
    leaseTransitions: 7,
  },
});

const pod: Shape = (n, filler) => ({
  metadata: {
    name: `worker-${n}`,
    namespace: `shop-${n % 50}`,
    uid: uid(n),
    resourceVersion: String(1_000_000 + n),
    creationTimestamp: time,
    labels: { "fenceline.dev/inject": "true" },
    managedFields: [managed("kubelet", ["resources"], filler)],
  },
  spec: {
    nodeName: `node-${n % 9}`,
    restartPolicy: "Never",
    containers: [
      {
        name: "app",
        image: "registry.example/worker:1.2.3",
        resources: { limits: { cpu: "1", memory: "1Gi" } },
        terminationMessagePath: "/dev/termination-log",
        imagePullPolicy: "IfNotPresent",
        volumeMounts: [{ name: "token", mountPath: "/var/run/secrets/kubernetes.io/serviceaccount" }],
      },
    ],
  },
  status: {
    phase: "Running",
    podIP: "10.244.1.7",
    conditions: [{ type: "Ready", status: "True", lastTransitionTime: time }],
    containerStatuses: [
      { name: "app", restartCount: 0, state: { running: { startedAt: time } }, containerID: uid(n + 3) },
    ],
  },
});

/** Every object as JSON text of 1.6 KB. */
export const makeObjects = (kind: "leases" | "pods"): string[] => {
  const shape = kind === "leases" ? lease : pod;
  return Array.from({ length: objectCount }, (_, n) => {
    const bare = JSON.stringify(shape(n, 0)).length;
    return JSON.stringify(shape(n, Math.max(0, size - bare)));
  });
};
