/** A real PostgreSQL server on 127.0.0.1 that dies with its owner, and everything that can happen to one. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { appendFileSync, closeSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Client, type ClientConfig } from "pg";
import { freePorts } from "../cluster/ports.ts";
import { until } from "../cluster/process.ts";
import { type Lab, runProgram, serverEnvironment, serverPrograms, serverUser } from "./lab.ts";

export interface ServerOptions {
  /** Writes reach the disk before they are answered. Off in ordinary tests: nothing there survives a machine anyway. */
  durable?: boolean;
  settings?: Readonly<Record<string, string>>;
  /** Lines of pg_hba.conf that come before "everybody of this machine is trusted". */
  access?: readonly string[];
}

let counter = 0;

/** A data folder of its own: copied while no server runs on `from`. */
const copyOf = (lab: Lab, from: string): string => {
  counter += 1;
  const folder = path.join(lab.folder, `${process.pid}-${counter}`);
  execFileSync("cp", ["-a", "--reflink=auto", from, folder]);
  return folder;
};

export class PostgresServer {
  readonly folder: string;
  readonly port: number;
  #lab: Lab;
  #options: ServerOptions;
  #child: ChildProcess | undefined;

  constructor(lab: Lab, folder: string, port: number, options: ServerOptions) {
    this.#lab = lab;
    this.folder = folder;
    this.port = port;
    this.#options = options;
    const settings: Record<string, string> = {
      listen_addresses: "127.0.0.1",
      port: String(port),
      unix_socket_directories: "",
      max_connections: "200",
      shared_buffers: "32MB",
      log_line_prefix: "%m [%p] ",
      wal_level: "logical",
      max_wal_senders: "5",
      ...(options.durable !== true && { fsync: "off", full_page_writes: "off" }),
      ...options.settings,
    };
    writeFileSync(
      path.join(folder, "postgresql.auto.conf"),
      Object.entries(settings)
        .map(([name, value]) => `${name} = '${value}'\n`)
        .join(""),
    );
    if (options.access !== undefined) {
      const hba = path.join(folder, "pg_hba.conf");
      writeFileSync(hba, `${options.access.join("\n")}\n${readFileSync(hba, "utf8")}`);
    }
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("the server is not running");
    return pid;
  }

  get log(): string {
    return readFileSync(`${this.folder}.log`, "utf8");
  }

  /** Resolves when connections are accepted. */
  async start(): Promise<void> {
    const { uid, gid } = serverUser();
    const log = openSync(`${this.folder}.log`, "a");
    const asUser = process.getuid?.() === 0 ? [`--reuid=${uid}`, `--regid=${gid}`, "--clear-groups"] : [];
    // The server's own way to end everything at once is SIGQUIT.
    const child = spawn(
      "setpriv",
      ["--pdeathsig=QUIT", ...asUser, path.join(serverPrograms(), "postgres"), "-D", this.folder],
      { stdio: ["ignore", log, log], env: serverEnvironment(), cwd: "/" },
    );
    closeSync(log);
    this.#child = child;
    const status = path.join(this.folder, "postmaster.pid");
    await until(
      "PostgreSQL starts",
      60_000,
      () => {
        if (child.exitCode !== null) throw new Error(`PostgreSQL did not start: ${this.log.slice(-600)}`);
        try {
          const lines = readFileSync(status, "utf8").split("\n");
          return lines[0] === String(child.pid) && lines[7]?.trim() === "ready";
        } catch {
          return false;
        }
      },
      20,
    );
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.signalCode === null) {
      child.kill(signal);
      await ended;
    }
    this.#child = undefined;
  }

  /** `immediate` is a crash: no checkpoint, recovery at the next start. */
  stop(mode: "fast" | "immediate" = "fast"): Promise<void> {
    return this.#end(mode === "fast" ? "SIGINT" : "SIGQUIT");
  }

  async restart(mode: "fast" | "immediate" = "fast"): Promise<void> {
    await this.stop(mode);
    await this.start();
  }

  /** The name of a login, its database, and nothing else: a connection string as people write them. */
  url(user = "postgres", database = "postgres", password?: string): string {
    const secret = password === undefined ? "" : `:${password}`;
    return `postgres://${user}${secret}@127.0.0.1:${this.port}/${database}?sslmode=disable`;
  }

  async connect(database = "postgres", user = "postgres", more: ClientConfig = {}): Promise<Client> {
    const client = new Client({ host: "127.0.0.1", port: this.port, user, database, ssl: false, ...more });
    // A server that ends its sessions is told by the next query as well.
    client.on("error", () => undefined);
    await client.connect();
    return client;
  }

  /** Statements as the administrator, one connection for all of them. */
  async admin<T>(run: (client: Client) => Promise<T>, database = "postgres"): Promise<T> {
    const client = await this.connect(database);
    try {
      return await run(client);
    } finally {
      await client.end();
    }
  }

  /** A folder as it stands: a cold copy, or what a volume snapshot holds. The server must be down. */
  async copy(options: ServerOptions = this.#options): Promise<PostgresServer> {
    if (this.#child !== undefined) throw new Error("stop the server before its folder is copied");
    return new PostgresServer(this.#lab, copyOf(this.#lab, this.folder), await freePort(), options);
  }

  /** A base backup of the running server; with `standby` it follows this one when it is started. */
  async backup(standby: boolean, options: ServerOptions = this.#options): Promise<PostgresServer> {
    counter += 1;
    const folder = path.join(this.#lab.folder, `${process.pid}-${counter}`);
    const from = `host=127.0.0.1 port=${this.port} user=postgres`;
    runProgram("pg_basebackup", ["-D", folder, "-d", from, "--checkpoint=fast", "--no-sync", "-X", "stream"]);
    const server = new PostgresServer(this.#lab, folder, await freePort(), options);
    if (standby) {
      appendFileSync(path.join(folder, "postgresql.auto.conf"), `primary_conninfo = '${from}'\n`);
      writeFileSync(path.join(folder, "standby.signal"), "");
    }
    return server;
  }

  /** Makes a standby the primary. Resolves when it takes writes. */
  async promote(): Promise<void> {
    await this.admin((client) => client.query("select pg_promote(true, 30)"));
    await until("promotion", 30_000, () =>
      this.admin(async (client) => {
        const { rows } = await client.query<{ standby: boolean }>("select pg_is_in_recovery() as standby");
        return rows[0]?.standby === false;
      }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("immediate");
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(`${this.folder}.log`, { force: true });
  }
}

const freePort = async (): Promise<number> => {
  const [port] = await freePorts(1);
  if (port === undefined) throw new Error("no port is free");
  return port;
};

/** A new server, running. */
export const startServer = async (lab: Lab, options: ServerOptions = {}): Promise<PostgresServer> => {
  const server = new PostgresServer(lab, copyOf(lab, lab.template), await freePort(), options);
  await server.start();
  return server;
};
