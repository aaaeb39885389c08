import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import net from "node:net";

/** Ports for outgoing connections begin here; one of those could be taken while a component is down. */
const firstEphemeral = () =>
  Number(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s/)[0]);

const isFree = (port: number) =>
  new Promise<boolean>((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });

/** `count` different free TCP ports on 127.0.0.1. */
export const freePorts = async (count: number): Promise<number[]> => {
  const found = new Set<number>();
  while (found.size < count) {
    const port = randomInt(10_000, Math.max(firstEphemeral(), 11_000));
    if (await isFree(port)) found.add(port);
  }
  return [...found];
};
