/** What can happen to one request on its way. A fault decides whether, and when, the server serves it. */
import { TransportError } from "../../../src/kube/errors.ts";
import type { HttpAnswer } from "../../../src/kube/types.ts";
import type { Clock } from "../../../src/runtime/clock.ts";
import { failed, type Reason, type StatusExtras } from "./status.ts";

export type Fault = (serve: () => Promise<HttpAnswer>) => Promise<HttpAnswer>;

/** No connection: surely not applied. */
export const notConnected: Fault = async () => {
  throw new TransportError(false, "unreachable", "nothing listens there");
};

/** Lost on its way there: not applied, and nobody can tell. */
export const requestLost: Fault = async () => {
  throw new TransportError(true, "unreachable", "connection reset");
};

/** Applied, and the answer got lost. */
export const answerLost: Fault = async (serve) => {
  await serve();
  throw new TransportError(true, "unreachable", "connection reset");
};

/** Answered by a Status, and not applied. */
export const answered =
  (reason: Reason, extras: StatusExtras = {}): Fault =>
  async () =>
    failed(reason, `${reason}, as the test wants it`, extras);

/** `there`: applied late. `back`: applied at once, answered late. */
export const delayed =
  (clock: Clock, ms: number, way: "there" | "back" = "there"): Fault =>
  async (serve) => {
    if (way === "there") await clock.sleep(ms);
    const answer = await serve();
    if (way === "back") await clock.sleep(ms);
    return answer;
  };

/** Where requests wait until a test lets them go. */
export interface Barrier {
  /** How many wait now. */
  waiting(): number;
  /** Lets all go, in the order in which they came, and all later ones. */
  open(): void;
  fault: Fault;
}

/** Holds requests before they are applied (`there`), or their answers (`back`). */
export const makeBarrier = (way: "there" | "back" = "there"): Barrier => {
  const gate = Promise.withResolvers<void>();
  let waiting = 0;
  const pass = async () => {
    waiting += 1;
    await gate.promise;
    waiting -= 1;
  };
  return {
    waiting: () => waiting,
    open: () => gate.resolve(),
    async fault(serve) {
      if (way === "there") await pass();
      const answer = await serve();
      if (way === "back") await pass();
      return answer;
    },
  };
};
