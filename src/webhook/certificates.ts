/** The leader's work on certificates: keep our own authority, or follow somebody else's, and tell everybody of it. */
import type { ControllerConfig } from "../api/config.ts";
import type { FencedResource } from "../api/fencedresource.ts";
import { webhookName } from "../api/injection.ts";
import { secretKind } from "../kube/kinds.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import { makeAuthority } from "./authority.ts";
import { checkMs } from "./rotation.ts";
import { makeTrust, type Trust } from "./trust.ts";

export interface Certificates {
  /** How often a replica should read its certificate again, in milliseconds. */
  readonly pollMs: number;
  /** Makes what is missing, so that a server can start. Any replica may do it. */
  prepare(): Promise<void>;
  /** A FencedResource appeared or changed. */
  changed(namespace: string): void;
  /** The leader's part, until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

const drainMs = 2_000;

export const makeCertificates = (deps: {
  client: KubeClient;
  config: Pick<ControllerConfig, "certificate" | "namespace">;
  resources: { list(): readonly FencedResource[] };
  clock: Clock;
  random: Random;
  log: Logger;
}): Certificates => {
  const { client, config, resources, clock, random, log } = deps;
  const { certificate } = config;
  const secret = "secret" in certificate ? certificate.secret : undefined;
  const managed = "secret" in certificate ? certificate.managed : undefined;
  const ref = { namespace: config.namespace, name: secret ?? "" };
  const authority =
    managed === undefined
      ? undefined
      : makeAuthority({ client, ref, names: managed.names, lives: managed, clock, log });
  const pollMs = managed === undefined ? 60_000 : checkMs(managed);
  let trust: Trust | undefined;

  /** What somebody else put beside the certificate; undefined where there is nothing. */
  const foreign = async (signal: AbortSignal): Promise<string | undefined> => {
    const found = await client.get(secretKind, ref, signal);
    const text = found.outcome === "found" ? found.object.data?.["ca.crt"] : undefined;
    return text === undefined || text === "" ? undefined : Buffer.from(text, "base64").toString();
  };

  const namespaces = (): Set<string> =>
    new Set(resources.list().map(({ metadata }) => metadata.namespace ?? ""));

  return {
    pollMs,
    async prepare() {
      await authority?.tend(undefined);
    },
    changed: (namespace) => trust?.changed(namespace),
    async run(signal) {
      if (secret === undefined) return;
      const webhook = managed === undefined ? undefined : webhookName;
      const telling = makeTrust({ client, webhook, namespaces, clock, random, log });
      trust = telling;
      let spread: string | undefined;
      let complaint: string | undefined;
      while (!signal.aborted) {
        try {
          const bundle = await (authority?.tend(spread, signal) ?? foreign(signal));
          if (bundle !== undefined) spread = (await telling.publish(bundle, signal)) ? bundle : undefined;
          complaint = undefined;
        } catch (error) {
          const text = error instanceof Error ? error.message : String(error);
          if (!signal.aborted && text !== complaint)
            log.error({ error: text }, "certificates not looked after");
          complaint = text;
        }
        await clock.sleep(pollMs, signal).catch(() => {});
      }
      trust = undefined;
      const bound = new AbortController();
      const cancel = clock.timer(drainMs, () => bound.abort());
      await telling.drain(bound.signal);
      cancel();
    },
  };
};
