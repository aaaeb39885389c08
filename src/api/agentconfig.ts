/**
 * What an injected pod and its agent agree on: written by the webhook, read by the agent. The agent has no room for a
 * schema library, so this is read by hand and imports nothing that is not its own.
 *
 * An injected pod has, in this order before its own init containers:
 * - {@link agentContainer}, a native sidecar (`restartPolicy: Always`), arguments {@link agentArgs}, environment
 *   {@link agentEnv}. startupProbe: GET {@link probePaths}.startup on {@link probePort} with a failureThreshold that is
 *   never reached. Mounts: {@link appDir} and {@link stateDir} writable, credential and CA read-only.
 * - {@link gateContainer}, an ordinary init container, only where the wait may end without a right (`wait: Fail`, or
 *   `Block` with a wait-timeout): arguments {@link gateArgs}. A sidecar cannot fail its pod, this one can: it ends with 0
 *   when every right is held, else with the reason as its last words.
 *
 * With `on-loss: Terminate` a container of the app gets a livenessProbe GET {@link probePaths}.live; with or without it a
 * postStart httpGet of {@link startedPath}, both on {@link probePort} of the pod's address, where it has none of its own.
 */
export const agentContainer = "fenceline-agent";
export const gateContainer = "fenceline-gate";

/** Arguments of the image's entry point. */
export const agentArgs = ["agent"] as const;
export const gateArgs = ["agent", "gate"] as const;

/** On 127.0.0.1: for the app. */
export const localPort = 7473;
/** On every address: health only, for the kubelet. */
export const probePort = 7474;

export const probePaths = {
  /** 200 when the app may start; 503 before, with the reason. */
  startup: "/startupz",
  /** 503 when one of the pod's rights is lost, or the wait for them failed. */
  live: "/livez",
} as const;

/** Called by postStart: a container that starts for a second time begins a new attempt after a loss. */
export const startedPath = (container: string): string => `/started/${container}`;

/** Shared with the app, which has it read-only: a folder per resource. */
export const appDir = "/var/run/fenceline";
/** The agent's own emptyDir: attempt, token and deadline, so that a restarted agent can judge its right. */
export const stateDir = "/var/lib/fenceline";

/** What an app finds in its environment. */
export const appEnv = { dir: "FENCELINE_DIR", agentUrl: "FENCELINE_AGENT_URL" } as const;

export const waits = ["Block", "Fail", "Start"] as const;
export type Wait = (typeof waits)[number];
export const lossActions = ["Terminate", "Report"] as const;
export type LossAction = (typeof lossActions)[number];
/** Most resources of one pod. */
export const resourcesMax = 8;

/** The agent's environment. Those without a default are required. */
export const agentEnv = {
  /** `https://host:port` of the coordinator's Service. */
  server: "FENCELINE_SERVER",
  /** The pod's namespace (`fieldRef: metadata.namespace`). */
  namespace: "FENCELINE_NAMESPACE",
  /** Names in that namespace, separated by commas: 1 … 8. */
  resources: "FENCELINE_RESOURCES",
  /** One of {@link waits}; default `Block`. */
  wait: "FENCELINE_WAIT",
  /** Whole seconds, 1 … 604800; left out: for as long as it takes. */
  waitTimeout: "FENCELINE_WAIT_TIMEOUT",
  /** One of {@link lossActions}; default `Terminate`. */
  onLoss: "FENCELINE_ON_LOSS",
  /** What people see as the holder's name: the pod's (`fieldRef: metadata.name`). */
  label: "FENCELINE_LABEL",
  /** The projected token with audience `fenceline`. */
  tokenFile: "FENCELINE_TOKEN_FILE",
  /** `ca.crt` of the projected ConfigMap. */
  caFile: "FENCELINE_CA_FILE",
  /** Default {@link appDir}. */
  dir: "FENCELINE_DIR",
  /** Default {@link stateDir}. */
  stateDir: "FENCELINE_STATE_DIR",
  /** Default {@link localPort}; the gate reads it too. */
  localPort: "FENCELINE_LOCAL_PORT",
  /** Default {@link probePort}. */
  probePort: "FENCELINE_PROBE_PORT",
  /** debug, info, warn or error; default info. */
  logLevel: "FENCELINE_LOG_LEVEL",
} as const;

