/** Shapes of Kubernetes' own objects, as far as they are read here. Unknown fields are left out. */
import { z } from "zod";

/** Never an empty text where there must be one: an object without uid or resourceVersion cannot be written back. */
const text = z.string().min(1);

export const objectMetaSchema = z.object({
  name: text,
  namespace: z.string().optional(),
  uid: text,
  resourceVersion: text,
  generation: z.int().optional(),
  creationTimestamp: z.string().optional(),
  deletionTimestamp: z.string().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  annotations: z.record(z.string(), z.string()).optional(),
  finalizers: z.array(z.string()).optional(),
  ownerReferences: z.array(z.unknown()).optional(),
});

export const namespaceSchema = z.object({
  metadata: objectMetaSchema,
  status: z.object({ phase: z.string().optional() }).optional(),
});
export type NamespaceObject = z.infer<typeof namespaceSchema>;

/** Values are base64. */
export const secretSchema = z.object({
  metadata: objectMetaSchema,
  type: z.string().optional(),
  data: z.record(z.string(), z.string()).optional(),
});
export type SecretObject = z.infer<typeof secretSchema>;

export const configMapSchema = z.object({
  metadata: objectMetaSchema,
  data: z.record(z.string(), z.string()).optional(),
});
export type ConfigMapObject = z.infer<typeof configMapSchema>;

/** Written back as a whole, so everything is kept. */
export const webhookConfigurationSchema = z.looseObject({
  metadata: z.looseObject(objectMetaSchema.shape),
  webhooks: z
    .array(z.looseObject({ clientConfig: z.looseObject({ caBundle: z.string().optional() }) }))
    .optional(),
});
export type WebhookConfiguration = z.infer<typeof webhookConfigurationSchema>;

/** Only what tells whether a container has ended. */
const containerStatusSchema = z.object({
  name: z.string(),
  restartCount: z.int().optional(),
  state: z
    .object({ terminated: z.object({ exitCode: z.int(), finishedAt: z.string().nullish() }).optional() })
    .optional(),
});

const containerNameSchema = z.object({
  name: z.string(),
  restartPolicy: z.string().optional(),
  restartPolicyRules: z.array(z.unknown()).optional(),
});

/** What the controller needs to know of a pod: who it is, and whether its containers have ended. */
export const podSchema = z.object({
  metadata: objectMetaSchema.omit({ finalizers: true, ownerReferences: true }),
  spec: z.object({
    nodeName: z.string().optional(),
    restartPolicy: z.string().optional(),
    initContainers: z.array(containerNameSchema).optional(),
    containers: z.array(containerNameSchema),
  }),
  status: z
    .object({
      phase: z.string().optional(),
      initContainerStatuses: z.array(containerStatusSchema).optional(),
      containerStatuses: z.array(containerStatusSchema).optional(),
    })
    .optional(),
});
export type PodObject = z.infer<typeof podSchema>;

/** What the API server says of a request that it did not carry out. */
export const statusSchema = z.object({
  kind: z.literal("Status"),
  message: z.string().optional(),
  reason: z.string().optional(),
  code: z.number().optional(),
  details: z
    .object({
      retryAfterSeconds: z.number().optional(),
      causes: z.array(z.object({ reason: z.string().optional() })).optional(),
    })
    .optional(),
});
export type StatusObject = z.infer<typeof statusSchema>;

export const listSchema = z.object({
  metadata: z.object({ resourceVersion: text, continue: z.string().optional() }),
  items: z.array(z.unknown()).nullish(),
});

export const watchEventSchema = z.object({ type: z.string(), object: z.unknown() });

export const bookmarkSchema = z.object({ metadata: z.object({ resourceVersion: text }) });

/** Metadata of an object that could not be read as its kind, to say which one it was. */
export const anyObjectSchema = z.object({
  metadata: z.object({
    name: z.string().optional(),
    namespace: z.string().optional(),
    resourceVersion: text.optional(),
  }),
});
