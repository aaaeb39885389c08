/** Our own certificate authority, kept in a Secret of type kubernetes.io/tls and changed by compare-and-set alone. */
import type { SecretObject } from "../api/k8s.ts";
import { secretKind } from "../kube/kinds.ts";
import type { Draft, KubeClient, Ref } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Logger } from "../runtime/logger.ts";
import { formatMicroTime } from "../runtime/microtime.ts";
import { makeAuthority as makePair, type Pair, readCertificate, signServing } from "../runtime/x509.ts";
import { bundleOf, type Keys, type Lives, nextStep, type Step, validity } from "./rotation.ts";

export interface Authority {
  /**
   * Does all that is due, and resolves with the bundle of trusted authorities. `spread`: everybody that it was written
   * for has the bundle `spread`. Rejects where the Secret can neither be read nor written.
   */
  tend(spread: string | undefined, signal?: AbortSignal): Promise<string>;
}

/** Where each part stands in the Secret. `ca.crt` is for everybody to trust, the keys are for us. */
const fields = {
  serving: ["tls.crt", "tls.key"],
  authority: ["authority.crt", "authority.key"],
  next: ["next.crt", "next.key"],
} as const;
const bundleField = "ca.crt";

const decode = (text: string | undefined): string => Buffer.from(text ?? "", "base64").toString();
const encode = (text: string): string => Buffer.from(text).toString("base64");

const readKeys = (secret: SecretObject | undefined): Keys => {
  const pair = ([cert, key]: readonly [string, string]): Pair | undefined => {
    const read = { cert: decode(secret?.data?.[cert]), key: decode(secret?.data?.[key]) };
    return read.cert === "" || read.key === "" ? undefined : read;
  };
  return {
    serving: pair(fields.serving),
    authority: pair(fields.authority),
    next: pair(fields.next),
    trusted: decode(secret?.data?.[bundleField]),
  };
};

const dataOf = (keys: Keys): Record<string, string> => {
  const data: Record<string, string> = { [bundleField]: encode(keys.trusted) };
  for (const part of ["serving", "authority", "next"] as const) {
    const [cert, key] = fields[part];
    const pair = keys[part];
    if (pair === undefined) continue;
    data[cert] = encode(pair.cert);
    data[key] = encode(pair.key);
  }
  return data;
};

export const makeAuthority = (deps: {
  client: KubeClient;
  /** The Secret. */
  ref: Ref;
  /** DNS names and addresses of the serving certificate. */
  names: readonly string[];
  lives: Lives;
  clock: Clock;
  log: Logger;
}): Authority => {
  const { client, ref, names, lives, clock, log } = deps;

  const sign = (authority: Pair): Promise<Pair> => {
    const wanted = validity(clock.wall(), lives.servingSeconds);
    const end = readCertificate(authority.cert)?.until ?? wanted.until;
    return signServing(authority, names, { ...wanted, until: wanted.until < end ? wanted.until : end });
  };

  const newAuthority = (): Promise<Pair> => {
    const now = clock.wall();
    return makePair(`Fenceline authority of ${formatMicroTime(now)}`, validity(now, lives.authoritySeconds));
  };

  const perform = async (keys: Keys, step: Step): Promise<Keys> => {
    switch (step.step) {
      case "nothing":
      case "retire":
        return keys;
      case "found": {
        const authority = await newAuthority();
        return { authority, next: undefined, serving: await sign(authority), trusted: "" };
      }
      case "announce":
        return { ...keys, next: await newAuthority() };
      case "promote":
        return { ...keys, authority: step.authority, next: undefined, serving: await sign(step.authority) };
      case "sign":
        return { ...keys, serving: await sign(step.authority) };
      default: {
        const never: never = step;
        return never;
      }
    }
  };

  const write = async (
    found: SecretObject | undefined,
    keys: Keys,
    signal?: AbortSignal,
  ): Promise<boolean> => {
    const draft: Draft<SecretObject> = {
      ...(found ?? { metadata: { name: ref.name, namespace: ref.namespace } }),
      type: found?.type ?? "kubernetes.io/tls",
      data: dataOf(keys),
    };
    const result = await (found === undefined
      ? client.create(secretKind, draft, signal)
      : client.update(secretKind, draft, signal));
    if (result.outcome === "ok") return true;
    if (result.outcome === "refused")
      throw new Error(
        `cannot write Secret ${ref.namespace}/${ref.name}: ${result.message}: see deploy/rbac for the Role`,
      );
    // Somebody else was faster, or nobody knows: what is there now decides.
    return false;
  };

  return {
    async tend(spread, signal) {
      for (let failures = 0; failures < 5; ) {
        const read = await client.get(secretKind, ref, signal);
        const found = read.outcome === "found" ? read.object : undefined;
        const keys = readKeys(found);
        const spreadAll = spread !== undefined && spread === keys.trusted;
        const step = nextStep(keys, clock.wall(), { lives, names, spread: spreadAll });
        if (step.step === "nothing") return keys.trusted;
        const changed = await perform(keys, step);
        const trusted = bundleOf(changed.trusted, [changed.authority, changed.next], clock.wall());
        if (await write(found, { ...changed, trusted }, signal))
          log.info({ secret: `${ref.namespace}/${ref.name}`, step: step.step }, "certificates changed");
        else {
          failures += 1;
          await clock.sleep(200 * failures, signal);
        }
      }
      throw new Error(`Secret ${ref.namespace}/${ref.name} changes under every try to write it`);
    },
  };
};
