import { destination, pino } from "pino";
import { clean, cleanText, type LogFields } from "./redact.ts";

/** Messages are constant; what varies goes into fields. */
export interface Logger {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

/** A logger for tests and for commands that have nothing to tell. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

export interface LoggerOptions {
  level: LogLevel;
  /** Where lines go; left out: stderr, written at once, so that nothing is lost with the process. */
  sink?: { write(line: string): void };
}

/** One JSON line per call, times in UTC. Secrets are kept out here, once for everybody. */
export const makeLogger = ({ level, sink }: LoggerOptions): Logger => {
  const out = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    sink ?? destination({ dest: 2, sync: true }),
  );
  const at = (name: "debug" | "info" | "warn" | "error") => (fields: LogFields, message: string) => {
    if (out.isLevelEnabled(name)) out[name](clean(fields), cleanText(message));
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
};
