/** Objects as the server keeps them. They are never changed in place: whoever reads one may keep it. */
import { z } from "zod";
import { ApiFailure } from "./status.ts";

export interface Meta {
  name: string;
  namespace?: string | undefined;
  uid: string;
  resourceVersion: string;
  generation?: number | undefined;
  creationTimestamp: string;
  deletionTimestamp?: string | undefined;
  labels?: Record<string, string> | undefined;
  annotations?: Record<string, string> | undefined;
  finalizers?: string[] | undefined;
  ownerReferences?: unknown[] | undefined;
}

export interface Stored {
  apiVersion: string;
  kind: string;
  metadata: Meta;
  [field: string]: unknown;
}

/** What a client sends: everything of the metadata may be missing. */
export interface Sent {
  metadata: Partial<Meta> & { generateName?: string | undefined };
  [field: string]: unknown;
}

const texts = z.record(z.string(), z.string()).nullish();

const metaSchema = z
  .object({
    name: z.string().nullish(),
    generateName: z.string().nullish(),
    namespace: z.string().nullish(),
    uid: z.string().nullish(),
    resourceVersion: z.string().nullish(),
    generation: z.number().nullish(),
    creationTimestamp: z.string().nullish(),
    deletionTimestamp: z.string().nullish(),
    labels: texts,
    annotations: texts,
    finalizers: z.array(z.string()).nullish(),
    ownerReferences: z.array(z.unknown()).nullish(),
  })
  .nullish();

const record = z.record(z.string(), z.unknown());

/** An object without the keys that are null or undefined, which is what leaving them out means. */
export const compact = <T extends object>(value: T): { [K in keyof T]?: NonNullable<T[K]> } =>
  Object.fromEntries(Object.entries(value).filter(([, inner]) => inner !== null && inner !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };

/** Decodes the JSON of a request. */
export const parseBody = (body: string | undefined): Record<string, unknown> => {
  try {
    return record.parse(JSON.parse(body ?? ""));
  } catch (error) {
    throw new ApiFailure("BadRequest", `the body cannot be decoded: ${String(error)}`);
  }
};

/** Reads the metadata of what a client sent, or what a patch made of it. */
export const readSent = (body: Record<string, unknown>): Sent => {
  const metadata = metaSchema.safeParse(body["metadata"]);
  if (!metadata.success)
    throw new ApiFailure("BadRequest", `metadata cannot be decoded: ${metadata.error.issues[0]?.message}`);
  return { ...body, metadata: compact(metadata.data ?? {}) };
};

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** RFC 7386. */
export const mergePatch = (target: unknown, patch: unknown): unknown => {
  if (!isRecord(patch)) return patch;
  const result: Record<string, unknown> = isRecord(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch))
    if (value === null) delete result[key];
    else result[key] = mergePatch(result[key], value);
  return result;
};

const qualified = /^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const annotationsMax = 262_144;

/** What is wrong with the metadata, as a 422 says it; undefined where nothing is. */
export const metaProblem = ({ name, labels = {}, annotations = {} }: Meta): string | undefined => {
  if (name.length > 253 || !subdomain.test(name))
    return `metadata.name: Invalid value: "${name}": a lowercase RFC 1123 subdomain must consist of …`;
  for (const [key, value] of Object.entries(labels)) {
    if (!qualified.test(key)) return `metadata.labels: Invalid value: "${key}": name part must consist of …`;
    if (!labelValue.test(value))
      return `metadata.labels: Invalid value: "${value}": must be no more than 63 characters …`;
  }
  let size = 0;
  for (const [key, value] of Object.entries(annotations)) {
    if (!qualified.test(key.toLowerCase()))
      return `metadata.annotations: Invalid value: "${key}": name part must consist of …`;
    size += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  return size > annotationsMax
    ? `metadata.annotations: Too long: may not be more than ${annotationsMax} bytes`
    : undefined;
};
