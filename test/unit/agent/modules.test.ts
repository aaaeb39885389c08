import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { endAgents, startAgent } from "../../support/agent/agent.ts";
import { type ScriptedCoordinator, startCoordinator } from "../cli/coordinator.ts";

let coordinator: ScriptedCoordinator;

beforeEach(async () => {
  coordinator = await startCoordinator();
});
afterEach(async () => {
  endAgents();
  await coordinator[Symbol.asyncDispose]();
});

/** Keeps a list of what the process loads, and writes it down when asked. */
const witness = (file: string): string => `
import { registerHooks } from "node:module";
import { writeFileSync } from "node:fs";
const urls = [];
registerHooks({ load(url, context, next) { urls.push(url); return next(url, context); } });
process.on("SIGUSR2", () => writeFileSync(${JSON.stringify(file)}, JSON.stringify({ urls, own: process.moduleLoadList })));
`;

it("the agent process loads its own few modules, no library, and nothing that speaks to Kubernetes or a database", async () => {
  const list = join(coordinator.folder, "loaded.json");
  const script = join(coordinator.folder, "witness.mjs");
  await writeFile(script, witness(list));
  const run = await startAgent({
    ...coordinator,
    folder: join(coordinator.folder, "pod"),
    nodeArgs: ["--import", script],
  });
  await run.in("held");
  await run.get("/v1/holdings/orders/check");
  await run.probe("/livez");
  await expect.poll(() => coordinator.count("renew"), { timeout: 10_000 }).toBeGreaterThan(0);
  run.child.kill("SIGUSR2");
  const text = async () => readFile(list, "utf8").catch(() => "");
  await expect.poll(text).not.toBe("");
  const { urls, own } = JSON.parse(await text()) as { urls: string[]; own: string[] };

  const files = urls.filter((url) => url.startsWith("file:"));
  expect(files.filter((url) => url.includes("/node_modules/"))).toEqual([]);
  const folders = files.map((url) => /\/src\/(?:([a-z]+)\/)?[^/]+$/.exec(url)?.[1] ?? "");
  expect([...new Set(folders)].toSorted()).toEqual(["", "agent", "api", "core", "holder", "runtime"]);
  const api = files.filter((url) => url.includes("/src/api/")).map((url) => url.split("/").at(-1));
  expect(api).toEqual(["agentconfig.ts"]);
  // What a fetch client would have brought.
  expect(own.filter((name) => /undici/.test(name))).toEqual([]);
}, 30_000);
