/** PgBouncer before a test server, in transaction mode. */
import { spawn } from "node:child_process";
import { chownSync, closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { freePorts } from "../cluster/ports.ts";
import { until } from "../cluster/process.ts";
import { type Lab, serverEnvironment, serverUser } from "./lab.ts";
import type { PostgresServer } from "./server.ts";

const bouncerProgram = "/usr/sbin/pgbouncer";

export interface Bouncer extends AsyncDisposable {
  port: number;
}

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });

/** At most `connections` to the server for each login and database, and any number of clients. */
export const startBouncer = async (
  lab: Lab,
  server: PostgresServer,
  connections: number,
): Promise<Bouncer> => {
  const [port = 0] = await freePorts(1);
  const { uid, gid } = serverUser();
  const folder = path.join(lab.folder, `bouncer-${port}`);
  mkdirSync(folder);
  const file = path.join(folder, "pgbouncer.ini");
  const log = path.join(folder, "log");
  writeFileSync(
    file,
    `[databases]
* = host=127.0.0.1 port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${path.join(folder, "users")}
pool_mode = transaction
max_client_conn = 500
default_pool_size = ${connections}
ignore_startup_parameters = extra_float_digits
`,
  );
  writeFileSync(
    path.join(folder, "users"),
    ["postgres", "worker", "issuer"].map((name) => `"${name}" ""\n`).join(""),
  );
  for (const name of [folder, file, path.join(folder, "users")]) chownSync(name, uid, gid);
  const out = openSync(log, "a");
  const asUser = process.getuid?.() === 0 ? [`--reuid=${uid}`, `--regid=${gid}`, "--clear-groups"] : [];
  const child = spawn("setpriv", ["--pdeathsig=KILL", ...asUser, bouncerProgram, file], {
    stdio: ["ignore", out, out],
    env: serverEnvironment(),
    cwd: "/",
  });
  closeSync(out);
  await until("PgBouncer starts", 20_000, async () => {
    if (child.exitCode !== null) throw new Error(`PgBouncer: ${readFileSync(log, "utf8").slice(-400)}`);
    return answers(port);
  });
  return {
    port,
    async [Symbol.asyncDispose]() {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode !== null) return;
      child.kill("SIGKILL");
      await ended;
    },
  };
};
