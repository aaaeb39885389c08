/** FencedResource: something that must have one writer at a time. */
import { z } from "zod";
import {
  atLeast,
  type Column,
  type Definition,
  int32,
  listMap,
  rules,
  timeField,
  tokenField,
} from "./crd.ts";
import { objectMetaSchema } from "./k8s.ts";
import { apiVersion, conditionTypes, guarantees } from "./names.ts";
import { textMax } from "./text.ts";

const leaseSpec = z
  .object({
    durationSeconds: int32(3, 3600)
      .default(15)
      .describe(
        "Seconds for which a renewal holds: 3 to 3600, default 15. A dead holder's resource is granted to the next one after this time. A change counts from the next renewal.",
      ),
    renewIntervalSeconds: int32(1, 1200)
      .optional()
      .describe(
        "Seconds between two renewals: 1 to 1200, at most a third of durationSeconds, so that two may be lost. Default: a third of durationSeconds.",
      ),
    lockDelaySeconds: int32(0, 3600)
      .default(0)
      .describe(
        "Seconds for which nobody is granted the resource after an unclean loss: 0 to 3600, default 0. Ignored while the guarantee is Fenced.",
      ),
  })
  .meta({
    description: "Timing of the lease.",
    ...rules({
      rule: "!has(self.renewIntervalSeconds) || 3 * self.renewIntervalSeconds <= self.durationSeconds",
      message:
        "leaves no room for two lost renewals: give at most a third of durationSeconds, or leave it out",
      fieldPath: ".renewIntervalSeconds",
    }),
  });

const stores = ["Status", "PostgreSQL"] as const;

const tokensSpec = z
  .object({
    store: z
      .enum(stores)
      .default("Status")
      .meta({
        description:
          "Where the sequence of tokens is kept: Status (a FencedSequence in this cluster, default) or PostgreSQL (the installation's database). Cannot be changed later.",
        ...rules({
          rule: "self == oldSelf",
          message: "cannot be changed: make a new FencedResource with the other store",
        }),
      }),
    reserve: int32(1, 1000)
      .default(64)
      .describe(
        "Tokens reserved by one write to the sequence: 1 to 1000, default 64. More means fewer writes and larger gaps after a deleted Lease.",
      ),
    floor: tokenField(
      'Every token granted from now on is above this one: a decimal string from "0" to "9223372036854775807", default "0". May only grow; growing by more than 2^32 needs the verb force.',
      {
        rule: atLeast("self", "oldSelf"),
        message: "may only grow: tokens never go back",
        messageExpression: "'may only grow: give ' + oldSelf + ' or more, for tokens never go back'",
      },
    ).default("0"),
  })
  .describe("The sequence of fencing tokens.");

const secretRef = (description: string) =>
  z
    .object({
      name: z
        .string()
        .min(1)
        .max(253)
        .describe("Name of the Secret, in the namespace of the FencedResource: 1 to 253 characters."),
      key: z
        .string()
        .min(1)
        .max(253)
        .regex(/^[-._a-zA-Z0-9]+$/)
        .default("url")
        .describe(
          "Key within the Secret whose value is the connection URL: 1 to 253 characters, default url.",
        ),
    })
    .describe(description);

const identifier = z
  .string()
  .min(1)
  .max(63)
  .regex(/^\P{Cc}+$/u);

const postgresqlSpec = z
  .object({
    secretRef: secretRef("Login of the issuer: it may raise the mark and nothing else. Required."),
    adminSecretRef: secretRef(
      "Login of the tables' owner. Only with manage: true, and required then.",
    ).optional(),
    manage: z
      .boolean()
      .default(false)
      .describe(
        "true: the controller installs the guard; false (default): it only verifies the one that was installed by hand.",
      ),
    mode: z
      .enum(["Hold", "Once"])
      .default("Hold")
      .describe(
        "Hold (default): a holder writes as often as it likes under its token; Once: one effect per token.",
      ),
    tables: z
      .array(
        z.object({
          schema: identifier.default("public").describe("Schema: 1 to 63 characters, default public."),
          name: identifier.describe("Table: 1 to 63 characters."),
        }),
      )
      .min(1)
      .max(256)
      .meta({ description: "Tables that refuse a stale token: 1 to 256.", ...listMap("schema", "name") }),
  })
  .meta({
    description: "A PostgreSQL database. Required with type PostgreSQL, refused with every other.",
    ...rules({
      rule: "self.manage == has(self.adminSecretRef)",
      message: "goes with manage: true, and manage: true needs it: set both or neither",
      fieldPath: ".adminSecretRef",
    }),
  });

