/** From a zod schema to a CustomResourceDefinition, within what structural schemas allow. */
import { z } from "zod";
import { tokenPattern } from "./text.ts";
import { group, version } from "./names.ts";

/** One rule that the API server checks by CEL, with words for the person whose object it refuses. */
export interface Rule {
  rule: string;
  message: string;
  /** CEL for a message with values in it; `message` is what remains where that fails. */
  messageExpression?: string;
  /** Where the error is shown, as in `.renewIntervalSeconds`. */
  fieldPath?: string;
}

/** Put on a schema by `.meta(rules(…))`. */
export const rules = (...list: Rule[]) => ({ "x-kubernetes-validations": list });

/** A list whose items are told apart by these fields: none may appear twice. */
export const listMap = (...keys: string[]) => ({
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": keys,
});

const range: Rule = {
  rule: "size(self) < 19 || self <= '9223372036854775807'",
  message: "tokens end at 9223372036854775807: give a smaller one",
};

/** A token, mark, ceiling or floor: a decimal string, 0 … 2^63−1, compared exactly. */
export const tokenField = (description: string, ...more: Rule[]) =>
  z
    .string()
    .regex(new RegExp(tokenPattern))
    .meta({ description, ...rules(range, ...more) });

/** CEL for "the decimal string `a` is at least `b`". Never fails, unlike `int()` on a text that is no number. */
export const atLeast = (a: string, b: string): string =>
  `size(${a}) > size(${b}) || (size(${a}) == size(${b}) && ${a} >= ${b})`;

/** A whole number of 32 bits within bounds. */
export const int32 = (min: number, max: number) => z.int32().min(min).max(max);

/** A point in time that people read: RFC 3339. */
export const timeField = (description: string) => z.string().meta({ description, format: "date-time" });

export interface Column {
  name: string;
  type: "string" | "integer" | "boolean" | "date";
  jsonPath: string;
  description: string;
  /** 1: only with `-o wide`. */
  priority?: 1;
}

export interface Definition {
  kind: string;
  plural: string;
  singular: string;
  shortNames: string[];
  scope: "Namespaced" | "Cluster";
  description: string;
  columns: Column[];
  spec: z.ZodType;
  status: z.ZodType;
  /** Rules on the object as a whole. */
  rules?: Rule[];
}

/** A JSON object as it is written to YAML. */
export type JsonSchema = { [key: string]: unknown };

/** Structural schemas know neither closed objects beside properties, nor names of properties, nor bounds of 2^53. */
const openApi = (schema: z.ZodType): JsonSchema => {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    override: ({ jsonSchema }) => {
      delete jsonSchema.propertyNames;
      if (jsonSchema.type !== "integer") return;
      jsonSchema.format ??= "int32";
      if (jsonSchema.format !== "int64") return;
      delete jsonSchema.minimum;
      delete jsonSchema.maximum;
    },
  });
  return rest;
};

export const customResourceDefinition = (definition: Definition): JsonSchema => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: `${definition.plural}.${group}`, labels: { "app.kubernetes.io/name": "fenceline" } },
  spec: {
    group,
    scope: definition.scope,
    names: {
      kind: definition.kind,
      listKind: `${definition.kind}List`,
      plural: definition.plural,
      singular: definition.singular,
      shortNames: definition.shortNames,
      categories: ["fenceline"],
    },
    versions: [
      {
        name: version,
        served: true,
        storage: true,
        subresources: { status: {} },
        additionalPrinterColumns: definition.columns,
        schema: {
          openAPIV3Schema: {
            type: "object",
            description: definition.description,
            required: ["spec"],
            properties: {
              apiVersion: { type: "string", description: `Version of this shape: ${group}/${version}.` },
              kind: { type: "string", description: `Always ${definition.kind}.` },
              metadata: { type: "object" },
              spec: openApi(definition.spec),
              status: openApi(definition.status),
            },
            ...(definition.rules === undefined ? {} : rules(...definition.rules)),
          },
        },
      },
    ],
  },
});
