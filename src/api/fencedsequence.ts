/** FencedSequence: the ceiling that no token of one resource was ever above. Cluster-scoped, owned by nothing. */
import { z } from "zod";
import { atLeast, type Column, type Definition, rules, tokenField } from "./crd.ts";
import { objectMetaSchema } from "./k8s.ts";
import { apiVersion } from "./names.ts";

const spec = z
  .object({
    resource: z
      .string()
      .max(317)
      .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?\/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/)
      .describe("The resource, as namespace/name: up to 317 characters. The object's name is a hash of it."),
  })
  .meta({
    description: "Which resource this is the sequence of. Cannot be changed.",
    ...rules({
      rule: "self == oldSelf",
      message: "cannot be changed: each resource has a sequence of its own",
    }),
  });

const status = z
  .object({
    base: tokenField(
      "Ceiling at which the sequence was opened; above it, tokens may have been handed out: a decimal string.",
    ),
    ceiling: tokenField("No token above this one was ever handed out: a decimal string. It never falls.", {
      rule: atLeast("self", "oldSelf"),
      message: "may not fall: tokens above it may have been handed out",
      messageExpression:
        "'may not fall from ' + oldSelf + ' to ' + self + ': tokens above it may have been handed out'",
    }),
    uid: z
      .string()
      .min(1)
      .max(64)
      .describe(
        "metadata.uid of the object for which this was written: 1 to 64 characters. Another one marks a copy, which counts as empty and gone back in time.",
      ),
    issuer: z
      .string()
      .min(1)
      .max(253)
      .describe("Identity of the cluster that issues from it: 1 to 253 characters. Another one is refused."),
    sealed: z
      .boolean()
      .default(false)
      .describe(
        "true: nothing is reserved from it any more, for the resource moved to another store. Default false.",
      ),
  })
  .meta({
    description: "The numbers. Written by Fenceline alone.",
    ...rules(
      { rule: atLeast("self.ceiling", "self.base"), message: "may not be below base", fieldPath: ".ceiling" },
      {
        rule: "!(self.sealed && oldSelf.sealed) || self.ceiling == oldSelf.ceiling",
        message: "may not move while the sequence is sealed",
        fieldPath: ".ceiling",
      },
      {
        rule: `self.issuer == oldSelf.issuer || (self.ceiling != oldSelf.ceiling && (${atLeast("self.ceiling", "oldSelf.ceiling")}))`,
        message: "may change only together with a higher ceiling: two clusters never issue the same token",
        fieldPath: ".issuer",
      },
    ),
  });

const columns: Column[] = [
  { name: "Resource", type: "string", jsonPath: ".spec.resource", description: "Whose sequence it is." },
  {
    name: "Ceiling",
    type: "string",
    jsonPath: ".status.ceiling",
    description: "No token was ever above it.",
  },
  {
    name: "Sealed",
    type: "boolean",
    jsonPath: ".status.sealed",
    description: "Nothing is reserved from it.",
  },
];

export const fencedSequenceDefinition: Definition = {
  kind: "FencedSequence",
  plural: "fencedsequences",
  singular: "fencedsequence",
  shortNames: ["fs"],
  scope: "Cluster",
  description:
    "The sequence of fencing tokens of one FencedResource. It outlives resource, Lease and namespace, so that tokens never go back.",
  columns,
  spec,
  status,
  rules: [
    {
      rule: "!has(oldSelf.status) || has(self.status)",
      message: "status.ceiling may not vanish: tokens up to it may have been handed out",
    },
  ],
};

export type FencedSequenceSpec = z.infer<typeof spec>;
export type FencedSequenceStatus = z.infer<typeof status>;

const fencedSequence = z.object({
  apiVersion: z.string().default(apiVersion),
  kind: z.string().default("FencedSequence"),
  metadata: objectMetaSchema,
  spec,
  status: status.optional(),
});

export type FencedSequence = z.infer<typeof fencedSequence>;

/**
 * Reads one that the server sent. Unknown fields are dropped; throws a ZodError on everything that is not exactly
 * this, for a number that was misread would be handed out again.
 */
export const parseFencedSequence = (value: unknown): FencedSequence => fencedSequence.parse(value);
