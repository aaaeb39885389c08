/** At most `size` at a time; the others wait in order. */
export interface Slots {
  /** Resolves with what gives the place back. Rejects with the signal's reason when that is aborted first. */
  take(signal?: AbortSignal): Promise<() => void>;
}

export const makeSlots = (size: number): Slots => {
  let free = size;
  const waiting: (() => void)[] = [];
  const give = () => {
    const next = waiting.shift();
    if (next === undefined) free += 1;
    else next();
  };
  return {
    async take(signal) {
      signal?.throwIfAborted();
      if (free > 0) free -= 1;
      else
        await new Promise<void>((resolve, reject) => {
          const turn = () => {
            signal?.removeEventListener("abort", abort);
            resolve();
          };
          const abort = () => {
            waiting.splice(waiting.indexOf(turn), 1);
            reject(signal?.reason);
          };
          waiting.push(turn);
          signal?.addEventListener("abort", abort, { once: true });
        });
      let held = true;
      return () => {
        if (held) give();
        held = false;
      };
    },
  };
};
