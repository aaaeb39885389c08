import { StringDecoder } from "node:string_decoder";

/** What can hold the other side back while nobody reads. */
export interface Flow {
  pause(): void;
  resume(): void;
}

/** Characters that may wait to be read before the other side is held back. */
const highWater = 1 << 20;

/** Bytes in, whole lines out. A rest without a line end comes last, if the stream ended in order. */
export class LineQueue {
  flow: Flow | undefined;
  /** Called once, when the stream has ended in whatever way. */
  onEnd: (() => void) | undefined;
  #decoder = new StringDecoder("utf8");
  #rest: string[] = [];
  #waiting: string[] = [];
  #size = 0;
  #ended = false;
  #error: Error | undefined;
  #wake: (() => void) | undefined;

  push(chunk: Buffer): void {
    const parts = this.#decoder.write(chunk).split("\n");
    // The rest is kept in pieces: joining it for each chunk of a long line would copy it over and over.
    this.#rest.push(parts[0] ?? "");
    for (const part of parts.slice(1)) {
      this.#add(this.#rest.join(""));
      this.#rest = [part];
    }
    if (this.#size > highWater) this.flow?.pause();
    this.#wake?.();
  }

  end(error?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.onEnd?.();
    if (error === undefined) this.#add(this.#rest.join("") + this.#decoder.end());
    this.#wake?.();
  }

  #add(line: string) {
    if (line === "") return;
    this.#waiting.push(line);
    this.#size += line.length;
  }

  async *lines(): AsyncGenerator<string> {
    for (;;) {
      const batch = this.#waiting;
      this.#waiting = [];
      this.#size = 0;
      for (const line of batch) yield line;
      if (this.#waiting.length > 0) continue;
      if (this.#ended) {
        if (this.#error !== undefined) throw this.#error;
        return;
      }
      this.flow?.resume();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }
}
