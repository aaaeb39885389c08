/**
 * `fenceline agent`: the sidecar that holds a pod's rights. It has no rights in Kubernetes and loads no library: what it
 * may import is small, because it stands beside every worker.
 */
import path from "node:path";
import { AgentConfigError, readAgentConfig } from "../api/agentconfig.ts";
import { makeCoordinatorClient } from "../holder/client.ts";
import { makeHolder } from "../holder/holder.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import { makeHttpClient } from "../runtime/httpclient.ts";
import { makeLifecycle, type ProcessLike } from "../runtime/lifecycle.ts";
import { makeLineLogger } from "../runtime/linelogger.ts";
import type { Moments } from "../runtime/moment.ts";
import { makeAppFiles } from "./files.ts";
import { serveLocalApi } from "./localapi.ts";
import { openMemories } from "./memory.ts";
import { serveProbes } from "./probes.ts";
import { makeRights } from "./rights.ts";
import { makeSlot } from "./slot.ts";

export interface AgentEnvironment {
  env: Readonly<Record<string, string | undefined>>;
  clock: Clock;
  random: Random;
  moments: Moments;
  process: ProcessLike;
  stderr: { write(text: string): unknown };
}

/** The kubelet waits 2 s at least before it kills: what is not given back by then runs out. */
const releaseBoundMs = 1800;

/** Runs until it is told to stop. Where it cannot begin it ends at once, and gives nothing back: an app may be at work. */
export const runAgent = async (environment: AgentEnvironment): Promise<void> => {
  try {
    await serve(environment);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    environment.stderr.write(`fenceline agent: ${message}\n`);
    environment.process.exit(error instanceof AgentConfigError ? 2 : 1);
  }
};

const serve = async ({ env, clock, random, moments, process }: AgentEnvironment): Promise<void> => {
  const config = readAgentConfig(env);
  const log = makeLineLogger({ level: config.logLevel, clock });
  const lifecycle = makeLifecycle({ clock, log, process, asked: 0 });
  const http = makeHttpClient({
    server: config.server,
    caFile: config.caFile,
    bearerFile: config.tokenFile,
    clock,
  });
  const holder = makeHolder({ client: makeCoordinatorClient({ http, clock }), clock, random, log });
  const memories = await openMemories(config.stateDir);
  const slots = config.resources.map((name) =>
    makeSlot(config.namespace, name, {
      holder,
      memories,
      moments,
      files: makeAppFiles(path.join(config.dir, name)),
      random,
      log,
      label: config.label,
    }),
  );
  const rights = makeRights({ ...config, slots, memories, clock, random, log });
  lifecycle.onStop("rights", releaseBoundMs, () => rights.end());
  await rights.start();
  const [local, probes] = await Promise.all([
    serveLocalApi(config.localPort, { rights, clock, moments }),
    serveProbes(config.probePort, rights),
  ]);
  log.info({ port: local.port, probePort: probes.port, wait: config.wait, onLoss: config.onLoss }, "serving");
};
