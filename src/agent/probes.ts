/** What the kubelet asks, on the pod's address: health, and nothing that is worth hiding. */
import type { ServerResponse } from "node:http";
import { probePaths, startedPath } from "../api/agentconfig.ts";
import { type PlainServer, servePlain } from "../runtime/plainserver.ts";
import type { Rights } from "./rights.ts";

const answer = (response: ServerResponse, status: number, text: string): void => {
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(text),
  });
  response.end(text);
};

/** 200, or 503 with what is in the way. */
const tell = (response: ServerResponse, trouble: string | undefined): void =>
  answer(response, trouble === undefined ? 200 : 503, `${trouble ?? "ok"}\n`);

const startedPattern = new RegExp(`^${startedPath("([a-z0-9-]{1,63})")}$`);

/** Serves until closed, on every address: the kubelet comes from outside the pod. Throws where the port cannot be had. */
export const serveProbes = (port: number, rights: Rights): Promise<PlainServer> =>
  servePlain({ port, connections: 64 }, ({ url = "" }, response) => {
    if (url === probePaths.live) return tell(response, rights.fault());
    if (url === probePaths.startup) return tell(response, rights.heldBack());
    const container = startedPattern.exec(url)?.[1];
    if (container === undefined) return answer(response, 404, "not found\n");
    rights.started(container);
    tell(response, undefined);
  });
