/** A bearer token for a service account, from the API server. */
import { z } from "zod";

/** `namespace` and `name` are those of the service account. */
export const tokenRequestPath = (namespace: string, name: string): string =>
  `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;

/** What is used of the answer. */
export const tokenRequest = z.object({
  /** What was granted may be shorter than what was asked for. */
  spec: z.object({ expirationSeconds: z.int().min(1) }),
  status: z.object({ token: z.string().min(1) }),
});
