/** Reads what a pod asks for by its annotations. */
import {
  AgentConfigError,
  type LossAction,
  lossActions,
  readResources,
  type Wait,
  waits,
} from "../api/agentconfig.ts";
import { cpuMessage, memoryMessage, podAnnotations, readCpu, readMemory } from "../api/injection.ts";
import { group } from "../api/names.ts";
import { shown } from "../api/text.ts";
import type { InjectionSettings, Wishes } from "./additions.ts";

/** Thrown with one line that says what is wrong with the pod, and what to do. */
export class Refused extends Error {}

const known: readonly string[] = Object.values(podAnnotations);

/** Seconds: a week. */
const timeoutMax = 604_800;

/** Annotations of our group. */
const oursOf = (annotations: Readonly<Record<string, unknown>>): Record<string, string> => {
  const notes: Record<string, string> = {};
  for (const [key, value] of Object.entries(annotations)) {
    if (!key.startsWith(`${group}/`)) continue;
    if (!known.includes(key))
      throw new Refused(`there is no annotation ${shown(key)}: give ${known.join(", ")}, or remove it`);
    if (typeof value !== "string") throw new Refused(`${key} is no text: put it in quotes`);
    notes[key] = value;
  }
  return notes;
};

/** What the annotations say; throws {@link Refused} for what cannot be meant. */
export const readWishes = (
  annotations: Readonly<Record<string, unknown>>,
  settings: InjectionSettings,
): Wishes => {
  const notes = oursOf(annotations);
  const oneOf = <T extends string>(key: string, words: readonly T[], otherwise: T): T => {
    const value = notes[key] ?? otherwise;
    const found = words.find((word) => word === value);
    if (found === undefined) throw new Refused(`${key} is ${shown(value)}: give ${words.join(" or ")}`);
    return found;
  };
  const quantity = (
    key: string,
    read: (text: string) => number | undefined,
    say: string,
    otherwise: number,
  ) => {
    const text = notes[key];
    if (text === undefined) return otherwise;
    const value = read(text);
    if (value === undefined) throw new Refused(`${key} is ${shown(text)}: ${say}`);
    return value;
  };

  const named = notes[podAnnotations.resources];
  if (named === undefined)
    throw new Refused(
      `the annotation ${podAnnotations.resources} is missing: name the FencedResources that the pod needs, comma-separated`,
    );
  const wait = oneOf<Wait>(podAnnotations.wait, waits, "Block");
  const timeout = notes[podAnnotations.waitTimeout];
  const waitTimeout = timeout !== undefined && /^[1-9]\d{0,5}$/.test(timeout) ? Number(timeout) : undefined;
  if (timeout !== undefined) {
    if (waitTimeout === undefined || waitTimeout > timeoutMax)
      throw new Refused(
        `${podAnnotations.waitTimeout} is ${shown(timeout)}: give whole seconds from 1 to ${timeoutMax}`,
      );
    if (wait !== "Block")
      throw new Refused(
        `${podAnnotations.waitTimeout} goes with ${podAnnotations.wait}: Block, and this pod has ${wait}: remove one of them`,
      );
  }
  const containers = notes[podAnnotations.containers]
    ?.split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
  if (containers?.length === 0)
    throw new Refused(`${podAnnotations.containers} names no container: name one, or remove it`);
  return {
    resources: resourcesOf(named),
    wait,
    waitTimeout,
    onLoss: oneOf<LossAction>(podAnnotations.onLoss, lossActions, "Terminate"),
    containers: containers === undefined ? undefined : new Set(containers),
    cpu: quantity(podAnnotations.agentCpu, readCpu, cpuMessage, settings.cpu),
    memory: quantity(podAnnotations.agentMemory, readMemory, memoryMessage, settings.memory),
  };
};

const resourcesOf = (text: string): string[] => {
  try {
    return readResources(text);
  } catch (error) {
    if (error instanceof AgentConfigError)
      throw new Refused(`${podAnnotations.resources}: ${shown(error.message, 200)}`);
    throw error;
  }
};
