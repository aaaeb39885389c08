#!/usr/bin/env node
// A checkout has src and runs it as it is; an installed package has only dist.
import { existsSync } from "node:fs";

const source = new URL("../src/main.ts", import.meta.url);
const { main } = await import(
  existsSync(source) ? source.href : new URL("../dist/main.js", import.meta.url).href
);
await main();
