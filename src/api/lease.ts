import { z } from "zod";
import { objectMetaSchema } from "./k8s.ts";

/**
 * A `coordination.k8s.io/v1` Lease. Its times stay the texts that they came as: whether a record changed is told by
 * comparing them, and a text that goes through a number and back need not be the same.
 */
export const leaseSchema = z.object({
  metadata: objectMetaSchema,
  spec: z
    .object({
      holderIdentity: z.string().optional(),
      leaseDurationSeconds: z.int32().optional(),
      acquireTime: z.string().optional(),
      renewTime: z.string().optional(),
      leaseTransitions: z.int32().optional(),
    })
    .default({}),
});

export type LeaseObject = z.infer<typeof leaseSchema>;
