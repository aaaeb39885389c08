/**
 * What can go wrong with the API server.
 *
 * | code | means | who mends it |
 * | --- | --- | --- |
 * | unreachable | no answer, or one that says "not now" (429, 5xx) | time |
 * | unauthorized | the server does not know who we are (401) | credentials |
 * | forbidden | it knows, and we may not (403) | RBAC |
 * | bad_config | kubeconfig, certificates or address cannot work | the file and field that the message names |
 * | bad_answer | whatever answered is not what we asked for | address, versions, CRDs |
 */
export type KubeErrorCode = "unreachable" | "unauthorized" | "forbidden" | "bad_config" | "bad_answer";

export interface KubeErrorDetails {
  /** HTTP status of the answer, where there was one. */
  status?: number | undefined;
  /** `reason` of the API server's Status. */
  reason?: string | undefined;
  /** Milliseconds that the server asks us to wait. */
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** One line for people: what, where, what to do. */
export class KubeError extends Error {
  readonly code: KubeErrorCode;
  readonly status: number | undefined;
  readonly reason: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(code: KubeErrorCode, message: string, details: KubeErrorDetails = {}) {
    super(message.replaceAll(/\s+/g, " ").trim(), { cause: details.cause });
    this.name = "KubeError";
    this.code = code;
    this.status = details.status;
    this.reason = details.reason;
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** No whole answer came. */
export class TransportError extends KubeError {
  /** False only if the request surely never left: nothing of it can have been applied. */
  readonly sent: boolean;

  constructor(sent: boolean, code: KubeErrorCode, message: string, cause?: unknown) {
    super(code, message, { cause });
    this.name = "TransportError";
    this.sent = sent;
  }
}
