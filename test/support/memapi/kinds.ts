/** The resources that the model serves, and what is special about each. */
import { z } from "zod";
import { parseFencedResource } from "../../../src/api/fencedresource.ts";
import { parseFencedSequence } from "../../../src/api/fencedsequence.ts";
import { group, version } from "../../../src/api/names.ts";
import { compact, type Stored } from "./objects.ts";
import { ApiFailure } from "./status.ts";

/** One resource of the API, as `group/version` and plural. */
export interface Resource {
  apiVersion: string;
  kind: string;
  plural: string;
  namespaced: boolean;
  /** A PUT of an object that is not there makes it: built-in kinds such as Lease do that, custom resources do not. */
  createOnUpdate: boolean;
  /** A PUT without resourceVersion overwrites. */
  unconditionalUpdate: boolean;
  /** Status is a door of its own, and the generation counts changes of what is not status or metadata. */
  custom: boolean;
  /** The object as it is stored: decoded (throws BadRequest), checked (throws Invalid), defaults filled in. */
  admit(object: Stored): Stored;
}

const microTime = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})(Z|[+-]\d\d:\d\d)$/;

/** MicroTime: six digits exactly; an offset is turned into UTC. */
const time = z.string().transform((text, context) => {
  const [, seconds, micros, zone] = microTime.exec(text) ?? [];
  const at = Date.parse(`${seconds}${zone}`);
  if (!Number.isNaN(at)) return `${new Date(at).toISOString().slice(0, 19)}.${micros}Z`;
  context.addIssue(`parsing time "${text}" as "2006-01-02T15:04:05.000000Z07:00"`);
  return z.NEVER;
});

const leaseSpec = z.object({
  holderIdentity: z.string().nullish(),
  leaseDurationSeconds: z.int32().nullish(),
  acquireTime: time.nullish(),
  renewTime: time.nullish(),
  leaseTransitions: z.int32().nullish(),
});

const invalid = (object: Stored, problem: string): ApiFailure =>
  new ApiFailure("Invalid", `${object.kind} "${object.metadata.name}" is invalid: ${problem}`);

const admitLease = (object: Stored): Stored => {
  const { apiVersion, kind, metadata } = object;
  const read = leaseSpec.safeParse(object["spec"] ?? {});
  if (!read.success)
    throw new ApiFailure(
      "BadRequest",
      `Lease in version "v1" cannot be handled as a Lease: ${read.error.issues[0]?.message}`,
    );
  const spec = compact(read.data);
  if (spec.leaseDurationSeconds !== undefined && spec.leaseDurationSeconds <= 0)
    throw invalid(
      object,
      `spec.leaseDurationSeconds: Invalid value: ${spec.leaseDurationSeconds}: must be greater than 0`,
    );
  if (spec.leaseTransitions !== undefined && spec.leaseTransitions < 0)
    throw invalid(
      object,
      `spec.leaseTransitions: Invalid value: ${spec.leaseTransitions}: must be greater than or equal to 0`,
    );
  return { apiVersion, kind, metadata, spec };
};

/** What our own schema says of a custom resource; the rules in CEL are not modelled. */
const admitCustom =
  (parse: (value: unknown) => { spec: unknown; status?: unknown }) =>
  (object: Stored): Stored => {
    const { apiVersion, kind, metadata } = object;
    try {
      const { spec, status } = parse(object);
      if (status === undefined && object["status"] !== undefined) throw new Error("status: Invalid value");
      return { apiVersion, kind, metadata, spec, ...(status !== undefined && { status }) };
    } catch (error) {
      throw invalid(object, error instanceof z.ZodError ? z.prettifyError(error) : String(error));
    }
  };

const builtIn = {
  namespaced: true,
  createOnUpdate: false,
  unconditionalUpdate: true,
  custom: false,
  admit: (object: Stored) => object,
};
const custom = {
  apiVersion: `${group}/${version}`,
  createOnUpdate: false,
  unconditionalUpdate: false,
  custom: true,
};

export const resources: readonly Resource[] = [
  {
    ...builtIn,
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    plural: "leases",
    createOnUpdate: true,
    unconditionalUpdate: false,
    admit: admitLease,
  },
  {
    ...custom,
    kind: "FencedResource",
    plural: "fencedresources",
    namespaced: true,
    admit: admitCustom(parseFencedResource),
  },
  {
    ...custom,
    kind: "FencedSequence",
    plural: "fencedsequences",
    namespaced: false,
    admit: admitCustom(parseFencedSequence),
  },
  { ...builtIn, apiVersion: "v1", kind: "Namespace", plural: "namespaces", namespaced: false },
  { ...builtIn, apiVersion: "v1", kind: "Pod", plural: "pods" },
  { ...builtIn, apiVersion: "v1", kind: "Secret", plural: "secrets" },
  { ...builtIn, apiVersion: "v1", kind: "ConfigMap", plural: "configmaps" },
  { ...builtIn, apiVersion: "events.k8s.io/v1", kind: "Event", plural: "events" },
];
