/** The ways of a process to the API server and to boundaries: shipped code on one side, a network with faults between. */
import type { Boundary } from "../../src/boundary/port.ts";
import { TransportError } from "../../src/kube/errors.ts";
import type { HttpRequest, Transport } from "../../src/kube/types.ts";
import { makeLines } from "../support/memapi/lines.ts";
import type { DurableBoundary } from "./boundary.ts";
import type { Network, Way } from "./network.ts";
import type { Actor, TrueTime } from "./time.ts";

/** What `work` comes to; what `late` makes where it takes too long by the actor's clock, or `signal` is aborted. */
export const limited = async <T>(
  actor: Actor,
  ms: number,
  signal: AbortSignal | undefined,
  work: Promise<T>,
  late: (why: "late" | "aborted") => Error,
): Promise<T> => {
  const given = Promise.withResolvers<never>();
  const abort = () => given.reject(late("aborted"));
  const cancel = actor.clock.timer(ms, () => given.reject(late("late")));
  signal?.addEventListener("abort", abort);
  try {
    const result = await Promise.race([work, given.promise]);
    await actor.gate();
    return result;
  } catch (error) {
    await actor.gate();
    throw error;
  } finally {
    cancel();
    signal?.removeEventListener("abort", abort);
  }
};

export interface WayDeps {
  time: TrueTime;
  network: Network;
  actor: Actor;
}

const lost = () => new TransportError(true, "unreachable", "no answer in time");

/** After this a request without an answer is given up by its sender, as the shipped transport does. */
const requestMs = 10_000;

/** `waysOf`: what a request goes through, all of which can be in trouble. */
export const makeSimTransport = (
  { time, network, actor }: WayDeps,
  inner: Transport,
  waysOf: (request: HttpRequest) => readonly Way[],
): Transport => {
  const send = <T>(request: HttpRequest, signal: AbortSignal | undefined, serve: () => Promise<T>) => {
    if (signal?.aborted === true)
      throw new TransportError(false, "unreachable", "given up before it was sent");
    const ways = waysOf(request);
    if (network.refused(ways)) throw new TransportError(false, "unreachable", "nothing listens there");
    return limited(actor, requestMs, signal, network.carry(ways, undefined, serve), lost);
  };

  return {
    source: inner.source,
    request: async (request, signal) => send(request, signal, () => inner.request(request)),
    async open(request, signal) {
      const end = new AbortController();
      const opened = await send(request, signal, () => inner.open(request, end.signal));
      const ways = waysOf(request);
      const lines = makeLines();
      const abort = () => {
        end.abort();
        lines.end(lost());
      };
      signal.addEventListener("abort", abort);
      lines.onEnd = () => signal.removeEventListener("abort", abort);
      if (signal.aborted) abort();
      let deaf = false;
      let arrives = 0;
      let last = Promise.resolve();
      /** In order; a cut connection does not say so. */
      const deliver = (act: () => void) => {
        arrives = Math.max(arrives, time.now() + network.delayMs(ways));
        time.at(arrives, () => {
          deaf ||= ways.some((way) => way.trouble().cutBack);
          if (deaf) return;
          last = last.then(() => actor.gate()).then(act);
        });
      };
      const pump = async () => {
        try {
          for await (const line of opened.lines) deliver(() => lines.push(line));
          deliver(() => lines.end());
        } catch (error) {
          deliver(() => lines.end(error instanceof Error ? error : lost()));
        }
      };
      void pump();
      return { ...opened, lines };
    },
  };
};

/** What shipped drivers give an advance, and then some. */
const advanceMs = 5_000;

/** A boundary as one process reaches it. */
export const boundaryThrough = (
  { network, actor }: WayDeps,
  ways: readonly Way[],
  inner: DurableBoundary,
): Boundary => {
  const call = async <T>(
    signal: AbortSignal | undefined,
    serve: () => Promise<T>,
  ): Promise<T | { outcome: "unknown"; message: string }> => {
    if (network.refused(ways)) return { outcome: "unknown", message: "connection refused" };
    try {
      return await limited(actor, advanceMs, signal, network.carry(ways, undefined, serve), lost);
    } catch (error) {
      return { outcome: "unknown", message: error instanceof Error ? error.message : String(error) };
    }
  };
  return {
    advance: (token, holder, signal) => call(signal, () => inner.advance(token, holder)),
    marks: (signal) => call(signal, () => inner.marks()),
    verify: (signal) => call(signal, () => inner.verify()),
    reopen: (token, holder, closing, signal) => call(signal, () => inner.reopen(token, holder, closing)),
  };
};
