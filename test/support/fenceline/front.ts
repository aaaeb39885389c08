/**
 * One address before several controllers, as a Service is: a connection goes to one that is ready, and to another where
 * nobody listens any more. Connections that are open stay where they are.
 */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { request } from "undici";
import type { Controller } from "./install.ts";

export interface Front extends AsyncDisposable {
  /** `https://127.0.0.1:PORT`: the certificate is that of whoever answers. */
  readonly server: string;
  add(controller: Controller): void;
  remove(controller: Controller): void;
}

/** As the readiness probe of a pod: how often, and no answer counts as not ready. */
const probeEveryMs = 200;

const isReady = async ({ ops }: Controller): Promise<boolean> => {
  try {
    const answer = await request(`${ops}/readyz`, { headersTimeout: 1000 });
    await answer.body.dump();
    return answer.statusCode === 200;
  } catch {
    return false;
  }
};

export const startFront = async (first: readonly Controller[]): Promise<Front> => {
  const all = new Set(first);
  let ready: Controller[] = [...first];
  let turn = 0;
  const open = new Set<Socket>();

  const attach = (client: Socket, left: readonly Controller[]): void => {
    const [target, ...others] = left;
    if (target === undefined) return void client.destroy();
    const upstream = connect(Number(new URL(target.server).port), "127.0.0.1");
    upstream.once("connect", () => {
      upstream.removeAllListeners("error");
      for (const [from, to] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        from.on("error", () => to.destroy()).on("close", () => to.destroy());
        from.pipe(to);
      }
    });
    upstream.once("error", () => attach(client, others));
  };

  const listener = createServer((client) => {
    open.add(client);
    client.on("close", () => open.delete(client)).on("error", () => {});
    turn += 1;
    const start = turn % Math.max(1, ready.length);
    attach(client, [...ready.slice(start), ...ready.slice(0, start)]);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const probe = async () => {
    const verdicts = await Promise.all([...all].map(async (one) => ({ one, ok: await isReady(one) })));
    ready = verdicts.filter(({ one, ok }) => ok && all.has(one)).map(({ one }) => one);
  };
  const timer = setInterval(() => void probe(), probeEveryMs);
  return {
    server: `https://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    add: (controller) => void all.add(controller),
    remove(controller) {
      all.delete(controller);
      ready = ready.filter((one) => one !== controller);
    },
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      for (const socket of open) socket.destroy();
      listener.close();
      await once(listener, "close");
    },
  };
};
