/** How a pod opts in, what its annotations may say, and the words of AdmissionReview v1. */
import { z } from "zod";
import { group } from "./names.ts";

/** On the pod or its template. */
export const injectLabel = `${group}/inject`;

/** Of the pod; frozen once it is made. Any other annotation of our group is refused as a misspelt one. */
export const podAnnotations = {
  resources: `${group}/resources`,
  onLoss: `${group}/on-loss`,
  wait: `${group}/wait`,
  waitTimeout: `${group}/wait-timeout`,
  containers: `${group}/containers`,
  agentCpu: `${group}/agent-cpu`,
  agentMemory: `${group}/agent-memory`,
} as const;

/** The image that the agent is started from, without a tag, unless the installation says otherwise. */
export const imageRepository = "ghcr.io/fenceline/fenceline";

/** Where the API server sends pods to, on the port of the coordinator. */
export const injectPath = "/v1/admission/pods";

/** ConfigMap in each namespace that has FencedResources: the authorities that sign the coordinator's certificate. */
export const authorityMap = "fenceline-ca";
export const authorityKey = "ca.crt";

/** Names of the webhook's configuration, and of the one webhook in it. */
export const webhookName = `inject.${group}`;

/** Longest AdmissionReview that is read, in bytes. */
export const reviewMaxBytes = 524_288;

/** Bounds of the agent's resources: thousandths of a core, and MiB. */
const agentBounds = { cpu: { least: 10, most: 1000 }, memory: { least: 48, most: 512 } } as const;

/** A CPU quantity in thousandths of a core; undefined where it is none or out of bounds. */
export const readCpu = (text: string): number | undefined => {
  const [, milli, cores] = /^(?:(\d{1,4})m|(\d(?:\.\d{1,3})?))$/.exec(text) ?? [];
  const value = milli === undefined ? Math.round(Number(cores) * 1000) : Number(milli);
  return value >= agentBounds.cpu.least && value <= agentBounds.cpu.most ? value : undefined;
};

/** A memory quantity in MiB; undefined where it is none or out of bounds. */
export const readMemory = (text: string): number | undefined => {
  const value = Number(/^(\d{1,3})Mi$/.exec(text)?.[1]);
  return value >= agentBounds.memory.least && value <= agentBounds.memory.most ? value : undefined;
};

export const cpuMessage = `give ${agentBounds.cpu.least}m to ${agentBounds.cpu.most}m`;
export const memoryMessage = `give ${agentBounds.memory.least}Mi to ${agentBounds.memory.most}Mi`;

type Fields = Readonly<Record<string, unknown>>;
const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Lists longer than any pod's are not looked into. */
const listMax = 2048;
const containersMax = 256;

// Made by hand, because most of what they hold is never looked at: a schema would visit every entry of a hostile pod.
const fields = z.custom<Fields>(isFields, { error: "give an object" });
const objects = z
  .custom<readonly Fields[]>(
    (value) => Array.isArray(value) && value.length <= listMax && value.every(isFields),
    { error: `give a list of at most ${listMax} objects` },
  )
  .nullish();

const containerSchema = z.looseObject({
  name: z.string().max(253),
  restartPolicy: z.string().optional(),
  env: objects,
  volumeMounts: objects,
  ports: objects,
  livenessProbe: z.unknown().optional(),
  lifecycle: fields.nullish(),
  resources: z.object({ requests: fields.nullish(), limits: fields.nullish() }).loose().nullish(),
});
export type Container = z.infer<typeof containerSchema>;

const containers = z
  .array(z.unknown())
  .max(containersMax, { error: `more than ${containersMax} containers` })
  .pipe(z.array(containerSchema));

/** Of a pod that is to be made: what injection looks at. */
export const podToInject = z.object({
  metadata: z.object({ labels: fields.nullish(), annotations: fields.nullish() }),
  spec: z.object({
    hostNetwork: z.boolean().nullish(),
    os: z.object({ name: z.string() }).nullish(),
    nodeSelector: fields.nullish(),
    restartPolicy: z.string().optional(),
    volumes: objects,
    initContainers: containers.nullish(),
    containers: containers.refine((list) => list.length > 0, { error: "give at least one container" }),
  }),
});
export type PodToInject = z.infer<typeof podToInject>;

export const admissionReview = z.object({
  apiVersion: z.literal("admission.k8s.io/v1"),
  kind: z.literal("AdmissionReview"),
  request: z.object({
    uid: z.string().min(1).max(128),
    kind: z.object({ group: z.string(), version: z.string(), kind: z.string() }),
    namespace: z.string().max(63).default(""),
    name: z.string().max(253).default(""),
    operation: z.string(),
    dryRun: z.boolean().nullish(),
    object: z.unknown().optional(),
  }),
});
export type AdmissionRequest = z.infer<typeof admissionReview>["request"];
