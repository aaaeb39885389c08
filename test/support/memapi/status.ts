/** Answers of the API server that are not an object: `Status` bodies with the reasons that clients switch on. */
import type { HttpAnswer } from "../../../src/kube/types.ts";

const codes = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  MethodNotAllowed: 405,
  AlreadyExists: 409,
  Conflict: 409,
  Expired: 410,
  UnsupportedMediaType: 415,
  Invalid: 422,
  TooManyRequests: 429,
  InternalError: 500,
  ServiceUnavailable: 503,
  Timeout: 504,
} as const;

export type Reason = keyof typeof codes;

export interface StatusExtras {
  /** Seconds, as header and in the details. */
  retryAfterSeconds?: number;
  causes?: { reason: string; message?: string }[];
}

/** Thrown by whatever serves a request: it was not carried out. */
export class ApiFailure extends Error {
  readonly reason: Reason;
  readonly extras: StatusExtras;

  constructor(reason: Reason, message: string, extras: StatusExtras = {}) {
    super(message);
    this.reason = reason;
    this.extras = extras;
  }
}

export const statusBody = (reason: Reason, message: string, extras: StatusExtras = {}) => ({
  kind: "Status",
  apiVersion: "v1",
  metadata: {},
  status: "Failure",
  message,
  reason,
  code: codes[reason],
  ...(Object.keys(extras).length > 0 && { details: extras }),
});

export const json = (status: number, body: unknown, headers: Record<string, string> = {}): HttpAnswer => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(body),
});

/** An answer that carries out nothing. */
export const failed = (reason: Reason, message: string = reason, extras: StatusExtras = {}): HttpAnswer =>
  json(
    codes[reason],
    statusBody(reason, message, extras),
    extras.retryAfterSeconds === undefined ? {} : { "retry-after": String(extras.retryAfterSeconds) },
  );
