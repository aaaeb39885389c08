/** Something that was broken on purpose. `using fault = proxy.delay(50)` heals it at the end of the block. */
export interface Fault extends Disposable {
  /** Ends the fault; a second call does nothing. */
  heal(): void;
}

/** The faults in force at one proxy. */
export class Faults {
  readonly #active = new Set<Fault>();

  /** Registers a fault that is in force until `stop` is called, which happens once. */
  add(stop: () => void): Fault {
    const fault: Fault = {
      heal: () => {
        if (this.#active.delete(fault)) stop();
      },
      [Symbol.dispose]: () => fault.heal(),
    };
    this.#active.add(fault);
    return fault;
  }

  heal(): void {
    for (const fault of this.#active) fault.heal();
  }
}

/** Uniform numbers in [0, 1), the same for the same seed (mulberry32). */
export const seeded = (seed: number): (() => number) => {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
};
