/** A real API server, a real PostgreSQL and a controller between them, as an installation has them. */
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import type { FencedResource } from "../../../src/api/fencedresource.ts";
import { systemAccount, systemNamespace } from "../../../src/api/names.ts";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { type Caller, makeCaller } from "../../support/fenceline/caller.ts";
import {
  type Controller,
  install,
  killAll,
  startController,
  workerToken,
} from "../../support/fenceline/install.ts";
import { makeLab } from "../../support/postgres/lab.ts";
import { type PostgresServer, type ServerOptions, startServer } from "../../support/postgres/server.ts";
import { FencedDatabase, fencedDatabase, stateOf } from "../../support/postgres/world.ts";

export type Resource = `${string}/${string}`;

export interface Guarded {
  resource: Resource;
  namespace: string;
  /** Schema-qualified. */
  table: string;
}

const rbac = "rbac.authorization.k8s.io";

export const secretOf = (namespace: string, name: string, url: string) => ({
  apiVersion: "v1",
  kind: "Secret",
  metadata: { name, namespace },
  stringData: { url },
});

/** The Role that the condition of a resource asks for where it is missing. */
export const mayRead = (namespace: string, ...names: string[]) => [
  {
    apiVersion: `${rbac}/v1`,
    kind: "Role",
    metadata: { name: "fenceline-database", namespace },
    rules: [{ apiGroups: [""], resources: ["secrets"], resourceNames: names, verbs: ["get"] }],
  },
  {
    apiVersion: `${rbac}/v1`,
    kind: "RoleBinding",
    metadata: { name: "fenceline-database", namespace },
    roleRef: { apiGroup: rbac, kind: "Role", name: "fenceline-database" },
    subjects: [{ kind: "ServiceAccount", name: systemAccount, namespace: systemNamespace }],
  },
];

export interface PostgresSpec {
  advance?: "OnGrant" | "OnFirstWrite";
  mode?: "Hold" | "Once";
  durationSeconds?: number;
  /** Where the issuer's login leads; default straight to the server. */
  url?: string;
  tokens?: object;
}

export const fencedBy = ({ resource, table }: Guarded, spec: PostgresSpec, manage: object = {}) => {
  const [namespace, name] = resource.split("/");
  const [schema = "", relation = ""] = table.split(".");
  const { advance = "OnGrant", mode = "Hold", durationSeconds = 6, tokens } = spec;
  return {
    apiVersion: "fenceline.dev/v1alpha1",
    kind: "FencedResource",
    metadata: { name, namespace },
    spec: {
      lease: { durationSeconds },
      ...(tokens !== undefined && { tokens }),
      boundary: {
        type: "PostgreSQL",
        advance,
        postgresql: {
          secretRef: { name: "db", key: "url" },
          mode,
          tables: [{ schema, name: relation }],
          ...manage,
        },
      },
    },
  };
};

let tables = 0;
let started = 0;

export class World implements AsyncDisposable {
  readonly cluster: Lab;
  readonly server: PostgresServer;
  db: FencedDatabase;
  readonly controllers: Controller[] = [];
  #folder: AsyncDisposable;
  #callers: Caller[] = [];

  constructor(cluster: Lab, server: PostgresServer, db: FencedDatabase, folder: AsyncDisposable) {
    this.cluster = cluster;
    this.server = server;
    this.db = db;
    this.#folder = folder;
  }

  /** Another one, with the server as its own database; its login is in a file. */
  async startController(): Promise<Controller> {
    const urlFile = path.join(this.cluster.access.cache, "central.url");
    await writeFile(urlFile, this.server.url("issuer", this.db.name), { mode: 0o600 });
    started += 1;
    const replica = `controller-${started}`;
    const controller = await startController(this.cluster, { replica, config: { database: { urlFile } } });
    this.controllers.push(controller);
    return controller;
  }

  /** As a crash of the process, and another one that leads. */
  async crash(): Promise<Controller> {
    await killAll(this.cluster, this.controllers.splice(0));
    return this.startController();
  }

  /** As administrator of the database, on a connection of its own. */
  async sql(text: string, values?: unknown[]): Promise<void> {
    await this.server.admin((client) => client.query(text, values), this.db.name);
  }

  /** A table of `owner` with one row, which `worker` may write, and a namespace that names it. */
  async table(): Promise<Guarded> {
    tables += 1;
    const table = `public.wire_${tables}`;
    await this.sql(`create table ${table} (id int primary key, v text);
      alter table ${table} owner to owner;
      grant select, insert, update, delete, truncate on ${table} to worker;
      insert into ${table} (id, v) values (1, 'new')`);
    const namespace = await this.cluster.namespace("shop");
    return { resource: `${namespace}/orders`, namespace, table };
  }

