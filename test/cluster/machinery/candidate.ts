/** A process that wants to lead, for tests to kill: `node candidate.ts KUBECONFIG NAMESPACE IDENTITY SECONDS`. */
import { makeKubeClient } from "../../../src/kube/client.ts";
import { loadKubeConfig } from "../../../src/kube/config.ts";
import { makeElection } from "../../../src/kube/leader.ts";
import { makeTransport } from "../../../src/kube/transport.ts";
import { systemClock, systemRandom } from "../../../src/runtime/clock.ts";
import { makeLifecycle } from "../../../src/runtime/lifecycle.ts";
import { makeLogger } from "../../../src/runtime/logger.ts";

const [path = "", namespace = "", identity = "", seconds = "15"] = process.argv.slice(2);
const log = makeLogger({ level: "info" });
const access = loadKubeConfig({ from: "file", path }, systemClock);
const transport = makeTransport({ access, clock: systemClock });
const lifecycle = makeLifecycle({ clock: systemClock, log, process });

const running = makeElection({
  client: makeKubeClient(transport),
  ref: { namespace, name: "leader" },
  identity,
  durationSeconds: Number(seconds),
  clock: systemClock,
  random: systemRandom,
  log,
  lead: (signal) =>
    new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
}).run(lifecycle.stopping);

lifecycle.onStop("election", 10_000, () => running);
lifecycle.onStop("connections", 1000, () => transport.close());
