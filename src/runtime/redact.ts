/** What may be logged. Secrets are kept out here, once for everybody. */

/** What a field of a log line may hold. No objects: a payload or a header map cannot slip in. */
export type LogValue = string | number | bigint | boolean | null | undefined | Error | readonly string[];

/**
 * Fields of one line. Usual ones: `resource` (namespace/name), `holder`, `token` (the fencing token), `attempt`,
 * `traceId`, `error`.
 */
export type LogFields = Readonly<Record<string, LogValue>>;

const hidden = "[redacted]";

/** Names of fields that never hold anything a log needs. Tokens are judged by value: fencing tokens are digits. */
const secretName =
  /authorization|bearer|cookie|credential|passw|secret|api-?key|private|^jwt$|connectionstring/i;

/** What gives a secret away inside a text: bearer headers, signed tokens, passwords in addresses and settings, keys. */
const secretText: readonly [RegExp, string][] = [
  [/-----BEGIN [^-]*PRIVATE KEY-----[\s\S]*?(-----END [^-]*-----|$)/g, hidden],
  [/\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi, `$1 ${hidden}`],
  [/\beyJ[\w-]{5,}\.[\w-]+(\.[\w-]*)?/g, hidden],
  [/(\b[a-z][a-z0-9+.-]*:\/\/[^\s:/@]*):[^\s@]*@/gi, `$1:${hidden}@`],
  [
    /\b(passw(?:or)?d|secret|(?:access_|id_|refresh_)?token)(["']?\s*[=:]\s*["']?)(?!\d{1,19}\b)[^\s"'&,;]+/gi,
    `$1$2${hidden}`,
  ],
];

const longestText = 2048;

/** A text without what looks like a secret, and not endless. */
export const cleanText = (text: string): string => {
  const whole = secretText.reduce((now, [pattern, instead]) => now.replace(pattern, instead), text);
  return whole.length > longestText ? `${whole.slice(0, longestText)}…` : whole;
};

const cleanError = (error: Error): Record<string, string> => ({
  name: error.name,
  message: cleanText(error.message),
  ...("code" in error && typeof error.code === "string" ? { code: error.code } : {}),
  ...(error.stack ? { stack: cleanText(error.stack) } : {}),
  ...(error.cause instanceof Error
    ? { cause: cleanText(`${error.cause.name}: ${error.cause.message}`) }
    : {}),
});

const cleanValue = (name: string, value: LogValue): unknown => {
  if (value === undefined || value === null) return value;
  if (secretName.test(name)) return hidden;
  if (/token/i.test(name)) return /^\d{1,19}$/.test(String(value)) ? String(value) : hidden;
  if (typeof value === "bigint") return String(value);
  if (typeof value === "string") return cleanText(value);
  if (typeof value === "number" || typeof value === "boolean") return value;
  if (value instanceof Error) return cleanError(value);
  // The types allow no objects; one that came in anyway is not printed.
  return Array.isArray(value) ? value.map((item) => cleanText(String(item))) : hidden;
};

/** The fields of a log line as they may be written. */
export const clean = (fields: LogFields): Record<string, unknown> => {
  const result: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) result[name] = cleanValue(name, value);
  return result;
};
