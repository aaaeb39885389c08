/** The reference pages, written from the schemas themselves. */
import { z } from "zod";
import { customResourceDefinition, type Definition, type JsonSchema } from "./crd.ts";
import * as http from "./http.ts";
import { conditionReasons, eventTypes } from "./names.ts";
import { problemSchema, problems } from "./problem.ts";

/** What a JSON schema says of one field, as far as a reference page shows it. */
interface Field {
  type?: string;
  nullable?: boolean;
  format?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  properties?: Record<string, Field>;
  additionalProperties?: Field | boolean;
  items?: Field;
  required?: string[];
  anyOf?: Field[];
  "x-kubernetes-validations"?: { message: string; fieldPath?: string }[];
}

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

const table = (head: string[], rows: string[][]): string =>
  [head, head.map(() => "---"), ...rows].map((row) => `| ${row.map(cell).join(" | ")} |`).join("\n");

const typeOf = (field: Field): string => {
  if (field.enum !== undefined) return field.enum.map((value) => `\`${String(value)}\``).join(" ");
  if (field.anyOf !== undefined) return field.anyOf.map(typeOf).join(" or ");
  if (field.type === "array") return `list of ${field.items?.type ?? "string"}s`;
  return `${field.type ?? "string"}${field.nullable === true ? " or null" : ""}`;
};

const asDefault = (value: unknown): string => (value === undefined ? "" : `\`${JSON.stringify(value)}\``);

const rows = (field: Field, path: string): string[][] =>
  Object.entries(field.properties ?? {}).flatMap(([name, child]) => {
    const required = field.required?.includes(name) === true ? "yes" : "";
    const here = path === "" ? name : `${path}.${name}`;
    const inner = child.type === "array" ? child.items : child;
    const map = typeof child.additionalProperties === "object" ? child.additionalProperties : undefined;
    const below = child.type === "array" ? `${here}[]` : here;
    return [
      [
        `\`${here}\``,
        typeOf(child),
        required,
        child.properties === undefined ? asDefault(child.default) : "",
        child.description ?? "",
      ],
      ...(inner === undefined ? [] : rows(inner, below)),
      ...(map === undefined ? [] : rows(map, `${here}.<name>`)),
    ];
  });

const refusals = (field: Field, path: string): string[][] => [
  ...(field["x-kubernetes-validations"] ?? []).map((rule) => [
    `\`${path}${rule.fieldPath ?? ""}\``,
    rule.message,
  ]),
  ...Object.entries(field.properties ?? {}).flatMap(([name, child]) =>
    refusals(child, path === "" ? name : `${path}.${name}`),
  ),
];

const fieldHead = ["Field", "Type", "Required", "Default", "Meaning"];

const schemaOf = (definition: Definition): Field => {
  const { spec } = customResourceDefinition(definition) as {
    spec: { versions: { schema: { openAPIV3Schema: Field } }[] };
  };
  const schema = spec.versions[0]?.schema.openAPIV3Schema;
  if (schema === undefined) throw new Error(`${definition.kind} has no version`);
  return schema;
};

const kindSection = (definition: Definition): string => {
  const schema = schemaOf(definition);
  const { spec, status } = schema.properties ?? {};
  return [
    `## ${definition.kind}`,
    `${definition.description} ${definition.scope === "Cluster" ? "Cluster-scoped" : "Namespaced"}; short name \`${definition.shortNames.join("`, `")}\`, category \`fenceline\`.`,
    table(fieldHead, [...rows(spec ?? {}, "spec"), ...rows(status ?? {}, "status")]),
    "Refused, with the message that is shown, beside bounds and unknown values:",
    table(["Where", "Message"], refusals({ ...schema, properties: schema.properties ?? {} }, "")),
    `\`kubectl get ${definition.shortNames.join("`, `")}\` prints:`,
    table(
      ["Column", "From", "Shown", "Meaning"],
      definition.columns.map((column) => [
        column.name.toUpperCase(),
        `\`${column.jsonPath}\``,
        column.priority === 1 ? "`-o wide`" : "always",
        column.description,
      ]),
    ),
  ].join("\n\n");
};

/** The page on our kinds, their conditions and their events. */
export const customResourcesPage = (definitions: readonly Definition[]): string =>
  [
    "# Custom resources",
    "Group `fenceline.dev`, version `v1alpha1`. Tokens, marks, ceilings and floors are decimal strings, so that no reader rounds them. Durations are whole seconds.",
    ...definitions.map(kindSection),
    "## Conditions",
    table(
      ["Condition", "Reasons (the first is the one of True)"],
      Object.entries(conditionReasons).map(([type, reasons]) => [
        `\`${type}\``,
        reasons.map((reason) => `\`${reason}\``).join(", "),
      ]),
    ),
    "## Events",
    table(
      ["Reason", "Type"],
      Object.entries(eventTypes).map(([reason, type]) => [`\`${reason}\``, type]),
    ),
  ].join("\n\n");

const body = (schema: z.ZodType): string => {
  const json = z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    unrepresentable: "any",
  }) as JsonSchema as Field;
  return table(fieldHead, rows(json, ""));
};

const base = "/v1/namespaces/{namespace}/resources/{name}";

interface Call {
  title: string;
  line: string;
  needs: string;
  request?: z.ZodType;
  answer: z.ZodType;
}

const calls: Call[] = [
  {
    title: "Acquire",
    line: `POST ${base}/acquire`,
    needs: "the verb `acquire`; repeating one: the identity that made the attempt",
    request: http.acquireRequest,
    answer: http.acquireAnswer,
  },
  {
    title: "Renew",
    line: `POST ${base}/renew`,
    needs: "the identity that made the attempt",
    request: http.renewRequest,
    answer: http.renewAnswer,
  },
  {
    title: "Release",
    line: `POST ${base}/release`,
    needs: "the identity that made the attempt",
    request: http.releaseRequest,
    answer: http.releaseAnswer,
  },
  {
    title: "Take away",
    line: `POST ${base}/force-release`,
    needs: "the verb `force`",
    request: http.forceReleaseRequest,
    answer: http.forceReleaseAnswer,
  },
  { title: "State", line: `GET ${base}`, needs: "the verb `get`", answer: http.stateAnswer },
  {
    title: "Several renewals",
    line: `POST ${http.paths.renewals}`,
    needs: "for each one, the identity that made the attempt",
    request: http.renewalsRequest,
    answer: http.renewalsAnswer,
  },
];

const callSection = (call: Call): string =>
  [
    `## ${call.title}`,
    `\`${call.line}\``,
    `Needs ${call.needs}.`,
    ...(call.request === undefined ? [] : ["Request:", body(call.request)]),
    "Answer 200:",
    body(call.answer),
  ].join("\n\n");

/** The page on the coordinator's API and its errors. */
export const httpApiPage = (): string =>
  [
    "# HTTP API of the coordinator",
    "HTTPS, port 8443, JSON. Bearer token with audience `fenceline`; verbs are checked on `fencedresources.fenceline.dev/<name>`. Tokens are decimal strings, durations milliseconds. Unknown fields of a request are refused.",
    ...calls.map(callSection),
    "## Errors",
    "`application/problem+json` (RFC 9457):",
    body(problemSchema),
    table(
      ["Code", "Status", "Meaning"],
      Object.entries(problems).map(([code, { status, title }]) => [`\`${code}\``, String(status), title]),
    ),
  ].join("\n\n");
