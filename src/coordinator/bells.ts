/** Who wants to be woken when something about a key changed. */
export interface Bells {
  ring(key: string): void;
  /** Returns what ends the listening. */
  listen(key: string, wake: () => void): () => void;
}

export const makeBells = (): Bells => {
  const listeners = new Map<string, Set<() => void>>();
  return {
    ring(key) {
      for (const wake of listeners.get(key) ?? []) wake();
    },
    listen(key, wake) {
      const all = listeners.get(key) ?? new Set();
      listeners.set(key, all.add(wake));
      return () => {
        all.delete(wake);
        if (all.size === 0) listeners.delete(key);
      };
    },
  };
};
