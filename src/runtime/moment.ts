/** Moments that outlive the process: what is kept in a file can be judged after a restart on the same boot of a machine. */
import { readFileSync } from "node:fs";
import { type MachineTime, machineTime } from "./clock.ts";

/** A moment of one boot, on both sources of {@link MachineTime}. Milliseconds. */
export interface Moment {
  boot: string;
  running: number;
  /** Time since boot that counts suspension, as in /proc/uptime; null where the platform does not tell. */
  uptime: number | null;
}

export interface Moments {
  /** The moment in `ms`. */
  in(ms: number): Moment;
  /** Milliseconds until `moment`, by the source that says less. −Infinity where it cannot be known: another boot. */
  until(moment: Moment): number;
}

export const makeMoments = (machine: MachineTime, boot: string | undefined): Moments => ({
  in(ms) {
    const uptime = machine.boot();
    return {
      boot: boot ?? "",
      running: machine.running() + ms,
      uptime: uptime === undefined ? null : uptime + ms,
    };
  },
  until(moment) {
    if (boot === undefined || moment.boot !== boot) return -Infinity;
    const uptime = machine.boot();
    const left = moment.running - machine.running();
    return uptime === undefined || moment.uptime === null ? left : Math.min(left, moment.uptime - uptime);
  },
});

/** Reads a {@link Moment} from JSON. */
export const readMoment = (value: unknown): Moment | undefined => {
  if (typeof value !== "object" || value === null) return undefined;
  const { boot, running, uptime } = value as Record<string, unknown>;
  return typeof boot === "string" &&
    typeof running === "number" &&
    (uptime === null || typeof uptime === "number")
    ? { boot, running, uptime }
    : undefined;
};

/** Linux makes a new id at each boot. Undefined elsewhere: there nothing outlives the process. */
const bootId = (): string | undefined => {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim() || undefined;
  } catch {
    return undefined;
  }
};

/** Moments of this machine. */
export const systemMoments = (): Moments => makeMoments(machineTime, bootId());
