/** `fenceline watch`: a line whenever a resource changes hands or condition. Renewals are no news. */
import type { FencedResource } from "../api/fencedresource.ts";
import type { LeaseObject } from "../api/lease.ts";
import { leaseName, resourceLabel } from "../api/names.ts";
import { fencedResourceKind, leaseKind } from "../kube/kinds.ts";
import { keyOf, type ResourceName } from "../kube/leases.ts";
import { makeReflector } from "../kube/reflector.ts";
import { silentLogger } from "../runtime/logger.ts";
import { formatMicroTime } from "../runtime/microtime.ts";
import { connect } from "./cluster.ts";
import type { CliDeps } from "./deps.ts";
import { CliError, signalCode } from "./errors.ts";
import { type GetFlags, outputOf, resourceNamed } from "./get.ts";
import { cells, heads, readAll, readOne, shown, type Shown } from "./show.ts";
import { printable, printableDeep } from "./text.ts";

interface Teller {
  /** Tells a state, unless it is the one told last. */
  tell(one: Shown): void;
  gone(resource: ResourceName): void;
}

/** Rows whose columns keep their place while they come one by one. */
const makeTeller = ({ stdout, clock }: CliDeps, flags: { json: boolean; wide: boolean }): Teller => {
  const told = new Map<string, string>();
  const options = () => ({
    namespaces: true,
    wide: flags.wide,
    paint: (_: unknown, text: string) => text,
    now: clock.wall(),
  });
  const widths: number[] = [];
  const row = (texts: readonly string[]): void => {
    texts.forEach((text, index) => {
      widths[index] = Math.max(widths[index] ?? 0, text.length);
    });
    stdout.write(
      `${texts
        .map((text, index) => text.padEnd(widths[index] ?? 0))
        .join("   ")
        .trimEnd()}\n`,
    );
  };
  const line = (value: unknown): unknown => stdout.write(`${JSON.stringify(printableDeep(value))}\n`);
  const time = (): string => `${formatMicroTime(clock.wall()).slice(11, 19)}Z`;
  if (!flags.json) row(["TIME".padEnd(9), ...heads(options())]);

  return {
    tell(one) {
      const { state } = one;
      const { updated: _, leaseExpiry: __, ...news } = state;
      const now = JSON.stringify(news);
      if (told.get(state.resource) === now) return;
      told.set(state.resource, now);
      if (flags.json) line(state);
      else row([time(), ...cells(one, options())]);
    },
    gone(resource) {
      if (!told.delete(keyOf(resource))) return;
      if (flags.json) line({ resource: keyOf(resource), deleted: true });
      else row([time(), resource.namespace, resource.name, "(deleted)"]);
    },
  };
};

/** Runs until SIGINT or SIGTERM; resolves with the exit code of that signal. */
export const watch = async (text: string | undefined, flags: GetFlags, deps: CliDeps): Promise<number> => {
  const { clock, random, process, stderr } = deps;
  const output = outputOf(flags.output);
  if (output === "yaml") throw new CliError("usage", "watch prints a table, or a line of JSON each: -o json");
  const connection = connect(flags, deps);
  const { client, transport } = connection;
  const one = text === undefined ? undefined : resourceNamed(text, connection.namespace);
  const namespace = one?.namespace ?? (flags.allNamespaces === true ? undefined : connection.namespace);
  const now = () => clock.wall();

  const ended = Promise.withResolvers<NodeJS.Signals>();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, ended.resolve);
  const stop = new AbortController();
  try {
    // The first look tells in one line what a watch would only try again.
    const first =
      one === undefined ? await readAll(client, namespace, now) : [await readOne(client, one, now)];
    const teller = makeTeller(deps, { json: output === "json", wide: output === "wide" });
    for (const one of first) teller.tell(one);
    const common = {
      transport,
      namespace,
      clock,
      random,
      log: silentLogger,
      onInterrupted: (reason: string) =>
        void stderr.write(`fenceline: the watch broke off, trying again: ${printable(reason)}\n`),
    };
    // Half of what there is would look like a change.
    let level = false;
    const look = (resource: FencedResource | undefined): void => {
      if (!level || resource === undefined) return;
      const { namespace, name } = resource.metadata;
      if (one !== undefined && keyOf(one) !== keyOf(resource.metadata)) return;
      teller.tell(shown(resource, leases.get({ namespace, name: leaseName(name) }), clock.wall()));
    };
    const resources = makeReflector<FencedResource>({
      ...common,
      kind: fencedResourceKind,
      onChange: ({ type, object }) => {
        if (type === "deleted") teller.gone(object.metadata);
        else look(object);
      },
    });
    const leases = makeReflector<LeaseObject>({
      ...common,
      kind: leaseKind,
      labelSelector: resourceLabel,
      onChange: ({ object: { metadata } }) =>
        look(
          resources
            .list()
            .find(
              (resource) =>
                resource.metadata.namespace === metadata.namespace &&
                leaseName(resource.metadata.name) === metadata.name,
            ),
        ),
    });
    const running = [resources.start(stop.signal), leases.start(stop.signal)];
    void Promise.all([resources.synced(), leases.synced()]).then(
      () => {
        level = true;
        for (const resource of resources.list()) look(resource);
      },
      () => {},
    );
    const signal = await ended.promise;
    stop.abort(new Error("the watch was ended"));
    await Promise.all(running);
    return signalCode(signal);
  } finally {
    stop.abort(new Error("the watch was ended"));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, ended.resolve);
    await connection.close();
  }
};
