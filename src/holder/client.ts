/** Calls to the coordinator. Every end of a call is a value: a holder decides by it, whatever it is. */
import type { MonoTime } from "../core/time.ts";
import type { Token } from "../core/token.ts";
import type { Clock } from "../runtime/clock.ts";
import { type HttpClient, type JsonAnswer, NoAnswer } from "../runtime/httpclient.ts";
import {
  type ForceResult,
  type Grant,
  type Problem,
  readForce,
  readGrant,
  readProblem,
  readRelease,
  readTerm,
  type ReleaseResult,
  type Term,
} from "./wire.ts";

/**
 * - `ok`: done; `sentAt` is read before anything was sent, so that no delay of the answer stretches a right.
 * - `refused`: the coordinator says no, or not now.
 * - `silent`: no answer, or none of the coordinator's. It may or may not have been done. `lasting`: only a change of
 *   address or certificates can mend it.
 */
export type Reply<T> =
  | { kind: "ok"; sentAt: MonoTime; value: T }
  | { kind: "refused"; problem: Problem }
  | { kind: "silent"; message: string; lasting: boolean };

export interface AcquireBody {
  attempt: string;
  /** Milliseconds to wait while another holds it: 0 … 30,000. */
  waitMs: number;
  label?: string | undefined;
}

export interface HeldBody {
  attempt: string;
  token: Token;
}

/** `resource` is `namespace/name`. Each call ends within `timeoutMs`, or as soon as `signal` is aborted. */
export interface CoordinatorClient {
  acquire(
    resource: string,
    body: AcquireBody,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Reply<Grant>>;
  renew(resource: string, body: HeldBody, timeoutMs: number, signal?: AbortSignal): Promise<Reply<Term>>;
  release(
    resource: string,
    body: HeldBody,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Reply<ReleaseResult>>;
  /** Takes the resource away from whoever holds it. `reason` goes on record. */
  force(
    resource: string,
    reason: string,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Reply<ForceResult>>;
}

/** What waiting does not mend: whoever answers is not who we were told to trust, or speaks something else. */
const lastingCode =
  /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|EPROTO|ENOENT|EACCES|EISDIR)/;

const codeOf = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";

const oneLine = (text: string): string => text.replaceAll(/\s+/g, " ").trim();

/** What OpenSSL says of an answer in plain text. */
const plainText = /wrong version number|packet length too long|http request/;

const silence = (error: NoAnswer): Extract<Reply<never>, { kind: "silent" }> => {
  const message = plainText.test(error.message)
    ? `${error.message.split(": ")[0]}: this server does not speak TLS: check its address`
    : error.message;
  return { kind: "silent", message: oneLine(message), lasting: lastingCode.test(codeOf(error.cause)) };
};

const heldJson = ({ attempt, token }: HeldBody) => ({ attempt, token: token.toString() });

export const makeCoordinatorClient = ({
  http,
  clock,
}: {
  http: HttpClient;
  clock: Clock;
}): CoordinatorClient => {
  const call = async <T>(
    resource: string,
    verb: string,
    body: unknown,
    read: (body: unknown) => T | undefined,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Reply<T>> => {
    const [namespace = "", name = ""] = resource.split("/");
    const path = `/v1/namespaces/${encodeURIComponent(namespace)}/resources/${encodeURIComponent(name)}/${verb}`;
    const sentAt = clock.mono();
    let answer: JsonAnswer;
    try {
      answer = await http.send({ method: "POST", path, body, timeoutMs }, signal);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      return silence(error);
    }
    const value = answer.status === 200 ? read(answer.body) : undefined;
    if (value !== undefined) return { kind: "ok", sentAt, value };
    const problem = answer.status >= 400 ? readProblem(answer.body) : undefined;
    if (problem !== undefined) return { kind: "refused", problem };
    return {
      kind: "silent",
      message: `an answer with status ${answer.status} that is not the coordinator's: check the server's address`,
      lasting: answer.status < 500 && answer.status !== 408 && answer.status !== 429,
    };
  };

  return {
    acquire: (resource, body, timeoutMs, signal) =>
      call(resource, "acquire", body, readGrant, timeoutMs, signal),
    renew: (resource, body, timeoutMs, signal) =>
      call(resource, "renew", heldJson(body), readTerm, timeoutMs, signal),
    release: (resource, body, timeoutMs, signal) =>
      call(resource, "release", heldJson(body), readRelease, timeoutMs, signal),
    force: (resource, reason, timeoutMs, signal) =>
      call(resource, "force-release", { reason }, readForce, timeoutMs, signal),
  };
};
