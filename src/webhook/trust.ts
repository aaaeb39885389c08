/** Tells everybody whom to trust: the API server for the webhook, and the pods of each namespace with FencedResources. */
import { authorityKey, authorityMap } from "../api/injection.ts";
import { configMapKind, webhookConfigurationKind } from "../kube/kinds.ts";
import { makeQueue } from "../kube/queue.ts";
import type { KubeClient, WriteResult } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";

export interface Trust {
  /** Writes the bundle wherever it is missing. Resolves with whether everybody has it by now. */
  publish(bundle: string, signal: AbortSignal): Promise<boolean>;
  /** A FencedResource appeared in a namespace: it must not wait for the next look. */
  changed(namespace: string): void;
  drain(signal: AbortSignal): Promise<void>;
}

/** What others changed is put right after this long, in milliseconds. */
const againMs = 600_000;

export const makeTrust = (deps: {
  client: KubeClient;
  /** The MutatingWebhookConfiguration whose `caBundle` is ours to write; undefined: somebody else's. */
  webhook: string | undefined;
  /** Namespaces that have FencedResources. */
  namespaces: () => ReadonlySet<string>;
  clock: Clock;
  random: Random;
  log: Logger;
}): Trust => {
  const { client, webhook, namespaces, clock, random, log } = deps;
  let bundle: string | undefined;
  const written = new Map<string, string>();
  let complaint: string | undefined;

  /** Throws where trying again makes sense. A refusal is final: a namespace that is ending, or one that is not ours. */
  const settled = (result: WriteResult<unknown>, what: string): void => {
    if (result.outcome === "ok" || result.outcome === "gone") return;
    if (result.outcome !== "refused") throw new Error(result.message);
    log.warn({ what, error: result.message }, "the authorities cannot be written");
  };

  const writeMap = async (namespace: string, wanted: string, signal: AbortSignal): Promise<void> => {
    const ref = { namespace, name: authorityMap };
    const data = { [authorityKey]: wanted };
    const found = await client.get(configMapKind, ref, signal);
    if (found.outcome === "found" && found.object.data?.[authorityKey] === wanted) return;
    settled(
      found.outcome === "found"
        ? await client.patch(configMapKind, ref, { data }, signal)
        : await client.create(configMapKind, { metadata: ref, data }, signal),
      `ConfigMap ${namespace}/${authorityMap}`,
    );
  };

  const queue = makeQueue({
    name: "trust",
    async reconcile(namespace, signal) {
      const wanted = bundle;
      if (wanted === undefined || !namespaces().has(namespace)) {
        written.delete(namespace);
        return {};
      }
      await writeMap(namespace, wanted, signal);
      written.set(namespace, wanted);
      return { requeueAfterMs: againMs };
    },
    concurrency: 4,
    clock,
    random,
    log,
  });

  const writeWebhook = async (name: string, wanted: string, signal: AbortSignal): Promise<boolean> => {
    const found = await client.get(webhookConfigurationKind, { name }, signal);
    if (found.outcome === "absent") return true;
    const caBundle = Buffer.from(wanted).toString("base64");
    const { webhooks = [] } = found.object;
    if (webhooks.every(({ clientConfig }) => clientConfig.caBundle === caBundle)) return true;
    const changed = webhooks.map((each) => ({ ...each, clientConfig: { ...each.clientConfig, caBundle } }));
    const draft = { ...found.object, webhooks: changed };
    const result = await client.update(webhookConfigurationKind, draft, signal);
    if (result.outcome === "ok") return true;
    if (complaint !== result.message)
      log.warn({ webhook: name, error: result.message }, "caBundle not written");
    complaint = result.message;
    return false;
  };

  return {
    async publish(wanted, signal) {
      if (bundle !== wanted) {
        bundle = wanted;
        for (const namespace of namespaces()) queue.add(namespace);
      }
      const told = webhook === undefined || (await writeWebhook(webhook, wanted, signal));
      return told && [...namespaces()].every((namespace) => written.get(namespace) === wanted);
    },
    changed(namespace) {
      if (bundle !== undefined && written.get(namespace) !== bundle) queue.add(namespace);
    },
    drain: (signal) => queue.drain(signal),
  };
};
