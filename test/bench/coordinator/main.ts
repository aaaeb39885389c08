/**
 * What coordination costs: hand-over to a waiter and takeover after a silent death, beside client-go's leader election
 * with its usual timings; acquires and renewals a second, beside bare Lease PUTs by a keep-alive client. Everything in
 * one run on one machine: read the ratios, not the figures.
 *
 *     node test/bench/coordinator/main.ts [--rounds 100] [--takeovers 5] [--seconds 4]
 */
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { systemClock } from "../../../src/runtime/clock.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { type Caller, type Held, heldBy, makeCaller } from "../../support/fenceline/caller.ts";
import { type Controller, install, startController, workerToken } from "../../support/fenceline/install.ts";
import { buildPeer, type Parting, takeover } from "../clientgo/peer.ts";
import { quantile, table } from "../support.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "100" },
    takeovers: { type: "string", default: "5" },
    seconds: { type: "string", default: "4" },
  },
});
const rounds = Number(values.rounds);
const takeovers = Number(values.takeovers);
const seconds = Number(values.seconds);
/** client-go's usual lease, so that both wait for the same. */
const leaseSeconds = 15;

const resources = async (lab: Lab, namespace: string, names: readonly string[]): Promise<void> => {
  await lab.apply(
    ...names.map((name) => ({
      apiVersion: "fenceline.dev/v1alpha1",
      kind: "FencedResource",
      metadata: { name, namespace },
      spec: { lease: { durationSeconds: leaseSeconds }, tokens: { reserve: 64 } },
    })),
  );
  for (const name of names)
    await lab.kubectl(["wait", `fr/${name}`, "-n", namespace, "--for=condition=Ready", "--timeout=60s"]);
};

const granted = async (caller: Caller, resource: string, waitMs = 0): Promise<Held> => {
  const answer = await caller.acquire(resource, { waitMs });
  if (answer.status !== 200) throw new Error(`${resource}: ${JSON.stringify(answer.body)}`);
  return heldBy(answer);
};

/** Milliseconds from the release being sent to the waiting attempt's answer. */
const handOver = async (from: Caller, to: Caller, resource: string): Promise<number> => {
  const held = await granted(from, resource, 30_000);
  const next = granted(to, resource, 30_000);
  for (;;) {
    const state = await to.get(`/v1/namespaces/${resource.replace("/", "/resources/")}`);
    if (Number(state.body["waiters"]) > 0) break;
  }
  const sent = performance.now();
  const released = from.release(resource, held);
  const got = await next;
  const took = performance.now() - sent;
  await released;
  await to.release(resource, got);
  return took;
};

/** Milliseconds from the last renewal's answer to the grant of the next one; the holder just falls silent. */
const silentDeath = async (from: Caller, to: Caller, resource: string): Promise<number> => {
  const held = await granted(from, resource);
  const renewed = await from.renew(resource, held);
  if (renewed.status !== 200) throw new Error(JSON.stringify(renewed.body));
  const silent = performance.now();
  const got = await granted(to, resource, 30_000);
  const took = performance.now() - silent;
  await to.release(resource, got);
  return took;
};

/** Calls a second of `clients` that each do `one` over and over for `seconds`. */
const rate = async (clients: number, one: (client: number) => Promise<void>): Promise<number> => {
  let done = 0;
  const end = performance.now() + seconds * 1000;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      while (performance.now() < end) {
        await one(client);
        done += 1;
      }
    }),
  );
  return (done * 1000) / (performance.now() - started);
};

