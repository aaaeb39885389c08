/** Requests and answers as the API server has them, for all who send some. */
import { type StatusObject, statusSchema } from "../api/k8s.ts";
import { KubeError, type KubeErrorCode } from "./errors.ts";
import { parseJson } from "./json.ts";
import type { HttpRequest, Kind, KubeObject, Transport } from "./types.ts";

/** The path of a kind's collection, or of one object or subresource in it. Everything that comes from outside is encoded. */
export const pathOf = (
  kind: Kind<KubeObject>,
  namespace: string | undefined,
  ...rest: readonly string[]
): string => {
  const root = kind.group === "" ? `/api/${kind.version}` : `/apis/${kind.group}/${kind.version}`;
  const scope = kind.namespaced && namespace !== undefined ? ["namespaces", namespace] : [];
  return [root, ...[...scope, kind.plural, ...rest].map(encodeURIComponent)].join("/");
};

/** Query of a list or a watch; what is undefined is left out. */
export const queryOf = (options: Record<string, string | number | boolean | undefined>): string => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options))
    if (value !== undefined) query.set(name, String(value));
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
};

export const statusOf = (body: string): StatusObject | undefined => {
  try {
    return statusSchema.parse(parseJson(body));
  } catch {
    return undefined;
  }
};

const codeOf = (status: number): KubeErrorCode => {
  if (status === 401) return "unauthorized";
  if (status === 403) return "forbidden";
  return status === 429 || status >= 500 ? "unreachable" : "bad_answer";
};

/** At most what a header or a Status may ask for; beyond it somebody is wrong. */
const retryAfterMaxSeconds = 60;

/** Milliseconds; a date in the header (RFC 9110 allows it, the API server never sends it) counts as nothing said. */
const retryAfter = (
  answer: { headers: Record<string, string> },
  status?: StatusObject,
): number | undefined => {
  const seconds = Number(answer.headers["retry-after"] ?? status?.details?.retryAfterSeconds ?? Number.NaN);
  return seconds >= 0 ? Math.min(seconds, retryAfterMaxSeconds) * 1000 : undefined;
};

const excerpt = (body: string): string =>
  body.trim() === "" ? "an empty answer" : JSON.stringify(body.slice(0, 120));

/** Reads an answer that is not the wanted one. */
export const errorOf = (
  request: Pick<HttpRequest, "method" | "path">,
  answer: { status: number; headers: Record<string, string>; body: string },
  transport: Pick<Transport, "source">,
): KubeError => {
  const status = statusOf(answer.body);
  const what = `${request.method} ${request.path.split("?")[0]}`;
  const said = status?.message ?? `${excerpt(answer.body)}; is it a Kubernetes API server?`;
  const message =
    answer.status === 401
      ? `${what}: the API server does not accept the credentials (401): ${transport.source ?? "check them"}`
      : `${what}: ${answer.status}: ${said}`;
  const causes = status?.details?.causes ?? [];
  return new KubeError(codeOf(answer.status), message, {
    status: answer.status,
    reason: causes.find((cause) => cause.reason === "ResourceVersionTooLarge")?.reason ?? status?.reason,
    retryAfterMs: retryAfter(answer, status),
  });
};

export const badAnswer = (request: HttpRequest, error: unknown): KubeError => {
  const said = error instanceof Error ? error.message : String(error);
  return new KubeError(
    "bad_answer",
    `${request.method} ${request.path.split("?")[0]}: the answer cannot be read: ${said}`,
    { cause: error },
  );
};
