/** A kubeconfig file, as far as it is read here. Entries that the chosen context does not name may be broken. */
import { z } from "zod";

const text = z.string().min(1);

/** kubectl writes `clusters: null` into an empty file. */
const entries = z
  .array(z.looseObject({ name: text }))
  .nullish()
  .transform((list) => list ?? []);

export const kubeconfigSchema = z.object({
  "current-context": z.string().optional(),
  clusters: entries,
  users: entries,
  contexts: entries,
});

export const contextEntrySchema = z.object({
  context: z.object({ cluster: text, user: z.string().optional(), namespace: text.optional() }),
});

export const clusterEntrySchema = z.object({
  cluster: z.object({
    server: text,
    "certificate-authority": text.optional(),
    "certificate-authority-data": text.optional(),
    "insecure-skip-tls-verify": z.boolean().optional(),
    "tls-server-name": text.optional(),
    "proxy-url": text.optional(),
  }),
});

export const userEntrySchema = z.object({
  user: z
    .object({
      "client-certificate": text.optional(),
      "client-certificate-data": text.optional(),
      "client-key": text.optional(),
      "client-key-data": text.optional(),
      token: text.optional(),
      tokenFile: text.optional(),
      username: text.optional(),
      password: text.optional(),
      as: text.optional(),
      exec: z.looseObject({ command: text }).nullish(),
      "auth-provider": z.looseObject({ name: text }).nullish(),
      // Leaving these out would act as somebody with other rights than the file says.
      "as-groups": z.undefined("is not supported: use a user of its own").optional(),
      "as-uid": z.undefined("is not supported: use a user of its own").optional(),
      "as-user-extra": z.undefined("is not supported: use a user of its own").optional(),
    })
    .nullish()
    .transform((user) => user ?? {}),
});
export type KubeconfigUser = z.infer<typeof userEntrySchema>["user"];
export type KubeconfigCluster = z.infer<typeof clusterEntrySchema>["cluster"];
