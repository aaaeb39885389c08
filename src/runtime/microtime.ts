import { type WallTime, wallTime } from "../core/time.ts";

/**
 * Kubernetes' MicroTime: RFC 3339 with exactly six fractional digits. The API server answers 400 to three, none, seven
 * or nine, which a plain `Date` would send.
 */
const form = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})\.(\d{6})(?:Z|([+-])(\d{2}):(\d{2}))$/;

const microsecondsPerMs = 1000n;
const microsecondsPerMinute = 60_000_000n;

/** Reads a MicroTime. Undefined for every other text, also for a day or an hour that does not exist. */
export const parseMicroTime = (text: string): WallTime | undefined => {
  const match = form.exec(text);
  if (match === null) return undefined;
  const [year, month, day, hour, minute, second, fraction] = match.slice(1, 8).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  date.setUTCHours(hour, minute, second);
  // Date carries 31 April over into May, and 25:00 into the next day: what does not come back was never there.
  if (date.toISOString().slice(0, 19) !== text.slice(0, 19)) return undefined;
  const offsetHours = Number(match[9] ?? 0);
  const offsetMinutes = Number(match[10] ?? 0);
  if (offsetHours > 23 || offsetMinutes > 59) return undefined;
  const offset = BigInt(offsetHours * 60 + offsetMinutes) * microsecondsPerMinute;
  const local = BigInt(date.getTime()) * microsecondsPerMs + BigInt(fraction);
  return wallTime(match[8] === "-" ? local + offset : local - offset);
};

/** The text that the API server takes, in UTC. Throws a RangeError outside the years 0 … 9999. */
export const formatMicroTime = (time: WallTime): string => {
  const second = 1_000_000n;
  const fraction = ((time % second) + second) % second;
  const date = new Date(Number((time - fraction) / microsecondsPerMs));
  const text = date.toISOString();
  if (text.length !== 24) throw new RangeError(`a MicroTime has no place for the year of ${text}`);
  return `${text.slice(0, 19)}.${fraction.toString().padStart(6, "0")}Z`;
};
