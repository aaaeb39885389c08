/** What 10,000 objects cost in the reflector, beside client-node's own informer. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import { table } from "../support.ts";
import { makeObjects, objectCount } from "./objects.ts";

interface Measured {
  objects: number;
  seconds: number;
  heap: number;
  total: number;
  peakRss: number;
}

/**
 * Goal: heap of the cache in parts of the informer's, where only needed fields are kept. Leases are kept whole, because
 * they are written back: for them the ratio is only told.
 */
const goals = { leases: undefined, pods: 0.4 };

const objects = { leases: makeObjects("leases"), pods: makeObjects("pods") };

/** Pages where they are asked for, and a watch in which nothing happens. */
const server = createServer((request, response) => {
  const url = new URL(request.url ?? "", "http://bench");
  response.setHeader("content-type", "application/json");
  if (url.searchParams.has("watch")) {
    response.flushHeaders();
    return;
  }
  const kind = url.pathname.endsWith("pods") ? "pods" : "leases";
  const from = Number(url.searchParams.get("continue") ?? 0);
  const to = from + Number(url.searchParams.get("limit") ?? objectCount);
  const more = to < objectCount ? { continue: String(to) } : {};
  const head = JSON.stringify({ resourceVersion: "2000000", ...more });
  const list = kind === "pods" ? "PodList" : "LeaseList";
  const version = kind === "pods" ? "v1" : "coordination.k8s.io/v1";
  response.end(
    `{"kind":"${list}","apiVersion":"${version}","metadata":${head},"items":[${objects[kind].slice(from, to).join(",")}]}`,
  );
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

const measure = async (who: "ours" | "peer", kind: "leases" | "pods"): Promise<Measured> => {
  const one = path.join(import.meta.dirname, "one.ts");
  const { stdout } = await promisify(execFile)(process.execPath, ["--expose-gc", one, who, kind, url]);
  return JSON.parse(stdout) as Measured;
};

const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const rows: string[][] = [];
const ratios: string[] = [];
for (const kind of ["leases", "pods"] as const) {
  const [ours, peer] = [await measure("ours", kind), await measure("peer", kind)];
  for (const [name, { objects, heap, total, seconds, peakRss }] of [
    ["reflector", ours],
    ["client-node informer", peer],
  ] as const) {
    if (objects !== objectCount) throw new Error(`${name} has ${objects} of ${objectCount} ${kind}`);
    rows.push([kind, name, mib(heap), mib(total), mib(peakRss), `${seconds.toFixed(2)} s`]);
  }
  const ratio = ours.heap / peer.heap;
  const goal = goals[kind];
  if (goal !== undefined && ratio > goal) process.exitCode = 1;
  ratios.push(
    `${kind}: heap of the cache ${ratio.toFixed(2)}x (${goal === undefined ? "kept whole" : `goal ≤ ${goal}x`}), whole heap ${(ours.total / peer.total).toFixed(2)}x, peak memory ${(ours.peakRss / peer.peakRss).toFixed(2)}x, time to the first whole list ${(ours.seconds / peer.seconds).toFixed(2)}x of the informer's`,
  );
}
console.log(`${objectCount} objects of 1.6 KB, each cache in a process of its own`);
table(["kind", "cache", "heap of the cache", "whole heap", "peak RSS", "first whole list"], rows);
for (const ratio of ratios) console.log(ratio);
server.closeAllConnections();
server.close();