  /** As a person does it. */
  async guard(
    { table, resource }: Guarded,
    { mode = "Hold", advance = "OnGrant" }: PostgresSpec = {},
  ): Promise<void> {
    await this.sql("select fenceline.guard($1::regclass, $2)", [table, resource]);
    await this.sql("select fenceline.configure($1, $2, $3)", [resource, mode, advance]);
  }

  /** With a login for the controller, which it may read. */
  async declare(guarded: Guarded, spec: PostgresSpec = {}): Promise<void> {
    const { namespace } = guarded;
    await this.cluster.apply(
      secretOf(namespace, "db", spec.url ?? this.server.url("issuer", this.db.name)),
      ...mayRead(namespace, "db"),
      fencedBy(guarded, spec),
    );
  }

  /** Guarded and declared, and ready. */
  async guarded(spec: PostgresSpec = {}): Promise<Guarded> {
    const guarded = await this.table();
    await this.guard(guarded, spec);
    await this.declare(guarded, spec);
    await this.ready(guarded.resource);
    return guarded;
  }

  async ready(resource: Resource): Promise<void> {
    const [namespace = "", name] = resource.split("/");
    await this.cluster.kubectl([
      "wait",
      `fr/${name}`,
      "-n",
      namespace,
      "--for=condition=Ready",
      "--timeout=30s",
    ]);
  }

  /** Somebody who may acquire, at one of the controllers. */
  async caller(namespace: string, sa = "worker", controller = this.controllers.at(-1)): Promise<Caller> {
    if (controller === undefined) throw new Error("no controller runs");
    const bearer = await readFile(await workerToken(this.cluster, namespace, sa), "utf8");
    const caller = makeCaller({ server: controller.server, caFile: controller.caFile, bearer });
    this.#callers.push(caller);
    return caller;
  }

  async status(resource: Resource): Promise<NonNullable<FencedResource["status"]>> {
    const [namespace = "", name = ""] = resource.split("/");
    const text = await this.cluster.kubectl(["get", "fr", name, "-n", namespace, "-o", "json"]);
    return (JSON.parse(text) as FencedResource).status ?? {};
  }

  async condition(resource: Resource, type: string) {
    return (await this.status(resource)).conditions?.find((condition) => condition.type === type);
  }

  /** `reason: note` of each event of a resource. */
  async events(resource: Resource): Promise<string[]> {
    const [namespace = ""] = resource.split("/");
    const text = await this.cluster.kubectl(["get", "events.events.k8s.io", "-n", namespace, "-o", "json"]);
    const { items } = JSON.parse(text) as { items: { reason: string; note: string }[] };
    return items.map(({ reason, note }) => `${reason}: ${note}`);
  }

  /** A number among the metrics of a controller; 0 where it is not told. */
  async metric(controller: Controller, name: string): Promise<number> {
    const text = await (await fetch(`${controller.ops}/metrics`)).text();
    const line = text.split("\n").find((line) => line.startsWith(`${name} `));
    return Number(line?.split(" ").at(-1) ?? 0);
  }

  /** What one statement under `token` came to: its SQLSTATE, 00000 where it was accepted. */
  async write({ resource, table }: Guarded, token: string | undefined, value: string): Promise<string> {
    const client = await this.server.connect(this.db.name, "worker");
    try {
      return await stateOf(
        token === undefined
          ? client.query(`update ${table} set v = $1`, [value])
          : client.query(`update ${table} set v = $1 where (select fenceline.enter($2, $3))`, [
              value,
              resource,
              token,
            ]),
      );
    } finally {
      await client.end();
    }
  }

  async value({ table }: Guarded): Promise<string> {
    const { rows } = await this.db.admin.query<{ v: string }>(`select v from ${table} where id = 1`);
    return rows[0]?.v ?? "";
  }

  /** After a restart of the server. */
  async reconnect(): Promise<void> {
    this.db = new FencedDatabase(this.server, this.db.name, await this.server.connect(this.db.name));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#callers.map((caller) => caller.close()));
    await Promise.all(this.controllers.map((controller) => controller.kill()));
    await this.db[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await this.#folder[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
  }
}

/** The controller that was started last: in these tests the only one. */
export const leading = ({ controllers }: World): Controller => {
  const last = controllers.at(-1);
  if (last === undefined) throw new Error("no controller runs");
  return last;
};

/** With one controller, which leads. */
export const startWorld = async (options: ServerOptions = {}): Promise<World> => {
  const cluster = await startApi();
  const folder = await makeLab();
  const server = await startServer(folder, options);
  const db = await fencedDatabase(server);
  await install(cluster);
  const world = new World(cluster, server, db, folder);
  await world.startController();
  return world;
};