const gatewaySpec = z
  .object({
    upstream: z
      .string()
      .max(2048)
      .regex(/^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?$/)
      .describe(
        "Address of the service behind the gateway: http or https, a host, at most a path; up to 2048 characters. Must be allowed by the installation.",
      ),
    idempotency: z
      .enum(["Required", "Optional"])
      .default("Required")
      .describe(
        "Must each request that changes something carry an Idempotency-Key? Required (default) or Optional.",
      ),
    upstreamHonoursKey: z
      .boolean()
      .default(false)
      .describe(
        "true: the service does nothing twice for one key, so the same key may be sent again after an unknown outcome. Default false: nothing is sent again by itself.",
      ),
    rejectedStatuses: z.array(int32(300, 599)).max(64).default([]).meta({
      description:
        "Answers of the service that mean that nothing was done: up to 64 HTTP statuses from 300 to 599, default none. 4xx except 408 and 429 always do.",
      "x-kubernetes-list-type": "set",
    }),
    requestLimitKiB: int32(1, 65_536)
      .default(1024)
      .describe("Largest request body that changes something, in KiB: 1 to 65536, default 1024."),
    bodyLimitKiB: int32(0, 1024)
      .default(64)
      .describe(
        "Largest answer that is kept for a replay, in KiB: 0 to 1024, default 64. A larger one is replayed as status, headers and digest.",
      ),
    retentionHours: int32(1, 87_600)
      .default(168)
      .describe("Hours for which finished effects are kept: 1 to 87600, default 168."),
  })
  .describe("An HTTP service behind the gateway. Required with type Gateway, refused with every other.");

const boundaryTypes = ["None", "PostgreSQL", "Gateway"] as const;

const boundarySpec = z
  .object({
    type: z
      .enum(boundaryTypes)
      .default("None")
      .describe(
        "Where tokens are compared: None (default, nowhere: the guarantee is Advisory), PostgreSQL or Gateway.",
      ),
    advance: z
      .enum(["OnGrant", "OnFirstWrite"])
      .default("OnGrant")
      .describe(
        "When older tokens die: OnGrant (default), before a grant is answered; or OnFirstWrite, with the new holder's first write.",
      ),
    postgresql: postgresqlSpec.optional(),
    gateway: gatewaySpec.optional(),
  })
  .meta({
    description: "The place where an effect becomes durable and where tokens are compared.",
    ...rules(
      {
        rule: "(self.type == 'PostgreSQL') == has(self.postgresql)",
        message: "goes with type: PostgreSQL, which needs it: set both or neither",
        fieldPath: ".postgresql",
      },
      {
        rule: "(self.type == 'Gateway') == has(self.gateway)",
        message: "goes with type: Gateway, which needs it: set both or neither",
        fieldPath: ".gateway",
      },
    ),
  });

// Defaults are checked against the rules before those of nested fields are filled in, so each names what rules read.
const spec = z
  .object({
    suspend: z
      .boolean()
      .default(false)
      .describe("true: nobody is granted the resource; a holder keeps it. Default false."),
    lease: leaseSpec.default({ durationSeconds: 15, lockDelaySeconds: 0 }),
    tokens: tokensSpec.default({ store: "Status", reserve: 64, floor: "0" }),
    boundary: boundarySpec.default({ type: "None", advance: "OnGrant" }),
  })
  .describe("What is fenced, and how. Written by people.");

const holderStatus = z
  .object({
    identity: z
      .string()
      .describe("holderIdentity of the Lease: pod:<uid>/<attempt> or user:<hash>/<attempt>."),
    display: z
      .string()
      .describe(
        "What the HOLDER column shows: label, pod or identity; with (expired) once the lease has run out.",
      ),
    pod: z.string().optional().describe("Name of the holder's pod, in this namespace."),
    label: z
      .string()
      .optional()
      .describe(`The holder's own words about itself: up to ${textMax} characters.`),
    token: tokenField("Its token: a decimal string."),
    since: timeField("When it was granted: RFC 3339."),
  })
  .describe(
    "Who holds the resource. A mirror for people: the Lease is the truth. Left out while it is free.",
  );

const transferStatus = z
  .object({
    token: tokenField("Token of the new holder, or the last one where nobody took over: a decimal string."),
    from: z.string().optional().describe("Who held it before; left out if nobody did."),
    to: z.string().optional().describe("Who holds it now; left out if nobody does."),
    reason: z.string().describe("Why it moved: Granted, Released, Expired, Forced or Deleted."),
    time: timeField("When it was seen: RFC 3339."),
  })
  .describe("One change of ownership.");

const conditionSchema = z
  .object({
    type: z
      .string()
      .max(316)
      .describe(`What is stated: ${conditionTypes.slice(0, -1).join(", ")} or ${conditionTypes.at(-1)}.`),
    status: z.enum(["True", "False", "Unknown"]).describe("True, False or Unknown."),
    observedGeneration: z
      .int()
      .optional()
      .meta({ description: "metadata.generation that this was judged by.", format: "int64" }),
    lastTransitionTime: timeField("When status last changed: RFC 3339."),
    reason: z.string().min(1).max(1024).describe("Why, as one word for programs: 1 to 1024 characters."),
    message: z.string().max(32_768).describe("Why, for people, and what to do: up to 32768 characters."),
  })
  .describe("One statement about the resource.");

