import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent, request } from "undici";

/** An answer of the coordinator, read as far as it can be. */
export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: Record<string, unknown>;
}

/** Somebody with a bearer token, talking to one coordinator over TLS. */
export interface Caller {
  post(
    path: string,
    body: unknown,
    more?: { headers?: Record<string, string>; raw?: string },
  ): Promise<Answer>;
  get(path: string): Promise<Answer>;
  acquire(resource: string, body?: { attempt?: string; waitMs?: number; label?: string }): Promise<Answer>;
  renew(resource: string, held: Held): Promise<Answer>;
  release(resource: string, held: Held): Promise<Answer>;
  close(): Promise<void>;
}

export interface Held {
  attempt: string;
  token: string;
}

export const pathOf = (resource: string): string => {
  const [namespace, name] = resource.split("/");
  return `/v1/namespaces/${namespace}/resources/${name}`;
};

/** What an acquire gave, for renew and release. */
export const heldBy = ({ body }: Answer): Held => ({
  attempt: String(body["attempt"]),
  token: String(body["token"]),
});

/** `bearer`: the token itself. */
export const makeCaller = ({
  server,
  caFile,
  bearer,
}: {
  server: string;
  caFile: string;
  bearer: string;
}): Caller => {
  const dispatcher = new Agent({ connect: { ca: readFileSync(caFile) }, connections: 64, pipelining: 1 });
  const send = async (
    method: "GET" | "POST",
    path: string,
    body: string | undefined,
    headers: Record<string, string>,
  ): Promise<Answer> => {
    const answer = await request(`${server}${path}`, {
      dispatcher,
      method,
      headers: { authorization: `Bearer ${bearer}`, ...headers },
      ...(body === undefined ? {} : { body }),
    });
    const text = await answer.body.text();
    return {
      status: answer.statusCode,
      headers: answer.headers,
      body: text.startsWith("{") ? (JSON.parse(text) as Record<string, unknown>) : { text },
    };
  };
  const post: Caller["post"] = (path, body, more = {}) =>
    send("POST", path, more.raw ?? JSON.stringify(body), {
      "content-type": "application/json",
      ...more.headers,
    });
  return {
    post,
    get: (path) => send("GET", path, undefined, {}),
    acquire: (resource, body = {}) => post(`${pathOf(resource)}/acquire`, { attempt: randomUUID(), ...body }),
    renew: (resource, held) => post(`${pathOf(resource)}/renew`, held),
    release: (resource, held) => post(`${pathOf(resource)}/release`, held),
    close: () => dispatcher.close(),
  };
};
