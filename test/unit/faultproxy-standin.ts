/** Stands in for the API server in the proxy's own tests. */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { makeCertificate } from "../support/faultproxy/certificate.ts";

export const authority = makeCertificate({ commonName: "authority" });
const serverCert = makeCertificate({ commonName: "server", names: ["127.0.0.1"], issuer: authority });
export const admin = makeCertificate({
  commonName: "admin",
  organizations: ["system:masters"],
  issuer: authority,
});
export const leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
export const write = { verb: "update", resource: "leases" } as const;
export const watch = { verb: "watch" } as const;

interface Seen {
  method: string;
  path: string;
  body: string;
  user: string;
}

/** Remembers what reached it, streams a watch, asks for client certificates. */
export const startStandIn = async () => {
  const seen: Seen[] = [];
  const watches = new Set<ServerResponse>();
  const server = https.createServer(
    {
      cert: serverCert.cert,
      key: serverCert.key,
      ca: authority.cert,
      requestCert: true,
      rejectUnauthorized: false,
    },
    (request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => (body += chunk.toString()));
      request.on("end", () => {
        const { CN } = (request.socket as TLSSocket).getPeerCertificate()?.subject ?? {};
        const user = request.headers.authorization ?? `cert:${String(CN)}`;
        seen.push({ method: request.method ?? "", path: request.url ?? "", body, user });
        if (request.url?.includes("watch=true") === true) {
          watches.add(response);
          response.on("close", () => watches.delete(response));
          response.writeHead(200).flushHeaders();
        } else response.writeHead(200, { "content-type": "text/plain" }).end(`answer ${seen.length}\n`);
      });
    },
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    /** Sends text into every open watch. */
    emit: (text: string) => {
      for (const response of watches) response.write(text);
    },
    watches: () => watches.size,
    breakOff: () => server.closeAllConnections(),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};

/** One line of a watch. */
export const event = (n: number) => `{"type":"ADDED","object":${n}}\n`;
