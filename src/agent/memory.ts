/**
 * What an agent keeps for the one that comes after it in the same pod, in a small volume of its own. Who finds nothing, or
 * nothing that can be read, has no right.
 */
import { mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import type { LossReason } from "../core/lease.ts";
import { type Grant, isReason, readGrant } from "../holder/wire.ts";
import { type Moment, readMoment } from "../runtime/moment.ts";
import { replaceFile } from "./files.ts";

/** Of one resource. */
export interface Memory {
  /** Written before the coordinator hears of it, so that it is the same acquisition after a restart. */
  attempt: string;
  /** What was granted last, with the term that was answered last. */
  grant?: Grant;
  /** Until when the right may be relied on. */
  deadline?: Moment;
  /** The right is over, and why. */
  ended?: LossReason;
}

export interface Memories {
  read(name: string): Promise<Memory | undefined>;
  write(name: string, memory: Memory | undefined): Promise<void>;
  /** Whether the app was ever let start. */
  opened(): Promise<boolean>;
  open(): Promise<void>;
}

const parse = (text: string): Memory | undefined => {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { attempt, grant, deadline, ended } = value as Record<string, unknown>;
  if (typeof attempt !== "string") return undefined;
  const known = readGrant(grant);
  const moment = readMoment(deadline);
  return {
    attempt,
    ...(known === undefined ? {} : { grant: known }),
    ...(moment === undefined ? {} : { deadline: moment }),
    ...(typeof ended === "string" && isReason(ended) ? { ended } : {}),
  };
};

const format = (memory: Memory | undefined): string =>
  JSON.stringify(memory ?? {}, (_, value: unknown) => (typeof value === "bigint" ? value.toString() : value));

const contentOf = async (file: string): Promise<string | undefined> => {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
};

/** Makes `folder` where it is missing. Throws where it cannot be written: then there is no restart that keeps a right. */
export const openMemories = async (folder: string): Promise<Memories> => {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const file = (name: string) => path.join(folder, `${name}.json`);
  // No resource is called like this: names have no underscore.
  const pod = path.join(folder, "pod_opened");
  return {
    async read(name) {
      const text = await contentOf(file(name));
      return text === undefined ? undefined : parse(text);
    },
    write: (name, memory) => replaceFile(file(name), format(memory), 0o600),
    opened: async () => (await contentOf(pod)) !== undefined,
    open: () => replaceFile(pod, "", 0o600),
  };
};
