/**
 * Which branches of the protocol the seeds reach, and nothing but the seeds:
 *
 *     npm run sim:coverage -- [--seeds 1..400] [--write]
 *
 * Counted by V8 in blocks: the body of every function and every branch that can be left out. `--write` puts the table
 * into docs/sim-coverage.md.
 */
import { readFile, writeFile } from "node:fs/promises";
import { type Profiler, Session } from "node:inspector/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { describeHunt, hunt } from "./hunt.ts";

const root = join(import.meta.dirname, "../..");
const page = "docs/sim-coverage.md";

/** The HTTP face is not part of the simulation: it has its own tests. */
const face = ["src/coordinator/http.ts", "src/coordinator/auth.ts", "src/coordinator/verdicts.ts"];

interface File {
  name: string;
  blocks: number;
  /** Lines and first words of what no seed reached. */
  missed: string[];
}

/** What no value can reach: the compiler says so. */
const impossible = /const never: never/;

const filesOf = async (scripts: Profiler.ScriptCoverage[]): Promise<File[]> => {
  const wanted = scripts.flatMap((script) => {
    if (!script.url.startsWith("file:")) return [];
    const name = relative(root, fileURLToPath(script.url));
    return /^src\/(core|coordinator)\//.test(name) && !face.includes(name) ? [{ name, script }] : [];
  });
  return Promise.all(
    wanted.map(async ({ name, script }) => {
      const source = await readFile(join(root, name), "utf8");
      const ranges = script.functions.flatMap(({ ranges }) => ranges);
      const missed = ranges
        .filter(({ count }) => count === 0)
        .map(({ startOffset, endOffset }) => ({
          line: source.slice(0, startOffset).split("\n").length,
          text: source.slice(startOffset, endOffset),
        }))
        .filter(({ text }) => !impossible.test(text))
        .map(({ line, text }) => `${line}: \`${text.replaceAll(/\s+/g, " ").slice(0, 60)}\``);
      return { name, blocks: ranges.length, missed };
    }),
  );
};

const table = (files: readonly File[]): string =>
  [
    "| file | blocks | reached | not reached (line: text) |",
    "| --- | --- | --- | --- |",
    ...files
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      .map(
        ({ name, blocks, missed }) =>
          `| ${name} | ${blocks} | ${blocks - missed.length} | ${missed.map((text) => text.replaceAll("|", "\\|")).join("<br>")} |`,
      ),
  ].join("\n");

const { values } = parseArgs({
  options: { seeds: { type: "string", default: "1..400" }, write: { type: "boolean", default: false } },
});
const [, first = "1", last = "400"] = /^(\d+)\.\.(\d+)$/.exec(values.seeds) ?? [];
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
console.log(describeHunt(await hunt(Number(first), Number(last))));
const { result } = await session.post("Profiler.takePreciseCoverage");
const files = await filesOf(result);
const text = table(files);
console.log(text);
if (values.write) {
  const old = await readFile(join(root, page), "utf8").catch(() => "");
  const head = old.slice(0, Math.max(0, old.indexOf("| file |")));
  await writeFile(join(root, page), `${head}${text}\n`);
}
