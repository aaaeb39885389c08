/** `fenceline get`: a table, or records for scripts. */
import { stringify } from "yaml";
import type { ResourceName } from "../kube/leases.ts";
import { type ClusterFlags, connect } from "./cluster.ts";
import type { CliDeps } from "./deps.ts";
import { CliError } from "./errors.ts";
import { cells, heads, readAll, readOne } from "./show.ts";
import { columns, paintFor, printableDeep } from "./text.ts";
import { nameText, namespaceText } from "../api/text.ts";

const outputs = ["wide", "json", "yaml"] as const;
type Output = (typeof outputs)[number];

export interface GetFlags extends ClusterFlags {
  allNamespaces?: boolean;
  output?: string;
}

const isOutput = (text: string): text is Output => outputs.some((known) => known === text);

export const outputOf = (text: string | undefined): Output | undefined => {
  if (text === undefined || isOutput(text)) return text;
  throw new CliError("usage", `-o ${text}: give ${outputs.join(", ")}`);
};

/** `namespace/name`, or a name in the namespace of flags and context. */
export const resourceNamed = (text: string, namespace: string): ResourceName => {
  const parts = text.split("/");
  const name = { namespace: parts.length === 2 ? (parts[0] ?? "") : namespace, name: parts.at(-1) ?? "" };
  if (
    parts.length > 2 ||
    !namespaceText.safeParse(name.namespace).success ||
    !nameText.safeParse(name.name).success
  )
    throw new CliError("usage", `${text} is no resource: write namespace/name`);
  return name;
};

/** One record as text for scripts: what others wrote into it moves no cursor. */
export const record = (value: unknown, output: "json" | "yaml"): string =>
  output === "json"
    ? `${JSON.stringify(printableDeep(value), undefined, 2)}\n`
    : stringify(printableDeep(value), { lineWidth: 0 });

export const get = async (text: string | undefined, flags: GetFlags, deps: CliDeps): Promise<void> => {
  const output = outputOf(flags.output);
  const { client, namespace, close } = connect(flags, deps);
  const now = () => deps.clock.wall();
  try {
    if (text !== undefined && flags.allNamespaces === true)
      throw new CliError("usage", `-A lists all: leave out ${text}, or -A`);
    const list =
      text === undefined
        ? await readAll(client, flags.allNamespaces === true ? undefined : namespace, now)
        : [await readOne(client, resourceNamed(text, namespace), now)];
    if (output === "json" || output === "yaml") {
      const states = list.map(({ state }) => state);
      return void deps.stdout.write(record(text === undefined ? { items: states } : states[0], output));
    }
    if (list.length === 0) {
      const where = flags.allNamespaces === true ? "in any namespace" : `in namespace ${namespace}`;
      return void deps.stderr.write(`No FencedResources ${where}.\n`);
    }
    const options = {
      namespaces: flags.allNamespaces === true,
      wide: output === "wide",
      paint: paintFor(deps.stdout, deps.env),
      now: now(),
    };
    deps.stdout.write(columns([heads(options), ...list.map((one) => cells(one, options))]));
  } finally {
    await close();
  }
};
