import { writeSync } from "node:fs";
import type { Clock } from "./clock.ts";
import type { Logger, LogLevel } from "./logger.ts";
import { formatMicroTime } from "./microtime.ts";
import { clean, cleanText, type LogFields } from "./redact.ts";

const levels: readonly LogLevel[] = ["debug", "info", "warn", "error", "silent"];

const toStderr = (line: string): void => {
  try {
    writeSync(2, line);
  } catch {
    // Whoever reads the log has gone or is full: no reason to end.
  }
};

/** The lines of logger.ts without its library: for a process that has no room for one. */
export const makeLineLogger = (options: {
  level: LogLevel;
  clock: Pick<Clock, "wall">;
  write?: (line: string) => void;
}): Logger => {
  const { level, clock, write = toStderr } = options;
  const at = (name: "debug" | "info" | "warn" | "error") => (fields: LogFields, message: string) => {
    if (levels.indexOf(name) < levels.indexOf(level)) return;
    const time = formatMicroTime(clock.wall());
    write(`${JSON.stringify({ level: name, time, ...clean(fields), msg: cleanText(message) })}\n`);
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
};
