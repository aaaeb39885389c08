/**
 * From a signal to the exit: steps in the order in which they were registered, each within its own bound.
 *
 * | state | signal | step fails or exceeds its bound | all steps done |
 * | --- | --- | --- | --- |
 * | running | stopping: first step | – | – |
 * | stopping | forced: exit at once | logged, its signal aborted, next step | exit |
 */
import { constants } from "node:os";
import type { Clock } from "./clock.ts";
import type { Logger } from "./logger.ts";

/** What a lifecycle needs of `process`. */
export interface ProcessLike {
  on(event: "SIGTERM" | "SIGINT", listener: () => void): unknown;
  on(event: "uncaughtException" | "unhandledRejection", listener: (error: unknown) => void): unknown;
  exit(code: number): void;
}

export interface Lifecycle {
  /** Aborted when the process is to end: nothing new is begun from then on. */
  readonly stopping: AbortSignal;
  /**
   * Registers the next step of an orderly end: first what makes the process unready, then what stops the intake, then
   * what finishes or aborts, releases leases, closes servers, ends pools. `step` gets a signal that is aborted after
   * `boundMs`; the next step then starts at once.
   */
  onStop(name: string, boundMs: number, step: (signal: AbortSignal) => Promise<void> | void): void;
  /** Begins the end and exits with `code`. Resolves when every step is over. Only the first call counts. */
  stop(code: number): Promise<void>;
}

interface Step {
  name: string;
  boundMs: number;
  run: (signal: AbortSignal) => Promise<void> | void;
}

const exitCodeOf = (signal: "SIGTERM" | "SIGINT"): number => 128 + constants.signals[signal];

/**
 * Listens to SIGTERM and SIGINT, and ends the process on an error that nobody caught. `asked`: exit code of an orderly end
 * by a signal; left out: 128 + signal.
 */
export const makeLifecycle = (deps: {
  clock: Clock;
  log: Logger;
  process: ProcessLike;
  asked?: number;
}): Lifecycle => {
  const { clock, log, process, asked } = deps;
  const steps: Step[] = [];
  const stopping = new AbortController();
  let ending: Promise<void> | undefined;

  const run = async ({ name, boundMs, run }: Step): Promise<void> => {
    const bound = new AbortController();
    const exceeded = Promise.withResolvers<void>();
    const cancel = clock.timer(boundMs, () => {
      log.warn({ step: name, boundMs }, "shutdown step exceeded its bound");
      bound.abort(new Error(`shutdown step ${name} exceeded ${boundMs} ms`));
      exceeded.resolve();
    });
    const done = (async () => {
      try {
        await run(bound.signal);
      } catch (error) {
        if (!bound.signal.aborted) log.error({ step: name, error: toError(error) }, "shutdown step failed");
      }
    })();
    await Promise.race([done, exceeded.promise]);
    cancel();
  };

  const end = async (code: number): Promise<void> => {
    stopping.abort(new Error("the process is ending"));
    for (const step of steps) await run(step);
    process.exit(code);
  };

  const stop = (code: number): Promise<void> => (ending ??= end(code));

  const onSignal = (signal: "SIGTERM" | "SIGINT") => () => {
    if (ending) {
      log.warn({ signal }, "second signal: ending at once");
      process.exit(exitCodeOf(signal));
      return;
    }
    log.info({ signal }, "stopping");
    void stop(asked ?? exitCodeOf(signal));
  };
  process.on("SIGTERM", onSignal("SIGTERM"));
  process.on("SIGINT", onSignal("SIGINT"));

  // What nobody caught leaves the process in a state that nobody knows: others take over sooner if it is gone.
  const fatal = (error: unknown): void => {
    log.error({ error: toError(error) }, "uncaught error: ending");
    process.exit(1);
  };
  process.on("uncaughtException", fatal);
  process.on("unhandledRejection", fatal);

  return {
    stopping: stopping.signal,
    onStop: (name, boundMs, step) => void steps.push({ name, boundMs, run: step }),
    stop,
  };
};

const toError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
