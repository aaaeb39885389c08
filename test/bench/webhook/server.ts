/** One server of the bench: gets its certificate from its parent, and tells it its port. */
import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { listen, makeApiServer } from "../../../src/runtime/httpserver.ts";
import { silentLogger } from "../../../src/runtime/logger.ts";
import { makeMetrics } from "../../../src/runtime/metrics.ts";
import { addInjection } from "../../../src/webhook/route.ts";
import { settings } from "../../support/pods.ts";

const [pair] = (await once(process, "message")) as [{ cert: string; key: string }];

const echo = async (): Promise<number> => {
  const server = createServer(pair, (request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(Buffer.concat(parts));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
};

const webhook = async (): Promise<number> => {
  const app = await makeApiServer({
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
    certificate: {
      name: "bench",
      pollMs: 3_600_000,
      read: async () => ({ cert: Buffer.from(pair.cert), key: Buffer.from(pair.key) }),
    },
  });
  const duration = makeMetrics({ perResource: false }).webhookDuration;
  addInjection(app, { settings, clock: systemClock, duration, onRefused() {} });
  return listen(app, "127.0.0.1", 0);
};

process.send?.(process.argv[2] === "echo" ? await echo() : await webhook());
