// A worker in a pod: reads its token once and writes under it until it has written STEPS rows, whatever happens.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const { Client } = createRequire("/app/")("pg");
const { DATABASE, RESOURCE, STEPS, POD, ON_TERM } = process.env;
const [, name] = RESOURCE.split("/");
const token = readFileSync(`/var/run/fenceline/${name}/token`, "utf8");
if (ON_TERM === "ignore") process.on("SIGTERM", () => console.log(`${token} 0 SIGTERM`));
else process.on("SIGTERM", () => process.exit(143));

const write = async (step) => {
  const client = new Client({
    connectionString: DATABASE,
    connectionTimeoutMillis: 2000,
    query_timeout: 4000,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    await client.query(
      "insert into orders_log (token, pod, step) select $2, $3, $4 where (select fenceline.enter($1, $2::bigint))",
      [RESOURCE, token, POD, step],
    );
    return "ok";
  } catch (error) {
    return error.code ?? "lost";
  } finally {
    await client.end().catch(() => {});
  }
};

const steps = STEPS === "" ? Infinity : Number(STEPS);
for (let step = 1, done = 0; done < steps; step += 1) {
  const code = await write(step);
  if (code === "ok") done += 1;
  console.log(`${token} ${step} ${code}`);
  await sleep(200);
}
