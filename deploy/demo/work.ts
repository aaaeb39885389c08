/** A program that does guarded work: every second it writes to a table, under the token that it was given. */
import { Client } from "pg";

const token = process.env["FENCELINE_TOKEN"];
const name = process.env["WORKER"];
const client = new Client({ connectionString: process.env["DATABASE_URL"] });
await client.connect();
console.log(`working with token ${token} (pid ${process.pid})`);

const write = `update orders set written_by = $1, times = times + 1
  where id = 1 and (select fenceline.enter('shop/orders', $2))`;

for (;;) {
  try {
    await client.query(write, [name, token]);
    console.log(`wrote row 1 with token ${token}`);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && "detail" in error)) throw error;
    console.log(
      `refused by the database: SQLSTATE ${String(error.code)} ${error.message} ${String(error.detail)}`,
    );
  }
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
