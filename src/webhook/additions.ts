/**
 * What injection adds to a pod, written out with every default that the API server would fill in: what it stores
 * equals what is here, so that a second look finds nothing to change.
 */
import {
  agentArgs,
  agentContainer,
  agentEnv,
  appDir,
  appEnv,
  gateArgs,
  gateContainer,
  localPort,
  type LossAction,
  probePaths,
  probePort,
  startedPath,
  stateDir,
  type Wait,
} from "../api/agentconfig.ts";
import { authorityKey, authorityMap } from "../api/injection.ts";
import { audience } from "../api/names.ts";

/** What the installation decides. */
export interface InjectionSettings {
  image: string;
  imagePullPolicy: "Always" | "IfNotPresent" | "Never";
  /** `https://host:port` of the coordinator's Service. */
  server: string;
  logLevel: "debug" | "info" | "warn" | "error";
  /** Of the agent, where the pod says nothing: thousandths of a core, and MiB. */
  cpu: number;
  memory: number;
}

/** What the pod's annotations decide. */
export interface Wishes {
  resources: readonly string[];
  wait: Wait;
  /** Seconds. */
  waitTimeout: number | undefined;
  onLoss: LossAction;
  /** Which app containers are told; undefined: all. */
  containers: ReadonlySet<string> | undefined;
  cpu: number;
  memory: number;
}

/** Names in the pod that are ours. */
export const volumeNames = {
  app: "fenceline",
  state: "fenceline-state",
  credential: "fenceline-credential",
} as const;

/**
 * The folder where the API server mounts the service account's token into every container that mounts nothing there.
 * Ours lies in it, so that the agent has no credential but its own.
 */
const credentialDir = "/var/run/secrets/kubernetes.io/serviceaccount";

/** More than an idle agent takes: a throttled one would renew late. Thousandths of a core. */
const cpuLimit = 500;

const cpuText = (milli: number): string => (milli % 1000 === 0 ? String(milli / 1000) : `${milli}m`);

const inMemory = { emptyDir: { medium: "Memory", sizeLimit: "1Mi" } };

/** The token is valid for an hour and renewed by the kubelet; what the authorities are may change under a running pod. */
export const volumes: readonly { name: string }[] = [
  { name: volumeNames.app, ...inMemory },
  { name: volumeNames.state, ...inMemory },
  {
    name: volumeNames.credential,
    projected: {
      defaultMode: 0o644,
      sources: [
        { serviceAccountToken: { audience, expirationSeconds: 3600, path: "token" } },
        { configMap: { name: authorityMap, items: [{ key: authorityKey, path: authorityKey }] } },
      ],
    },
  } as { name: string },
];

const probe = (path: string) => ({ httpGet: { path, port: probePort, scheme: "HTTP" } });

/** Three misses at one a second: one crash of the agent ends no app, a lost right or a dead agent does. */
export const livenessProbe = {
  ...probe(probePaths.live),
  timeoutSeconds: 1,
  periodSeconds: 1,
  successThreshold: 1,
  failureThreshold: 3,
};

export const postStart = (container: string) => probe(startedPath(container));

export const appMount = { name: volumeNames.app, mountPath: appDir, readOnly: true };

export const appVariables: readonly { name: string; value: string }[] = [
  { name: appEnv.dir, value: appDir },
  { name: appEnv.agentUrl, value: `http://127.0.0.1:${localPort}` },
];

/** What Pod Security `restricted` asks for, and a user of our own whatever the pod's is. */
const securityContext = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ["ALL"] },
  privileged: false,
  readOnlyRootFilesystem: true,
  runAsGroup: 65_532,
  runAsNonRoot: true,
  runAsUser: 65_532,
  seccompProfile: { type: "RuntimeDefault" },
};

const field = (name: string, fieldPath: string) => ({
  name,
  valueFrom: { fieldRef: { apiVersion: "v1", fieldPath } },
});

const credentialMount = { name: volumeNames.credential, mountPath: credentialDir, readOnly: true };

/**
 * The init containers that go before all others. `guaranteed`: every other container has limits equal to its requests,
 * and so have ours, so that the pod keeps its class of service.
 */
export const initContainers = (
  settings: InjectionSettings,
  wishes: Wishes,
  guaranteed: boolean,
): { name: string }[] => {
  const { cpu, memory } = wishes;
  const common = {
    image: settings.image,
    imagePullPolicy: settings.imagePullPolicy,
    resources: {
      limits: { cpu: cpuText(guaranteed ? cpu : Math.max(cpu, cpuLimit)), memory: `${memory}Mi` },
      requests: { cpu: cpuText(cpu), memory: `${memory}Mi` },
    },
    securityContext,
    terminationMessagePath: "/dev/termination-log",
    terminationMessagePolicy: "FallbackToLogsOnError",
  };
  const agent = {
    ...common,
    name: agentContainer,
    args: [...agentArgs],
    env: [
      { name: agentEnv.server, value: settings.server },
      field(agentEnv.namespace, "metadata.namespace"),
      field(agentEnv.label, "metadata.name"),
      { name: agentEnv.resources, value: wishes.resources.join(",") },
      { name: agentEnv.wait, value: wishes.wait },
      ...(wishes.waitTimeout === undefined
        ? []
        : [{ name: agentEnv.waitTimeout, value: String(wishes.waitTimeout) }]),
      { name: agentEnv.onLoss, value: wishes.onLoss },
      { name: agentEnv.tokenFile, value: `${credentialDir}/token` },
      { name: agentEnv.caFile, value: `${credentialDir}/${authorityKey}` },
      { name: agentEnv.logLevel, value: settings.logLevel },
    ],
    ports: [{ name: "fenceline", containerPort: probePort, protocol: "TCP" }],
    restartPolicy: "Always",
    startupProbe: {
      ...probe(probePaths.startup),
      timeoutSeconds: 1,
      periodSeconds: 1,
      successThreshold: 1,
      failureThreshold: 2_147_483_647,
    },
    volumeMounts: [
      { name: volumeNames.app, mountPath: appDir },
      { name: volumeNames.state, mountPath: stateDir },
      credentialMount,
    ],
  };
  const mayFail = wishes.wait === "Fail" || (wishes.wait === "Block" && wishes.waitTimeout !== undefined);
  // A sidecar cannot fail its pod; this one can.
  const gate = { ...common, name: gateContainer, args: [...gateArgs], volumeMounts: [credentialMount] };
  return mayFail ? [agent, gate] : [agent];
};
