/** The long-running process: coordinator and controller on one set of watches, put together. */
import { readFile } from "node:fs/promises";
import { parse as parseYaml } from "yaml";
import { type ControllerConfig, controllerConfig } from "./api/config.ts";
import type { FencedResource } from "./api/fencedresource.ts";
import type { FencedSequence } from "./api/fencedsequence.ts";
import { leaderLease, leaseName, resourceLabel, resourceLabelValue, leaseAnnotations } from "./api/names.ts";
import { resourceSpec } from "./api/resourcespec.ts";
import { parse } from "./api/text.ts";
import { readCredential } from "./boundary/credentials.ts";
import { makePostgresDriver } from "./boundary/driver.ts";
import { makeBoundaries } from "./boundary/registry.ts";
import { makeController } from "./controller/controller.ts";
import { releaseForEndedPods } from "./controller/pods.ts";
import { makeAuth } from "./coordinator/auth.ts";
import { makeBook } from "./coordinator/book.ts";
import { makeCoordinator } from "./coordinator/coordinator.ts";
import type { Resources } from "./coordinator/deps.ts";
import { addRoutes } from "./coordinator/http.ts";
import { makeWaiterMirror } from "./coordinator/waitermirror.ts";
import { makeWaitingEvents } from "./coordinator/waiting.ts";
import { takeableAt } from "./core/observation.ts";
import type { ResourceSpec } from "./core/resource.ts";
import type { LeaseObject } from "./api/lease.ts";
import { makeKubeClient } from "./kube/client.ts";
import { type KubeSource, loadKubeConfig } from "./kube/config.ts";
import {
  fencedResourceKind,
  fencedSequenceKind,
  leaseKind,
  namespaceKind,
  secretKind,
} from "./kube/kinds.ts";
import { keyOf, makeLeases, readLease, type ResourceName } from "./kube/leases.ts";
import { makeElection } from "./kube/leader.ts";
import { makeEventRecorder } from "./kube/events.ts";
import { makeReflector } from "./kube/reflector.ts";
import { stateOf } from "./kube/state.ts";
import { makeTransport } from "./kube/transport.ts";
import type { KubeClient } from "./kube/types.ts";
import { type CertificateSource, certificateFiles } from "./runtime/certificate.ts";
import type { Clock, Random } from "./runtime/clock.ts";
import type { Check } from "./runtime/health.ts";
import { listen, makeApiServer, makeOpsServer } from "./runtime/httpserver.ts";
import { makeLifecycle, type ProcessLike } from "./runtime/lifecycle.ts";
import { type Logger, makeLogger } from "./runtime/logger.ts";
import { makeMetrics } from "./runtime/metrics.ts";
import { type CentralLogin, makeCentral } from "./store/central.ts";
import { makePostgresStore } from "./store/postgres.ts";
import { makeStatusStore } from "./store/status.ts";
import { makeCertificates } from "./webhook/certificates.ts";
import { makeRefusalEvents } from "./webhook/events.ts";
import { addInjection } from "./webhook/route.ts";

export interface ServeEnvironment {
  clock: Clock;
  random: Random;
  process: ProcessLike;
  /** KUBERNETES_SERVICE_HOST and _PORT of the pod, where there is one. */
  service: { host: string; port: string } | undefined;
  /** Name of the pod, else of the host. */
  hostname: string;
}

/** What cannot be used, in one line: the process ends with it. */
class ConfigError extends Error {}

/** Reads the configuration; throws a ConfigError that names file and field. */
export const readConfig = async (path: string): Promise<ControllerConfig> => {
  let value: unknown;
  try {
    value = parseYaml(await readFile(path, "utf8")) ?? {};
  } catch (error) {
    const said = error instanceof Error ? error.message.split("\n")[0] : String(error);
    throw new ConfigError(`cannot read the configuration ${path}: ${said}`);
  }
  const parsed = parse(controllerConfig, value);
  if (!parsed.ok) throw new ConfigError(`configuration ${path}: ${parsed.refusal.message}`);
  return parsed.value;
};

const sourceOf = (config: ControllerConfig, { service }: ServeEnvironment): KubeSource => {
  if (config.kubeconfig !== undefined)
    return { from: "file", path: config.kubeconfig.file, context: config.kubeconfig.context };
  if (service === undefined)
    throw new ConfigError("not in a pod: name the API server by kubeconfig.file in the configuration");
  return { from: "cluster", ...service };
};

/** A kubernetes.io/tls Secret, read again every `pollMs`. */
const certificateSecret = (
  client: KubeClient,
  namespace: string,
  name: string,
  pollMs: number,
): CertificateSource => ({
  name: `tls.crt and tls.key of Secret ${namespace}/${name}`,
  pollMs,
  async read() {
    const found = await client.get(secretKind, { namespace, name });
    const half = (key: string) => {
      const text = found.outcome === "found" ? found.object.data?.[key] : undefined;
      if (text === undefined)
        throw new Error(`Secret ${namespace}/${name} has no ${key}: make it of type kubernetes.io/tls`);
      return Buffer.from(text, "base64");
    };
    return { cert: half("tls.crt"), key: half("tls.key") };
  },
});

