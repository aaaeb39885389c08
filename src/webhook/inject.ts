/**
 * Injection as a function: a pod and the installation's settings in, a JSON patch or a refusal out.
 *
 * What is there already as it should be is left alone, so injecting twice changes nothing. What is ours and was changed
 * by another webhook meanwhile is put back.
 */
import { isDeepStrictEqual } from "node:util";
import {
  agentContainer,
  appDir,
  gateContainer,
  localPort,
  probePort,
  resourcesMax,
} from "../api/agentconfig.ts";
import {
  type Container,
  injectLabel,
  podAnnotations,
  podToInject,
  type PodToInject,
} from "../api/injection.ts";
import { parse, shown } from "../api/text.ts";
import {
  appMount,
  appVariables,
  initContainers,
  type InjectionSettings,
  livenessProbe,
  postStart,
  volumeNames,
  volumes,
  type Wishes,
} from "./additions.ts";
import { readWishes, Refused } from "./wishes.ts";

export type { InjectionSettings } from "./additions.ts";

/** Enough of an object to see whether it asks. */
const asking = podToInject.pick({ metadata: true });

/** One operation of a JSON patch (RFC 6902). */
export type Operation =
  | { op: "add" | "replace"; path: string; value: unknown }
  | { op: "remove"; path: string };

export type Injection =
  /** The pod did not ask. */
  | { outcome: "nothing" }
  /** Empty where all is there already. Warnings are for the person who makes the pod. */
  | { outcome: "patch"; patch: Operation[]; warnings: string[] }
  | { outcome: "refused"; message: string; resources: readonly string[] };

const oursInit: readonly unknown[] = [agentContainer, gateContainer];
const oursVolumes: readonly unknown[] = Object.values(volumeNames);
const isOurVolume = (name: unknown): name is string => oursVolumes.includes(name);

/** What would not work, whatever is injected. */
const refuseImpossible = ({ spec }: PodToInject): void => {
  if (spec.hostNetwork === true)
    throw new Refused(
      `the pod uses the host's network, where the ports of two agents would meet: remove hostNetwork, or ${injectLabel}`,
    );
  if (spec.os?.name === "windows" || spec.nodeSelector?.["kubernetes.io/os"] === "windows")
    throw new Refused(`the agent runs on Linux and this pod on Windows: remove ${injectLabel}`);
  for (const { name } of spec.containers)
    if (oursInit.includes(name))
      throw new Refused(`the name ${name} is taken by an ordinary container of the pod: rename it`);
  for (const volume of spec.volumes ?? [])
    if (isOurVolume(volume["name"]) && !volumes.some((ours) => isDeepStrictEqual(ours, volume)))
      throw new Refused(`the pod has a volume ${volume["name"]} of its own: rename it`);
  for (const container of [...(spec.initContainers ?? []), ...spec.containers])
    if (!oursInit.includes(container.name)) refuseClash(container);
};

/** `/var/run` is often a link to `/run`: both lead to the same folder. */
const covers = (mountPath: unknown): boolean => {
  if (typeof mountPath !== "string") return false;
  const path = `${mountPath.replace(/^\/run(?=\/|$)/, "/var/run").replace(/\/+$/, "")}/`;
  return path.startsWith(`${appDir}/`);
};

const refuseClash = ({ name, ports, volumeMounts }: Container): void => {
  const who = `container ${shown(name)}`;
  for (const { containerPort } of ports ?? [])
    if (containerPort === localPort || containerPort === probePort)
      throw new Refused(`${who} uses port ${containerPort}, which is the agent's: give it another one`);
  for (const mount of volumeMounts ?? []) {
    if (isDeepStrictEqual(mount, appMount)) continue;
    if (isOurVolume(mount["name"]))
      throw new Refused(`${who} mounts the volume ${mount["name"]}, which is the agent's: remove the mount`);
    if (covers(mount["mountPath"]))
      throw new Refused(`${who} mounts a volume at ${appDir}, where the agent's files are: move it`);
  }
};

/** Whether every container of the pod but ours has what makes it `Guaranteed`. */
const isGuaranteed = ({ spec }: PodToInject): boolean =>
  [...(spec.initContainers ?? []), ...spec.containers]
    .filter(({ name }) => !oursInit.includes(name))
    .every(({ resources }) =>
      ["cpu", "memory"].every((kind) => {
        const limit = resources?.limits?.[kind];
        return limit !== undefined && (resources?.requests?.[kind] ?? limit) === limit;
      }),
    );

const addVolumes = ({ spec }: PodToInject): Operation[] => {
  const there = spec.volumes ?? [];
  const missing = volumes.filter(({ name }) => !there.some((volume) => volume["name"] === name));
  if (missing.length === 0) return [];
  return there.length === 0
    ? [{ op: "add", path: "/spec/volumes", value: missing }]
    : missing.map((value) => ({ op: "add", path: "/spec/volumes/-", value }));
};

const addInitContainers = (there: readonly Container[], wanted: readonly { name: string }[]): Operation[] => {
  const ours = there.flatMap(({ name }, index) => (oursInit.includes(name) ? [index] : []));
  if (ours.length === wanted.length && wanted.every((each, index) => isDeepStrictEqual(there[index], each)))
    return [];
  if (there.length === 0) return [{ op: "add", path: "/spec/initContainers", value: wanted }];
  return [
    ...ours.toReversed().map((index): Operation => ({ op: "remove", path: `/spec/initContainers/${index}` })),
    ...wanted.map((value, index): Operation => ({ op: "add", path: `/spec/initContainers/${index}`, value })),
  ];
};

