/** `npm run bench [-- NAME…]`: every bench, or the named ones, one after the other. Each prints ratios to a peer. */
import { spawnSync } from "node:child_process";
import { globSync } from "node:fs";
import path from "node:path";

const benches = globSync("*/main.ts", { cwd: import.meta.dirname })
  .map((file) => path.dirname(file))
  .toSorted();
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !benches.includes(name));
if (unknown.length > 0) {
  console.error(`bench: there is no ${unknown.join(", ")}; there are: ${benches.join(", ")}`);
  process.exit(2);
}
for (const name of wanted.length > 0 ? wanted : benches) {
  console.log(`\n== ${name}`);
  const file = path.join(import.meta.dirname, name, "main.ts");
  if (spawnSync(process.execPath, [file], { stdio: "inherit" }).status !== 0) process.exitCode = 1;
}
