/**
 * `npm run demo`: two workers, one resource, on a real API server. The holder is stopped, the other takes over, and the
 * first wakes up and learns that it lost. Everything runs on this machine's loopback and is gone afterwards.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { styleText } from "node:util";
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
  controller: Controller,
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
    { env: childEnvironment(), stdio: ["ignore", "pipe", "pipe"] },
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

/** exec and its program, as a pause of their machine would meet both. */
const signal = (worker: Worker, name: NodeJS.Signals): void => {
  if (worker.child.exitCode !== null) return;
  const program = /pid (\d+)/.exec(worker.lines.find((line) => line.startsWith("working")) ?? "")?.[1];
  if (program !== undefined) process.kill(Number(program), name);
  worker.child.kill(name);
};

const play = async (): Promise<void> => {
  step("A real API server and etcd, on this machine only");
  await using lab = await startApi();
  indented(`ready at ${lab.server}`);

  step("Fenceline: definitions, policies, roles, and the controller as its own service account");
  command("kubectl apply -f crds/ -f deploy/rbac/ -f deploy/policies/ && fenceline controller --config …");
  await install(lab);
  const controller = await startController(lab);
  const workers: Worker[] = [];
  try {
    indented(`serving at ${controller.server}`);

    step("A FencedResource");
    await lab.kubectl(["create", "namespace", namespace]);
    const manifest = {
      apiVersion: "fenceline.dev/v1alpha1",
      kind: "FencedResource",
      metadata: { name: "orders", namespace },
      spec: { lease: { durationSeconds: leaseSeconds } },
    };
    command("kubectl apply -f orders.yaml");
    await lab.apply(manifest);
    await lab.kubectl(["wait", "fr/orders", "-n", namespace, "--for=condition=Ready", "--timeout=20s"]);
    command("kubectl get fr -n shop");
    indented(await lab.kubectl(["get", "fr", "-n", namespace]));

    step("Two workers want it: alice comes first, bob waits");
    command(`fenceline exec --resource ${resource} … -- work`);
    const alice = work(controller, "alice", await workerToken(lab, namespace, "alice"), "cyan");
    workers.push(alice);
    await alice.says("working");
    const bob = work(controller, "bob", await workerToken(lab, namespace, "bob"), "magenta");
    workers.push(bob);
    await bob.says("waiting");

    step(
      `alice is stopped in the middle of her work (SIGSTOP), with her program, as by a long pause of the machine`,
    );
    command("kill -STOP alice");
    signal(alice, "SIGSTOP");

    step(`Nobody renews. After ${leaseSeconds} s of silence bob takes over, with a higher token`);
    await bob.says("working");

    step("alice wakes up. The first thing that she learns is that she lost");
    command("kill -CONT alice");
    signal(alice, "SIGCONT");
    await alice.says("lost");
    if (alice.child.exitCode === null) await once(alice.child, "exit");
    indented(`alice's exec ended with ${alice.child.exitCode} (122: lost while running)`);

    await bob.says("still working");
    step("bob is done and gives it back");
    bob.child.kill("SIGTERM");
    if (bob.child.exitCode === null) await once(bob.child, "exit");
    await until("the story to be told", 20_000, async () => {
      const events = await lab.kubectl(["get", "events", "-n", namespace, "-o", columns]);
      const waiters = await lab.kubectl([
        "get",
        "fr/orders",
        "-n",
        namespace,
        "-o",
        "jsonpath={.status.waiters}",
      ]);
      return events.includes("LeaseReleased") && events.includes("OwnershipTransferred") && waiters === "0";
    });

    step("What the cluster remembers");
    command("kubectl get fr -n shop -o wide");
    indented(await lab.kubectl(["get", "fr", "-n", namespace, "-o", "wide"]));
    command("kubectl get events -n shop");
    indented(
      await lab.kubectl([
        "get",
        "events",
        "-n",
        namespace,
        "--sort-by=.metadata.creationTimestamp",
        "-o",
        columns,
      ]),
    );
  } finally {
    for (const worker of workers) signal(worker, "SIGKILL");
    await controller.kill();
  }
  step("Gone: no process, no file, and no cluster of yours was touched");
};

try {
  await play();
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