/** Adds to a list that may not be there yet. */
const append = (
  path: string,
  there: readonly unknown[] | null | undefined,
  more: readonly unknown[],
): Operation[] => {
  if (more.length === 0) return [];
  return there === undefined || there === null || there.length === 0
    ? [{ op: "add", path, value: more }]
    : more.map((value) => ({ op: "add", path: `${path}/-`, value }));
};

/** Nothing of the pod's own is repeated in the patch: entries go by their place. */
const addVariables = (path: string, env: Container["env"]): Operation[] => {
  const names: readonly unknown[] = appVariables.map(({ name }) => name);
  const places = (env ?? []).flatMap(({ name }, place) => (names.includes(name) ? [place] : []));
  if (
    isDeepStrictEqual(
      places.map((place) => env?.[place]),
      appVariables,
    )
  )
    return [];
  return [
    ...places.toReversed().map((place): Operation => ({ op: "remove", path: `${path}/${place}` })),
    ...append(path, env, appVariables),
  ];
};

const addToApp = (
  container: Container,
  index: number,
  { onLoss }: Wishes,
  warnings: string[],
): Operation[] => {
  const path = `/spec/containers/${index}`;
  const { name, lifecycle } = container;
  const mounted = (container.volumeMounts ?? []).some((mount) => mount["name"] === appMount.name);
  const operations = [
    ...append(`${path}/volumeMounts`, container.volumeMounts, mounted ? [] : [appMount]),
    ...addVariables(`${path}/env`, container.env),
  ];
  const started = postStart(name);
  if (lifecycle === undefined || lifecycle === null)
    operations.push({ op: "add", path: `${path}/lifecycle`, value: { postStart: started } });
  else if (lifecycle["postStart"] === undefined || lifecycle["postStart"] === null)
    operations.push({ op: "add", path: `${path}/lifecycle/postStart`, value: started });
  else if (!isDeepStrictEqual(lifecycle["postStart"], started))
    warnings.push(
      `container ${shown(name)} has a postStart of its own: after a loss, its restart in place begins no new attempt`,
    );
  if (onLoss !== "Terminate") return operations;
  if (container.livenessProbe === undefined || container.livenessProbe === null)
    operations.push({ op: "add", path: `${path}/livenessProbe`, value: livenessProbe });
  else if (!isDeepStrictEqual(container.livenessProbe, livenessProbe))
    warnings.push(
      `container ${shown(name)} has a livenessProbe of its own and keeps it: a loss is only reported to it, so it must watch its state`,
    );
  return operations;
};

const plan = (pod: PodToInject, settings: InjectionSettings): Injection => {
  const { spec } = pod;
  const wishes = readWishes(pod.metadata.annotations ?? {}, settings);
  refuseImpossible(pod);
  const unknown = [...(wishes.containers ?? [])].find(
    (name) => !spec.containers.some((one) => one.name === name),
  );
  if (unknown !== undefined)
    throw new Refused(
      `${podAnnotations.containers} names ${shown(unknown)}, and the pod has no such container: correct the name`,
    );
  const warnings: string[] = [];
  const told = spec.containers.flatMap((container, index) =>
    wishes.containers?.has(container.name) === false ? [] : [{ container, index }],
  );
  const patch = [
    ...addVolumes(pod),
    ...addInitContainers(spec.initContainers ?? [], initContainers(settings, wishes, isGuaranteed(pod))),
    ...told.flatMap(({ container, index }) => addToApp(container, index, wishes, warnings)),
  ];
  const restarts = (spec.restartPolicy ?? "Always") !== "Never";
  const inPlace = told.find(({ container }) =>
    container.restartPolicy === undefined ? restarts : container.restartPolicy !== "Never",
  );
  if (inPlace !== undefined && wishes.wait !== "Start")
    warnings.push(
      `container ${shown(inPlace.container.name)} is restarted in place, which waits for no right: it must look for its token itself, or have restartPolicy Never`,
    );
  return { outcome: "patch", patch, warnings };
};

const asks = (value: unknown): boolean =>
  asking.safeParse(value).data?.metadata.labels?.[injectLabel] === "true";

/** What to do with a pod that is to be made. Never throws, whatever `value` is. */
export const inject = (value: unknown, settings: InjectionSettings): Injection => {
  if (!asks(value)) return { outcome: "nothing" };
  const read = parse(podToInject, value);
  if (!read.ok)
    return { outcome: "refused", message: `the pod cannot be read: ${read.refusal.message}`, resources: [] };
  const pod = read.value;
  try {
    return plan(pod, settings);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { outcome: "refused", message: error.message, resources: namesOf(pod) };
  }
};

const namesOf = ({ metadata }: PodToInject): string[] => {
  const named = metadata.annotations?.[podAnnotations.resources];
  if (typeof named !== "string") return [];
  return named
    .split(",", resourcesMax)
    .map((name) => name.trim())
    .filter((name) => name !== "");
};