/** Where the installation's own database is, read anew by each call. */
const centralLogin =
  ({ database, namespace }: ControllerConfig, client: KubeClient): (() => Promise<CentralLogin>) =>
  async () => {
    try {
      if (database === undefined) return { ok: false, message: "this installation names no database" };
      if ("secret" in database) {
        const found = await readCredential(client, namespace, namespace, database.secret);
        return found.kind === "read" ? { ok: true, ...found.login } : { ok: false, message: found.message };
      }
      const { urlFile, caFile } = database;
      const url = await readFile(urlFile, "utf8");
      const ca = caFile === undefined ? undefined : await readFile(caFile, "utf8");
      return { ok: true, url, ca };
    } catch (error) {
      const said = error instanceof Error ? error.message.split("\n")[0] : String(error);
      return { ok: false, message: `cannot read where the database is: ${said}` };
    }
  };

/** The resource of a labelled Lease; undefined where its name is not the one that we would give. */
const resourceOfLease = ({ metadata }: LeaseObject): ResourceName | undefined => {
  const label = metadata.labels?.[resourceLabel];
  const name = metadata.annotations?.[leaseAnnotations.resource] ?? label;
  if (metadata.namespace === undefined || name === undefined) return undefined;
  return leaseName(name) === metadata.name && resourceLabelValue(name) === label
    ? { namespace: metadata.namespace, name }
    : undefined;
};

/** The identity of this cluster: as old as the cluster itself, and never the same twice. */
const clusterIdentity = async (client: KubeClient): Promise<string> => {
  const found = await client.get(namespaceKind, { name: "kube-system" });
  if (found.outcome === "absent")
    throw new ConfigError("the cluster has no namespace kube-system: who is it?");
  return found.object.metadata.uid;
};

/** How long an end of the process may take, per step. The grace of a pod is 30 s. */
const bounds = { drainMs: 6_000, leadershipMs: 5_000, eventsMs: 2_000, mirrorMs: 2_000, serversMs: 5_000 };

/** Renewals are served on for this long, so that holders find another replica in their own time. */
const lastRenewalsMs = 5_000;

