/**
 * `npm run demo`: two workers, one table, on a real API server and a real PostgreSQL. The holder is stopped, the other
 * takes over, the first wakes up and writes, and the database refuses. Everything runs on this machine's loopback and is gone afterwards.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { styleText } from "node:util";
import { systemAccount, systemNamespace } from "../../src/api/names.ts";
import { startApi } from "../../test/support/cluster/api.ts";
import { childEnvironment } from "../../test/support/cluster/config.ts";
import { until } from "../../test/support/cluster/process.ts";
import {
  type Controller,
  fenceline,
  install,
  startController,
  workerToken,
} from "../../test/support/fenceline/install.ts";
import { makeLab } from "../../test/support/postgres/lab.ts";
import { startServer } from "../../test/support/postgres/server.ts";
import { lacks, thisMachine } from "../../test/support/runner/machine.ts";

const namespace = "shop";
const resource = `${namespace}/orders`;
const leaseSeconds = 6;
const columns = "custom-columns=TYPE:.type,REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message";

const started = performance.now();
let count = 0;

const step = (text: string): void => {
  count += 1;
  const seconds = ((performance.now() - started) / 1000).toFixed(1).padStart(5);
  console.log(`\n${styleText("bold", `${count}. ${text}`)} ${styleText("dim", `(${seconds.trim()} s)`)}`);
};

const command = (text: string): void => console.log(styleText("dim", `   $ ${text}`));
const indented = (text: string): void => console.log(text.trimEnd().replaceAll(/^/gm, "   "));

interface Worker {
  child: ChildProcess;
  lines: string[];
  /** Resolves when a line of it contains `text`. */
  says(text: string, seconds?: number): Promise<string>;
}

/** `fenceline exec` around a program that works every second for as long as it lives. */
const work = (
  { controller, url }: { controller: Controller; url: string },
  name: string,
  tokenFile: string,
  colour: "cyan" | "magenta",
): Worker => {
  const args = [
    "exec",
    "--resource",
    resource,
    "--server",
    controller.server,
    "--ca-file",
    controller.caFile,
  ];
  const program = path.join(import.meta.dirname, "work.ts");
  const child = spawn(
    process.execPath,
    [fenceline, ...args, "--token-file", tokenFile, "--label", name, "--", process.execPath, program],
    { env: childEnvironment({ WORKER: name, DATABASE_URL: url }), stdio: ["ignore", "pipe", "pipe"] },
  );
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on("line", (line) => {
      lines.push(line);
      console.log(`   ${styleText(colour, name.padEnd(5))} │ ${line}`);
    });
  return {
    child,
    lines,
    says: (text, seconds = 30) =>
      until(`${name} to say "${text}"`, seconds * 1000, () => lines.find((line) => line.includes(text))),
  };
};

const programOf = ({ lines }: Worker): number | undefined => {
  const pid = /pid (\d+)/.exec(lines.find((line) => line.startsWith("working")) ?? "")?.[1];
  return pid === undefined ? undefined : Number(pid);
};

/** exec and its program, as a pause of their machine would meet both. */
const signal = (worker: Worker, name: NodeJS.Signals): void => {
  if (worker.child.exitCode !== null) return;
  const program = programOf(worker);
  if (program !== undefined) process.kill(program, name);
  worker.child.kill(name);
};

/** What a person applies: the login of the controller, which it may read, and the resource. */
const manifests = (url: string): object[] => [
  {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "orders-db", namespace },
    stringData: { url },
  },
  {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "Role",
    metadata: { name: "fenceline-database", namespace },
    rules: [{ apiGroups: [""], resources: ["secrets"], resourceNames: ["orders-db"], verbs: ["get"] }],
  },
  {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: { name: "fenceline-database", namespace },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "fenceline-database" },
    subjects: [{ kind: "ServiceAccount", name: systemAccount, namespace: systemNamespace }],
  },
  {
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    metadata: { name: "orders", namespace },
    spec: {
      lease: { durationSeconds: leaseSeconds },
      boundary: {
        type: "PostgreSQL",
        postgresql: { secretRef: { name: "orders-db", key: "url" }, tables: [{ name: "orders" }] },
      },
    },
  },
];

const table = (rows: Record<string, unknown>[]): void => {
  const names = Object.keys(rows[0] ?? {});
  const lines = [names, ...rows.map((row) => names.map((name) => String(row[name])))];
  const widths = names.map((_, at) => Math.max(...lines.map((line) => line[at]?.length ?? 0)));
  for (const line of lines) indented(line.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join("   "));
};

/** A command of ours, run as a person would. */
const run = (args: string[], env: Record<string, string>): void =>
  indented(
    execFileSync(process.execPath, [fenceline, ...args], { env: childEnvironment(env), encoding: "utf8" }),
  );

