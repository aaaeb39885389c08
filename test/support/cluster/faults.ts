/** Something broken on purpose. Healing twice does nothing more. */
export interface Fault extends AsyncDisposable {
  readonly what: string;
  heal(): Promise<void>;
}

/** The faults that are open, so that `afterEach` can heal them all, the latest first. */
export class Faults {
  readonly #open = new Set<Fault>();

  add(what: string, undo: () => Promise<void>): Fault {
    const heal = async () => {
      if (this.#open.delete(fault)) await undo();
    };
    const fault: Fault = { what, heal, [Symbol.asyncDispose]: heal };
    this.#open.add(fault);
    return fault;
  }

  /** Heals everything even if one healing fails, and then throws what failed. */
  async healAll(): Promise<void> {
    const errors: unknown[] = [];
    for (const fault of [...this.#open].toReversed()) await fault.heal().catch((error) => errors.push(error));
    if (errors.length > 0) throw new AggregateError(errors, "could not heal the cluster");
  }
}