const level = (name: string, reflector: { healthy(): boolean }): Check => ({
  name,
  fault: () => (reflector.healthy() ? undefined : "the watch is not level: the API server does not answer"),
});
/** Runs until it is told to stop. Throws a ConfigError or KubeError where it cannot even begin. */
export const serve = async (config: ControllerConfig, environment: ServeEnvironment): Promise<void> => {
  const { clock, random } = environment;
  const log: Logger = makeLogger({ level: config.logLevel });
  const metrics = makeMetrics({ perResource: config.metricsPerResource });
  const replica = config.replica ?? environment.hostname;
  const transport = makeTransport({
    access: loadKubeConfig(sourceOf(config, environment), clock),
    clock,
    onRequest: ({ verb, resource, code }) => metrics.kubeRequestsTotal.inc({ verb, resource, code }),
    userAgent: "fenceline-controller",
  });
  const client = makeKubeClient(transport);
  const certificates = makeCertificates({
    client,
    config,
    resources: { list: () => resources.list() },
    clock,
    random,
    log,
  });
  await certificates.prepare();
  const certificate =
    "secret" in config.certificate
      ? certificateSecret(client, config.namespace, config.certificate.secret, certificates.pollMs)
      : certificateFiles(config.certificate.certFile, config.certificate.keyFile);
  const api = await makeApiServer({ clock, random, log, certificate });
  const issuer = await clusterIdentity(client);
  const lifecycle = makeLifecycle({ clock, log, process: environment.process });

  const book = makeBook(clock);
  const watched = { transport, clock, random, log };
  const resources = makeReflector<FencedResource>({
    ...watched,
    kind: fencedResourceKind,
    onChange({ object }) {
      controller.changed(keyOf(object.metadata));
      certificates.changed(object.metadata.namespace ?? "");
    },
  });
  const sequences = makeReflector<FencedSequence>({
    ...watched,
    kind: fencedSequenceKind,
    onChange({ object }) {
      const [namespace = "", name = ""] = object.spec.resource.split("/");
      controller.changed(keyOf({ namespace, name }));
    },
  });
  const leases = makeReflector<LeaseObject>({
    ...watched,
    kind: leaseKind,
    labelSelector: resourceLabel,
    onChange({ type, object }) {
      const resource = resourceOfLease(object);
      if (resource === undefined) return;
      if (type === "deleted") book.drop(resource, object.metadata.uid);
      else book.put(resource, readLease(object, resource));
      controller.changed(keyOf(resource));
    },
    onInterrupted: () => {
      metrics.watchRestartsTotal.inc();
      book.interrupted();
    },
    onResumed: () => book.resumed(),
    onRegressed() {
      book.regressed();
      controller.regressed();
    },
  });

  const known: Resources = {
    cached(name) {
      const resource = resources.get(name);
      return resource === undefined ? undefined : resourceSpec(resource);
    },
    async fresh(name, signal) {
      const found = await client.get(fencedResourceKind, name, signal);
      return found.outcome === "found" ? resourceSpec(found.object) : undefined;
    },
  };
  const statusStore = makeStatusStore({ client, issuer, clock, random });
  const central =
    config.database === undefined ? undefined : makeCentral(centralLogin(config, client), clock);
  const centralStore =
    central === undefined ? undefined : makePostgresStore({ database: central, issuer, clock, random });
  const storeOf = ({ store }: ResourceSpec) => (store === "Status" ? statusStore : centralStore);
  const postgres = makePostgresDriver({ client, issuer, namespace: config.namespace, clock, metrics });
  const boundaries = makeBoundaries({ PostgreSQL: postgres.driver });
  const leaseAccess = makeLeases(client);
  const events = makeEventRecorder({
    client,
    controller: "fenceline",
    instance: replica,
    clock,
    random,
    log,
  });
  const controller = makeController({
    client,
    leases: leaseAccess,
    storeOf,
    boundaries,
    events,
    issuer,
    caches: { resources, leases, sequences },
    clock,
    random,
    log,
    metrics,
  });
  const mirror = makeWaiterMirror({ client, clock, log, replica });
  const coordinator = makeCoordinator(
    {
      leases: leaseAccess,
      resources: known,
      storeOf,
      boundaries,
      book,
      clock,
      random,
      log,
      metrics,
    },
    {
      onWaiting: (resource, waiting) => mirror.note(resource, waiting),
      onWait: makeWaitingEvents({ book, events, resources }),
    },
  );

  let draining = false;
  // A caller with a kept connection would stay with the one that leaves.
  api.addHook("onRequest", async (_request, reply) => {
    if (draining) reply.header("connection", "close");
  });
  addRoutes(api, {
    coordinator,
    auth: makeAuth({ client, clock }),
    async state(name) {
      const found = await client.get(fencedResourceKind, name);
      if (found.outcome === "absent") return undefined;
      const seen = book.get(name);
      const spec = resourceSpec(found.object);
      const patience = { ...spec, lockDelaySeconds: 0, fenced: true };
      const expired =
        seen?.lease.view.holder !== undefined &&
        clock.mono() >= takeableAt(seen.observation, seen.lease.view, true, patience);
      return stateOf(found.object, seen?.lease, {
        expired,
        waiters: Math.max(coordinator.waiting(name), found.object.status?.waiters ?? 0),
      });
    },
  });

  if (config.injection !== undefined)
    addInjection(api, {
      settings: config.injection,
      clock,
      duration: metrics.webhookDuration,
      onRefused: makeRefusalEvents({ resources, events }),
    });

  const ops = makeOpsServer({
    clock,
    random,
    log,
    ops: {
      metrics: [metrics.registry],
      live: [],
      ready: [
        { name: "running", fault: () => (draining ? "shutting down" : undefined) },
        level("fencedresources", resources),
        level("leases", leases),
        level("fencedsequences", sequences),
      ],
    },
  });

  const watches = new AbortController();
  const running = [resources, leases, sequences].map((reflector) => reflector.start(watches.signal));
  const election = makeElection({
    client,
    ref: { namespace: config.namespace, name: leaderLease },
    identity: `${replica}/${random.uuid()}`,
    async lead(signal) {
      await Promise.all([
        controller.run(signal),
        certificates.run(signal),
        postgres.watch((resource) => controller.stirred(resource), signal),
        releaseForEndedPods({ ...watched, leases: leaseAccess }, signal),
      ]);
    },
    clock,
    random,
    log,
  });
  const candidacy = new AbortController();
  const candidate = election.run(candidacy.signal);

  lifecycle.onStop("drain", bounds.drainMs, async (signal) => {
    draining = true;
    coordinator.drain();
    await clock.sleep(lastRenewalsMs, signal).catch(() => {});
  });
  lifecycle.onStop("leadership", bounds.leadershipMs, async () => {
    candidacy.abort(new Error("the process is ending"));
    await candidate;
  });
  lifecycle.onStop("events", bounds.eventsMs, (signal) => events.flush(signal));
  lifecycle.onStop("waiters", bounds.mirrorMs, (signal) => mirror.clear(signal));
  lifecycle.onStop("servers", bounds.serversMs, async () => {
    await Promise.all([api.close(), ops.close()]);
  });
  lifecycle.onStop("watches", bounds.serversMs, async () => {
    watches.abort(new Error("the process is ending"));
    await Promise.all(running);
    postgres.end();
    await central?.end();
    await transport.close();
  });

  const opsPort = await listen(ops, config.ops.host, config.ops.port);
  await Promise.all([resources, leases, sequences].map((reflector) => reflector.synced()));
  const port = await listen(api, config.listen.host, config.listen.port);
  log.info({ port, opsPort, replica, issuer }, "serving");
};
