/** Text for terminals. */
import { styleText } from "node:util";
import Table from "cli-table3";
import type { CliDeps, Out } from "./deps.ts";

/** Without controls, formats and line breaks: what others wrote cannot move a cursor nor turn a line around. */
export const printable = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").trim();

/** {@link printable} for every text in a value. */
export const printableDeep = (value: unknown): unknown => {
  if (typeof value === "string") return printable(value);
  if (Array.isArray(value)) return value.map(printableDeep);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [printable(name), printableDeep(inner)]),
  );
};

/** What `Advisory` means, in the words that status and events use too. */
export const advisory = "reduces overlap, does not exclude it";

type Style = Parameters<typeof styleText>[0];

/** Colours where a person looks on and did not ask for none (NO_COLOR). */
export type Paint = (style: Style, text: string) => string;

export const paintFor = (out: Out, env: CliDeps["env"]): Paint =>
  out.isTTY === true && !env["NO_COLOR"] && env["TERM"] !== "dumb"
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_, text) => text;

const noLines = {
  top: "",
  "top-mid": "",
  "top-left": "",
  "top-right": "",
  bottom: "",
  "bottom-mid": "",
  "bottom-left": "",
  "bottom-right": "",
  left: "",
  "left-mid": "",
  mid: "",
  "mid-mid": "",
  right: "",
  "right-mid": "",
  middle: "   ",
};

/** Columns as kubectl prints them; every line ends in a line break. */
export const columns = (rows: readonly (readonly string[])[], indent = ""): string => {
  const table = new Table({
    chars: noLines,
    style: { "padding-left": 0, "padding-right": 0, head: [], border: [], compact: true },
  });
  table.push(...rows.map((row) => [...row]));
  return table
    .toString()
    .split("\n")
    .map((line) => `${indent}${line.trimEnd()}\n`)
    .join("");
};

/** A span of seconds as kubectl writes it: the two largest units at most. */
export const span = (seconds: number): string => {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(whole / unit)) as [
    number,
    number,
    number,
  ];
  if (whole < 120) return `${whole}s`;
  if (minutes < 10) return `${minutes}m${whole % 60 === 0 ? "" : `${whole % 60}s`}`;
  if (hours < 3) return `${minutes}m`;
  if (hours < 8) return `${hours}h${minutes % 60 === 0 ? "" : `${minutes % 60}m`}`;
  if (days < 2) return `${hours}h`;
  if (days < 8) return `${days}d${hours % 24 === 0 ? "" : `${hours % 24}h`}`;
  return `${days}d`;
};
