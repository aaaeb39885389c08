import { afterAll, beforeAll, inject } from "vitest";
import type { Database } from "../../src/postgres/database.ts";
import { DatabaseError } from "../../src/postgres/errors.ts";
import { systemClock, systemRandom } from "../../src/runtime/clock.ts";
import { makePostgresStore } from "../../src/store/postgres.ts";
import { storeContract } from "../contract/store.ts";
import { type PostgresServer, startServer } from "../support/postgres/server.ts";
import { type FencedDatabase, fencedDatabase, issuerName } from "../support/postgres/world.ts";

let server: PostgresServer;
let db: FencedDatabase;
let database: Database;

beforeAll(async () => {
  server = await startServer(inject("postgres"));
  db = await fencedDatabase(server);
  database = db.open();
});

afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const storeOn = (run: Database["run"], issuer = issuerName) =>
  makePostgresStore({ database: { run }, issuer, clock: systemClock, random: systemRandom });

const lost = (kind: "unknown" | "refused", sqlstate?: string) =>
  Promise.reject(new DatabaseError(kind, "the test cut the connection", sqlstate));

storeContract("PostgreSQL", () => ({
  issuer: issuerName,
  store: (issuer) => storeOn((...args) => database.run(...args), issuer),
  async seal(resource) {
    await db.admin.query("select fenceline.sequence_seal($1, $2)", [resource, issuerName]);
  },
  async remove(resource) {
    await db.admin.query("delete from fenceline.sequence where resource = $1", [resource]);
  },
  async copy(resource, { issuer = issuerName } = {}) {
    await db.admin.query(
      "update fenceline.sequence set timeline = '0000000F', issuer = $2 where resource = $1",
      [resource, issuer],
    );
  },
  flaky(fault, times) {
    let left = times;
    return storeOn(async (statement, options) => {
      left -= 1;
      if (left < 0) return database.run(statement, options);
      if (fault === "conflict") return lost("refused", "40001");
      if (fault === "answer-lost") await database.run(statement, options);
      return lost("unknown");
    });
  },
}));
