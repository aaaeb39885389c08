/** Pods to inject, and what the tests look at in them. */
import type { InjectionSettings } from "../../src/webhook/inject.ts";

export const settings: InjectionSettings = {
  image: "registry.example/fenceline:1",
  imagePullPolicy: "IfNotPresent",
  server: "https://fenceline.fenceline-system.svc:8443",
  logLevel: "info",
  cpu: 20,
  memory: 96,
};

export interface TestContainer {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  restartPolicy?: string;
  env?: { name: string; value?: string; valueFrom?: object }[];
  volumeMounts?: { name: string; mountPath: string; readOnly?: boolean }[];
  ports?: { containerPort: number }[];
  livenessProbe?: object;
  startupProbe?: object;
  lifecycle?: { postStart?: object; preStop?: object };
  resources?: object;
  securityContext?: object;
}

export interface TestPod {
  apiVersion: "v1";
  kind: "Pod";
  metadata: {
    name?: string;
    namespace?: string;
    generateName?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  spec: {
    containers: TestContainer[];
    initContainers?: TestContainer[];
    volumes?: { name: string; emptyDir?: object; projected?: object }[];
    restartPolicy?: string;
    hostNetwork?: boolean;
    os?: { name: string };
    nodeSelector?: Record<string, string>;
    securityContext?: object;
    automountServiceAccountToken?: boolean;
    serviceAccountName?: string;
    terminationGracePeriodSeconds?: number;
  };
}

/** A pod that opts in; `notes` are its annotations without `fenceline.dev/`. */
export const optedIn = (
  notes: Record<string, string> = {},
  spec: Partial<TestPod["spec"]> = {},
): TestPod => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name: "worker",
    labels: { "fenceline.dev/inject": "true" },
    annotations: Object.fromEntries(
      Object.entries({ resources: "orders", ...notes }).map(([key, value]) => [
        `fenceline.dev/${key}`,
        value,
      ]),
    ),
  },
  spec: { restartPolicy: "Never", containers: [{ name: "app", image: "app:1" }], ...spec },
});

/** An AdmissionReview that asks about `object`. */
export const review = (
  object: unknown,
  more: Partial<{ operation: string; dryRun: boolean; kind: object; uid: unknown }> = {},
) => ({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "uid-1" as unknown,
    kind: { group: "", version: "v1", kind: "Pod" } as object,
    namespace: "shop",
    name: "worker",
    operation: "CREATE",
    dryRun: false,
    object,
    ...more,
  },
});
