import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type PostgresServer, startServer } from "../../support/postgres/server.ts";
import { without } from "../../support/postgres/stress.ts";
import { fencedDatabase } from "../../support/postgres/world.ts";
import { histories } from "./history.ts";

const long = process.env["FENCELINE_LONG"] === "1";
const batches = long ? 20 : 1;
const perBatch = 30;
const operations = 200;

let server: PostgresServer;
beforeAll(async () => {
  server = await startServer(inject("postgres"), { settings: { max_connections: "300" } });
});
afterAll(() => server[Symbol.asyncDispose]());

describe("workers that are killed, stopped and cut off", () => {
  test(`S1-01 S1-04 S1-41 S1-63 S1-64 FM-01 ${batches * perBatch} histories of ${operations} operations and more: no stale effect`, {
    timeout: batches * 240_000,
  }, async () => {
    const total = { operations: 0, grants: 0, stale: 0, unknown: 0 };
    for (let batch = 0; batch < batches; batch += 1) {
      await using db = await fencedDatabase(server);
      const all = await histories(db, { resources: perBatch, operations, seed: 1 + batch });
      for (const history of all) {
        expect(history.violations, `${history.resource} at ${history.isolation}, seed ${1 + batch}`).toEqual(
          [],
        );
        expect(history.operations).toBeGreaterThanOrEqual(operations);
        total.operations += history.operations;
        total.grants += history.grants;
        total.stale += history.ends["refused:stale_fencing_token"] ?? 0;
        total.unknown += history.ends["unknown"] ?? 0;
      }
    }
    console.log(`histories: ${batches * perBatch}`, total);
    expect(total.stale).toBeGreaterThan(total.operations / 20);
    expect(total.unknown).toBeGreaterThan(0);
  });
});

describe("the same with a rule taken out", () => {
  test("S1-09 guard removed: the old holder's effects are found", { timeout: 120_000 }, async () => {
    await using db = await fencedDatabase(server);
    await without(db, { enter: [[/begin/, "begin return true;"]], judge: [[/begin/, "begin return null;"]] });
    const all = await histories(db, { resources: 6, operations: 60, seed: 1 });
    expect(all.flatMap(({ violations }) => violations).join("\n")).toMatch(
      /effects below \d+ after its grant/,
    );
    expect(all.flatMap(({ violations }) => violations).join("\n")).toMatch(/wrote over what/);
  });
});