export interface AgentConfig {
  server: string;
  namespace: string;
  /** Sorted, without repetition. */
  resources: readonly string[];
  wait: Wait;
  waitTimeoutMs: number | undefined;
  onLoss: LossAction;
  label: string | undefined;
  tokenFile: string;
  caFile: string;
  dir: string;
  stateDir: string;
  localPort: number;
  probePort: number;
  logLevel: "debug" | "info" | "warn" | "error";
}

type Environment = Readonly<Record<string, string | undefined>>;

/** What in the environment cannot be used, in one line. */
export class AgentConfigError extends Error {}

const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** The names of a list, sorted and each once; throws an {@link AgentConfigError} that names the one that is none. */
export const readResources = (text: string): string[] => {
  const names = [...new Set(text.split(",").map((name) => name.trim()))]
    .filter((name) => name !== "")
    .toSorted();
  const odd = names.find((name) => name.length > 253 || !subdomain.test(name));
  if (odd !== undefined)
    throw new AgentConfigError(
      `${odd.slice(0, 80)} is no name of a resource: give lower-case letters, digits, dots and dashes`,
    );
  if (names.length === 0 || names.length > resourcesMax)
    throw new AgentConfigError(`${names.length} resources: give 1 to ${resourcesMax} names, comma-separated`);
  return names;
};

/** Reads the environment; throws an {@link AgentConfigError} that names the variable. */
export const readAgentConfig = (env: Environment): AgentConfig => {
  const given = (name: string): string | undefined => env[name] || undefined;
  const required = (name: string): string => {
    const value = given(name);
    if (value === undefined) throw new AgentConfigError(`${name} is not set`);
    return value;
  };
  const oneOf = <T extends string>(name: string, words: readonly T[], otherwise: T): T => {
    const value = given(name) ?? otherwise;
    const found = words.find((word) => word === value);
    if (found === undefined) throw new AgentConfigError(`${name}=${value}: give ${words.join(", ")}`);
    return found;
  };
  const whole = (name: string, least: number, most: number): number | undefined => {
    const value = given(name);
    if (value === undefined) return undefined;
    const number = /^\d{1,7}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= least && number <= most) return number;
    throw new AgentConfigError(`${name}=${value}: give a whole number from ${least} to ${most}`);
  };

  const server = required(agentEnv.server);
  if (!/^https:\/\/[^/@?#]+\/?$/.test(server) || URL.parse(server) === null)
    throw new AgentConfigError(`${agentEnv.server}=${server}: give https://host:port`);
  const namespace = required(agentEnv.namespace);
  if (!label.test(namespace))
    throw new AgentConfigError(`${agentEnv.namespace}=${namespace} is no namespace`);
  const wait = oneOf(agentEnv.wait, waits, "Block");
  const seconds = whole(agentEnv.waitTimeout, 1, 604_800);
  return {
    server,
    namespace,
    resources: readResources(required(agentEnv.resources)),
    wait,
    waitTimeoutMs: seconds === undefined ? undefined : seconds * 1000,
    onLoss: oneOf(agentEnv.onLoss, lossActions, "Terminate"),
    label: given(agentEnv.label)?.slice(0, 128),
    tokenFile: required(agentEnv.tokenFile),
    caFile: required(agentEnv.caFile),
    dir: given(agentEnv.dir) ?? appDir,
    stateDir: given(agentEnv.stateDir) ?? stateDir,
    localPort: whole(agentEnv.localPort, 0, 65_535) ?? localPort,
    probePort: whole(agentEnv.probePort, 0, 65_535) ?? probePort,
    logLevel: oneOf(agentEnv.logLevel, ["debug", "info", "warn", "error"], "info"),
  };
};
