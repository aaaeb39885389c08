/** Lines of a watch: written at once, read one by one. */
export interface Lines extends AsyncIterable<string> {
  push(line: string): void;
  /** In order, or as a broken connection does: what was not read yet is lost then. */
  end(error?: Error): void;
  /** Called once, when it ends. */
  onEnd: (() => void) | undefined;
}

export const makeLines = (): Lines => {
  const waiting: string[] = [];
  let end: { error: Error | undefined } | undefined;
  let wake: (() => void) | undefined;
  const lines: Lines = {
    onEnd: undefined,
    push(line) {
      if (end !== undefined) return;
      waiting.push(line);
      wake?.();
    },
    end(error) {
      if (end !== undefined) return;
      end = { error };
      lines.onEnd?.();
      wake?.();
    },
    async *[Symbol.asyncIterator]() {
      for (;;) {
        if (end?.error !== undefined) throw end.error;
        const line = waiting.shift();
        if (line !== undefined) yield line;
        else if (end !== undefined) return;
        else
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
      }
    },
  };
  return lines;
};