const ms = (value: number): string =>
  value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(1)} ms`;
const ratio = (mine: number, peer: number): string => (mine / peer).toFixed(2);

const latencies = async (lab: Lab, callers: readonly [Caller, Caller], namespace: string): Promise<void> => {
  const [first, second] = callers;
  const binary = await buildPeer();
  const peers = (parting: Parting) =>
    Promise.all(
      Array.from({ length: takeovers }, (_, index) =>
        takeover(
          parting,
          { binary, kubeconfig: lab.kubeconfig, context: lab.context, namespace },
          500 * index,
        ),
      ),
    );
  const over: number[] = [];
  for (let round = 0; round < rounds; round += 1)
    over.push(
      await handOver(
        ...(round % 2 ? ([first, second] as const) : ([second, first] as const)),
        `${namespace}/r0`,
      ),
    );
  const peerOver = (await peers("SIGTERM")).map(({ takeoverMs }) => takeoverMs);
  const [silent, peerKilled, peerStopped] = await Promise.all([
    Promise.all(
      Array.from({ length: takeovers }, (_, index) =>
        silentDeath(first, second, `${namespace}/r${index + 1}`),
      ),
    ),
    peers("SIGKILL"),
    peers("SIGSTOP"),
  ]);
  const peerSilent = peerKilled.map(({ takeoverMs }) => takeoverMs);
  const row = (name: string, mine: readonly number[], peer: readonly number[]) => [
    name,
    ...[0, 0.5, 0.99].map((part) => ms(quantile(mine, part))),
    ...[0, 0.5, 0.99].map((part) => ms(quantile(peer, part))),
    ratio(quantile(mine, 0.5), quantile(peer, 0.5)),
  ];
  table(
    ["", "min", "median", "p99", "client-go min", "median", "p99", "ratio of medians"],
    [
      row("hand-over to a waiter", over, peerOver),
      row(`silent death, ${leaseSeconds} s lease`, silent, peerSilent),
    ],
  );
  const worked = peerStopped.flatMap(({ workedOnMs }) => workedOnMs ?? []);
  console.log(
    `\nA leader of client-go that was stopped and woke up worked on beside its successor for ${ms(quantile(worked, 0.5))} (median).`,
  );
};

const rates = async (lab: Lab, caller: Caller, namespace: string): Promise<void> => {
  const transport = makeTransport({
    access: loadKubeConfig({ from: "file", path: lab.kubeconfig, context: lab.context }, systemClock),
    clock: systemClock,
  });
  const lease = (index: number) =>
    `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/bare-${index}`;
  const bodies: { metadata: { resourceVersion: string }; spec: { renewTime?: string } }[] = [];
  for (let index = 0; index < 16; index += 1) {
    const body = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: `bare-${index}`, namespace },
      spec: {},
    };
    const request = {
      method: "POST" as const,
      path: lease(index).replace(/\/bare.*/, ""),
      body: JSON.stringify(body),
      verb: "create",
      resource: "leases",
    };
    bodies.push(JSON.parse((await transport.request(request)).body) as (typeof bodies)[number]);
  }
  let tick = 0;
  const put = async (index: number): Promise<void> => {
    const body = bodies[index];
    if (body === undefined) throw new Error("no such Lease");
    tick += 1;
    body.spec.renewTime = `2026-01-01T00:00:00.${String(tick % 1_000_000).padStart(6, "0")}Z`;
    const answer = await transport.request({
      method: "PUT",
      path: lease(index),
      body: JSON.stringify(body),
      verb: "update",
      resource: "leases",
    });
    if (answer.status !== 200) throw new Error(answer.body);
    bodies[index] = JSON.parse(answer.body) as (typeof bodies)[number];
  };
  const name = (index: number) => `${namespace}/r${index}`;
  const cycle = async (index: number): Promise<void> => {
    const held = await granted(caller, name(index), 30_000);
    await caller.release(name(index), held);
  };
  const rows: string[][] = [];
  for (const clients of [1, 16]) {
    const held = await Promise.all(
      Array.from({ length: clients }, (_, index) => granted(caller, name(index), 30_000)),
    );
    const renew = async (index: number): Promise<void> => {
      const mine = held[index];
      if (mine === undefined || (await caller.renew(name(index), mine)).status !== 200)
        throw new Error("not renewed");
    };
    const measured = { bare: [] as number[], renew: [] as number[], cycle: [] as number[] };
    // In turns, so that what the machine does besides falls on all of them.
    for (let turn = 0; turn < 3; turn += 1) {
      measured.bare.push(await rate(clients, put));
      measured.renew.push(await rate(clients, renew));
    }
    await Promise.all(held.map((mine, index) => caller.release(name(index), mine)));
    for (let turn = 0; turn < 3; turn += 1) measured.cycle.push((await rate(clients, cycle)) * 2);
    const bare = quantile(measured.bare, 0.5);
    const row = (what: string, samples: readonly number[]) => {
      const median = quantile(samples, 0.5);
      return [what, String(clients), `${median.toFixed(0)}/s`, `${bare.toFixed(0)}/s`, ratio(median, bare)];
    };
    rows.push(row("renew", measured.renew), row("acquire and release, calls", measured.cycle));
  }
  await transport.close();
  console.log("");
  table(["", "clients", "Fenceline", "bare Lease PUT", "ratio"], rows);
};

await using lab = await startApi();
await install(lab);
const controllers: Controller[] = [];
try {
  for (const replica of ["bench-0", "bench-1"]) controllers.push(await startController(lab, { replica }));
  const namespace = await lab.namespace("bench");
  await resources(
    lab,
    namespace,
    Array.from({ length: 16 }, (_, index) => `r${index}`),
  );
  const bearer = await readFile(await workerToken(lab, namespace, "worker"), "utf8");
  const [first, second] = controllers.map(({ server, caFile }) => makeCaller({ server, caFile, bearer }));
  if (first === undefined || second === undefined) throw new Error("two replicas are needed");
  console.log(`${rounds} hand-overs, ${takeovers} takeovers, ${seconds} s a rate\n`);
  await latencies(lab, [first, second], namespace);
  await rates(lab, first, namespace);
  await Promise.all([first.close(), second.close()]);
} finally {
  await Promise.all(controllers.map((controller) => controller.kill()));
}