const status = z
  .object({
    observedGeneration: z
      .int()
      .optional()
      .meta({ description: "metadata.generation that this status was made from.", format: "int64" }),
    guarantee: z
      .enum(guarantees)
      .optional()
      .describe(
        "What the boundary makes true: Fenced (a stale token is refused, and a probe has seen it), Idempotent (one effect per key) or Advisory (overlap is reduced, not excluded).",
      ),
    issuer: z
      .string()
      .optional()
      .describe("Identity of the cluster that may issue tokens; another one is refused."),
    holder: holderStatus.optional(),
    waiters: int32(0, 2_147_483_647)
      .optional()
      .describe("Attempts that wait, summed over all replicas of the coordinator."),
    waitersByReplica: z
      .record(
        z.string(),
        z
          .object({
            count: int32(0, 2_147_483_647).describe("Attempts that wait on this replica."),
            beat: int32(0, 2_147_483_647)
              .optional()
              .describe(
                "Grows with each report: an entry that stands still belongs to a replica that is gone.",
              ),
          })
          .describe("One replica."),
      )
      .optional()
      .describe("Attempts that wait, by name of the coordinator's replica."),
    transfers: z.array(transferStatus).max(10).optional().meta({
      description: "The last changes of ownership, newest last: up to 10.",
      "x-kubernetes-list-type": "atomic",
    }),
    tokens: z
      .object({
        granted: tokenField("Highest token granted, by the Lease: a decimal string.").optional(),
        ceiling: tokenField(
          "No token above this one was ever handed out, by the sequence: a decimal string.",
        ).optional(),
      })
      .optional()
      .describe("Mirrors of Lease and sequence, for people."),
    boundary: z
      .object({
        grantedMark: tokenField("Highest token that the boundary was told of: a decimal string.").optional(),
        verifiedTime: timeField(
          "When a probe last saw the boundary refuse an old token: RFC 3339.",
        ).optional(),
        refusedStaleTime: timeField(
          "When the boundary last refused somebody's stale token: RFC 3339.",
        ).optional(),
      })
      .optional()
      .describe("What was last seen at the boundary."),
    conditions: z
      .array(conditionSchema)
      .max(16)
      .optional()
      .meta({
        description: "Statements about the resource: up to 16, one of each type.",
        ...listMap("type"),
      }),
  })
  .describe("What was seen. Written by Fenceline alone; it decides nothing.");

const columns: Column[] = [
  { name: "Holder", type: "string", jsonPath: ".status.holder.display", description: "Who holds it." },
  {
    name: "Token",
    type: "string",
    jsonPath: ".status.tokens.granted",
    description: "Highest token granted.",
  },
  {
    name: "Guarantee",
    type: "string",
    jsonPath: ".status.guarantee",
    description: "What the boundary makes true.",
  },
  {
    name: "Ready",
    type: "string",
    jsonPath: '.status.conditions[?(@.type=="Ready")].status',
    description: "Whether tokens are granted.",
  },
  {
    name: "Age",
    type: "date",
    jsonPath: ".metadata.creationTimestamp",
    description: "Since when it exists.",
  },
  {
    name: "Mark",
    type: "string",
    jsonPath: ".status.boundary.grantedMark",
    description: "Highest token that the boundary was told of.",
    priority: 1,
  },
  {
    name: "Waiters",
    type: "integer",
    jsonPath: ".status.waiters",
    description: "How many wait.",
    priority: 1,
  },
  {
    name: "Store",
    type: "string",
    jsonPath: ".spec.tokens.store",
    description: "Where the sequence is kept.",
    priority: 1,
  },
  {
    name: "Boundary",
    type: "string",
    jsonPath: ".spec.boundary.type",
    description: "Where tokens are compared.",
    priority: 1,
  },
];

export const fencedResourceDefinition: Definition = {
  kind: "FencedResource",
  plural: "fencedresources",
  singular: "fencedresource",
  shortNames: ["fr"],
  scope: "Namespaced",
  description:
    "Something that must have one writer at a time. Whoever acquires it gets a fencing token, higher than every one before, and the boundary refuses lower ones.",
  columns,
  spec,
  status,
};

/** Reads the text of the boundary of a resource, as it stands in its specification. Throws a ZodError on any other. */
export const parseBoundary = (text: string): BoundarySpec => boundarySpec.parse(JSON.parse(text));

export type FencedResourceSpec = z.infer<typeof spec>;
export type FencedResourceStatus = z.infer<typeof status>;
export type BoundarySpec = z.infer<typeof boundarySpec>;
export type PostgresqlSpec = z.infer<typeof postgresqlSpec>;
export type Condition = z.infer<typeof conditionSchema>;
export type Transfer = z.infer<typeof transferStatus>;

const fencedResource = z.object({
  apiVersion: z.string().default(apiVersion),
  kind: z.string().default("FencedResource"),
  metadata: objectMetaSchema.extend({ namespace: z.string() }),
  spec,
  // A mirror that this version cannot read is made anew.
  status: status.optional().catch(undefined),
});

export type FencedResource = z.infer<typeof fencedResource>;

/** Reads one that the server sent. Unknown fields are dropped; throws a ZodError where it is none. */
export const parseFencedResource = (value: unknown): FencedResource => fencedResource.parse(value);
