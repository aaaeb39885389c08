#!/usr/bin/env node
// A checkout has src and runs it as it is; an installed package has only dist.
import { existsSync } from "node:fs";

const needed = 24;
const source = new URL("../src/main.ts", import.meta.url);

if (Number.parseInt(process.versions.node, 10) < needed) {
  process.stderr.write(
    `fenceline: this is Node ${process.versions.node}: it needs Node ${needed} or newer\n`,
  );
  process.exitCode = 1;
} else {
  const { main } = await import(
    existsSync(source) ? source.href : new URL("../dist/main.js", import.meta.url).href
  );
  await main();
}