const play = async (): Promise<void> => {
  step("A real API server with etcd, and a real PostgreSQL, on this machine only");
  await using lab = await startApi();
  await using folder = await makeLab();
  await using server = await startServer(folder);
  indented(`ready at ${lab.server} and 127.0.0.1:${server.port}`);

  step("A table, and its guard. The table belongs to a role that does not log in");
  await server.admin((client) =>
    client.query(`create role shop nologin; create role worker login; create role issuer login;
      create table orders (id int primary key, written_by text, times int);
      insert into orders values (1, 'nobody', 0);
      alter table orders owner to shop; grant select, update on orders to worker`),
  );
  const asAdministrator = { FENCELINE_DATABASE_URL: server.url() };
  const guard = ["--resource", resource, "--table", "orders"];
  command(`fenceline guard install ${guard.join(" ")}`);
  run(["guard", "install", ...guard], asAdministrator);
  command("psql -c 'grant fenceline_worker to worker; grant fenceline_issuer to issuer'");
  await server.admin((client) =>
    client.query("grant fenceline_worker to worker; grant fenceline_issuer to issuer"),
  );

  step("Fenceline: definitions, policies, roles, and the controller as its own service account");
  command("kubectl apply -f crds/ -f deploy/rbac/ -f deploy/policies/ && fenceline controller --config …");
  await install(lab);
  const controller = await startController(lab);
  const workers: Worker[] = [];
  const row = async () => (await server.admin((client) => client.query("select * from orders"))).rows;
  const kubectl = (...args: string[]) => lab.kubectl([...args, "-n", namespace]);
  try {
    indented(`serving at ${controller.server}`);

    step("A FencedResource: one writer of the table at a time. Fenced, once the database was seen to refuse");
    await lab.kubectl(["create", "namespace", namespace]);
    command("kubectl apply -f orders.yaml");
    await lab.apply(...manifests(server.url("issuer")));
    await kubectl("wait", "fr/orders", "--for=jsonpath={.status.guarantee}=Fenced", "--timeout=30s");
    command("kubectl get fr -n shop");
    indented(await kubectl("get", "fr"));

    step("Two workers want it: alice comes first, bob waits");
    command(`fenceline exec --resource ${resource} … -- work`);
    const at = { controller, url: server.url("worker") };
    const alice = work(at, "alice", await workerToken(lab, namespace, "alice"), "cyan");
    workers.push(alice);
    await alice.says("wrote row");
    const bob = work(at, "bob", await workerToken(lab, namespace, "bob"), "magenta");
    workers.push(bob);
    await bob.says("waiting");

    step(
      "alice is stopped in the middle of her work (SIGSTOP), with her program, as by a pause of the machine",
    );
    command("kill -STOP alice");
    signal(alice, "SIGSTOP");

    step(`Nobody renews. After ${leaseSeconds} s of silence bob takes over, with a higher token`);
    await bob.says("wrote row");

    step("alice's program wakes up. It knows nothing, and writes. The database refuses it");
    command("kill -CONT alice's program");
    const before = (await row())[0]?.["written_by"];
    process.kill(programOf(alice) ?? 0, "SIGCONT");
    await alice.says("refused by the database");
    command(`psql -c 'select * from orders'     (before alice woke up: ${before})`);
    table(await row());

    step("The rest of alice wakes up too. The first thing that it learns is that she lost");
    command("kill -CONT alice");
    signal(alice, "SIGCONT");
    await alice.says("lost");
    if (alice.child.exitCode === null) await once(alice.child, "exit");
    indented(`alice's exec ended with ${alice.child.exitCode} (122: lost while running)`);

    await until(
      "bob to go on",
      20_000,
      () => bob.lines.filter((line) => line.startsWith("wrote")).length > 2,
    );
    step("bob is done and gives it back");
    bob.child.kill("SIGTERM");
    if (bob.child.exitCode === null) await once(bob.child, "exit");
    await until("the story to be told", 30_000, async () => {
      const events = await kubectl("get", "events", "-o", columns);
      const waiters = await kubectl("get", "fr/orders", "-o", "jsonpath={.status.waiters}");
      const told = ["LeaseReleased", "OwnershipTransferred", "StaleWriteRejected"];
      return told.every((reason) => events.includes(reason)) && waiters === "0";
    });

    step("What the cluster remembers");
    command("kubectl get fr -n shop -o wide");
    indented(await kubectl("get", "fr", "-o", "wide"));
    command("kubectl get events -n shop");
    indented(await kubectl("get", "events", "--sort-by=.metadata.creationTimestamp", "-o", columns));
  } finally {
    for (const worker of workers) signal(worker, "SIGKILL");
    await controller.kill();
  }
  step("Gone: no process, no file, and no cluster or database of yours was touched");
};

const main = async (): Promise<void> => {
  const machine = thisMachine(process.argv.includes("--setup"));
  const lacking = await lacks("api", machine, (line) => console.log(line));
  if (lacking !== undefined) throw new Error(lacking.replace("npm test", "npm run demo"));
  await play();
};

try {
  await main();
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
