import type { CoordinatorClient, Reply } from "../../src/holder/client.ts";
import type { ForceResult, Grant, Problem, ReleaseResult, Term } from "../../src/holder/wire.ts";
import type { Token } from "../../src/core/token.ts";
import type { Clock } from "../../src/runtime/clock.ts";

export interface Call {
  verb: "acquire" | "renew" | "release" | "force";
  resource: string;
  attempt: string;
  token: Token | undefined;
  waitMs: number | undefined;
  timeoutMs: number;
  /** Milliseconds of the clock's time. */
  sentAt: number;
}

/** What a test lets the coordinator say: a body, a problem, or nothing that is its own. */
export type Said<T> = { value: T } | { problem: Problem } | { silent: string; lasting?: boolean };

export interface FakeCoordinator extends CoordinatorClient {
  /** What is answered, and when: replaced by tests. As it stands the resource is free and nothing ever fails. */
  answers: {
    acquire: (call: Call) => Promise<Said<Grant>> | Said<Grant>;
    renew: (call: Call) => Promise<Said<Term>> | Said<Term>;
    release: (call: Call) => Promise<Said<ReleaseResult>> | Said<ReleaseResult>;
  };
  calls: Call[];
  count: (verb: Call["verb"]) => number;
}

export const grantOf = (token: bigint, more: Partial<Grant> = {}): { value: Grant } => ({
  value: {
    token: token as Token,
    holder: "user:abc/attempt",
    leaseDurationMs: 15_000,
    renewAfterMs: 5000,
    guarantee: "Advisory",
    advanced: true,
    ...more,
  },
});

export const termOf = (leaseDurationMs = 15_000, renewAfterMs = 5000): { value: Term } => ({
  value: { leaseDurationMs, renewAfterMs },
});

export const problemOf = (code: Problem["code"], more: Partial<Problem> = {}): { problem: Problem } => ({
  problem: { code, detail: `${code}, says the test`, ...more },
});

/** Never answers: the call ends by its own time-out. */
export const hangs = (): Promise<never> => new Promise(() => {});

/** A coordinator at the seam of the holder's client, in the time of `clock`: calls end by time-out and by abort. */
export const makeFakeCoordinator = (clock: Clock): FakeCoordinator => {
  const calls: Call[] = [];
  const answers: FakeCoordinator["answers"] = {
    acquire: () => grantOf(1n),
    renew: () => termOf(),
    release: () => ({ value: { released: true } }),
  };

  const answered = async <T>(
    call: Call,
    answer: (call: Call) => Promise<Said<T>> | Said<T>,
    signal: AbortSignal | undefined,
  ): Promise<Reply<T>> => {
    calls.push(call);
    const sentAt = clock.mono();
    if (signal?.aborted) return { kind: "silent", message: "aborted", lasting: false };
    const ended = new AbortController();
    const { promise, resolve } = Promise.withResolvers<Said<T>>();
    const cancel = clock.timer(call.timeoutMs, () =>
      resolve({ silent: `no answer in ${call.timeoutMs} ms` }),
    );
    signal?.addEventListener("abort", () => resolve({ silent: "aborted" }), { signal: ended.signal });
    Promise.resolve(answer(call)).then(resolve, () => resolve({ silent: "the test's answer failed" }));
    const said = await promise;
    cancel();
    ended.abort();
    if ("value" in said) return { kind: "ok", sentAt, value: said.value };
    if ("problem" in said) return { kind: "refused", problem: said.problem };
    return { kind: "silent", message: said.silent, lasting: said.lasting ?? false };
  };

  const callOf = (
    verb: Call["verb"],
    resource: string,
    body: { attempt: string; token?: Token; waitMs?: number },
    timeoutMs: number,
  ): Call => ({
    verb,
    resource,
    attempt: body.attempt,
    token: body.token,
    waitMs: body.waitMs,
    timeoutMs,
    sentAt: clock.mono(),
  });

  return {
    answers,
    calls,
    count: (verb) => calls.filter((call) => call.verb === verb).length,
    acquire: (resource, body, timeoutMs, signal) =>
      answered(callOf("acquire", resource, body, timeoutMs), (call) => answers.acquire(call), signal),
    renew: (resource, body, timeoutMs, signal) =>
      answered(callOf("renew", resource, body, timeoutMs), (call) => answers.renew(call), signal),
    release: (resource, body, timeoutMs, signal) =>
      answered(callOf("release", resource, body, timeoutMs), (call) => answers.release(call), signal),
    force: (): Promise<Reply<ForceResult>> => Promise.reject(new Error("a holder never forces")),
  };
};
