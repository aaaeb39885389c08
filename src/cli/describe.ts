/** `fenceline describe`: all that is known of one resource, for a person who wants to know why. */
import type { Condition, Transfer } from "../api/fencedresource.ts";
import { leaseAnnotations } from "../api/names.ts";
import type { WallTime } from "../core/time.ts";
import { type ClusterFlags, connect } from "./cluster.ts";
import type { CliDeps } from "./deps.ts";
import { resourceNamed } from "./get.ts";
import { holderText, readOne, secondsBetween, type Shown, timeOf } from "./show.ts";
import { advisory, columns, type Paint, paintFor, printable, span } from "./text.ts";

const meaning = {
  Fenced: "a stale token is refused where the effect becomes durable",
  Idempotent: "one effect per key; a request already on its way cannot be recalled",
  Advisory: advisory,
} as const;

const ago = (text: string | null | undefined, now: WallTime): string => {
  const time = timeOf(text);
  if (time === undefined) return "";
  const seconds = secondsBetween(time, now);
  return seconds < 0 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
};

const leaseText = ({ state }: Shown, now: WallTime): string => {
  if (state.holder === null) return "free";
  const when = ago(state.leaseExpiry, now);
  return state.expired ? `ran out ${when}; free for the next one` : `ends ${when} unless renewed`;
};

const facts = (one: Shown, now: WallTime): [string, string][] => {
  const { resource, state, lease } = one;
  const { spec, status } = resource;
  const every = spec.lease.renewIntervalSeconds ?? Math.floor(spec.lease.durationSeconds / 3);
  const forced = lease?.metadata.annotations?.[leaseAnnotations.forced];
  return [
    ["Resource", state.resource],
    ["Guarantee", `${state.guarantee}: ${meaning[state.guarantee]}`],
    ["Holder", state.holder === null ? "nobody" : holderText(state)],
    ...(state.holder === null ? [] : ([["Identity", state.holder]] satisfies [string, string][])),
    ...(state.acquired === null ? [] : ([["Since", ago(state.acquired, now)]] satisfies [string, string][])),
    ["Lease", `${leaseText(one, now)}; ${spec.lease.durationSeconds} s, renewed every ${every} s`],
    ...(forced === undefined ? [] : ([["Taken away", forced]] satisfies [string, string][])),
    [
      "Tokens",
      `${state.highestToken === "0" ? "none yet" : `${state.highestToken} granted`}, ${status?.tokens?.ceiling ?? "0"} reserved (store ${state.store}, floor ${spec.tokens.floor})`,
    ],
    [
      "Boundary",
      `${state.boundary}${state.boundary === "None" ? "" : `, ${spec.boundary.advance}, mark ${status?.boundary?.grantedMark ?? "unknown"}`}`,
    ],
    ["Waiters", String(state.waiters)],
    ...(state.suspended ? ([["Suspended", "no new grants"]] satisfies [string, string][]) : []),
  ];
};

const conditionRows = (conditions: readonly Condition[], now: WallTime, paint: Paint): string[][] => [
  ["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"],
  ...conditions.map(({ type, status, reason, lastTransitionTime, message }) => [
    printable(type),
    status === "True" ? status : paint("red", status),
    printable(reason),
    ago(lastTransitionTime, now),
    printable(message),
  ]),
];

const transferRows = (transfers: readonly Transfer[], now: WallTime): string[][] => [
  ["WHEN", "TOKEN", "FROM", "TO", "REASON"],
  ...transfers
    .toReversed()
    .map(({ time, token, from, to, reason }) => [
      ago(time, now),
      token,
      printable(from ?? "nobody"),
      printable(to ?? "nobody"),
      printable(reason),
    ]),
];

export const describe = async (text: string, flags: ClusterFlags, deps: CliDeps): Promise<void> => {
  const { client, namespace, close } = connect(flags, deps);
  const paint = paintFor(deps.stdout, deps.env);
  try {
    const one = await readOne(client, resourceNamed(text, namespace), () => deps.clock.wall());
    const now = deps.clock.wall();
    const { conditions = [], transfers = [] } = one.resource.status ?? {};
    const part = (title: string, rows: string[][]): string =>
      rows.length < 2 ? "" : `\n${paint("bold", title)}\n${columns(rows, "  ")}`;
    deps.stdout.write(
      columns(facts(one, now).map(([name, value]) => [paint("bold", `${name}:`), printable(value)])) +
        part("Conditions", conditionRows(conditions, now, paint)) +
        part("Transfers, newest first", transferRows(transfers, now)),
    );
  } finally {
    await close();
  }
};
