/**
 * A namespace with a fenced resource whose boundary is a PostgreSQL beside the cluster, and Jobs that write to it.
 * Judged by the rows that the database keeps.
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import { boxAddress } from "../cluster/node.ts";
import type { NodesLab } from "../cluster/nodes.ts";
import { until } from "../cluster/process.ts";
import { repository } from "../image/image.ts";
import { type PostgresServer, startServer } from "../postgres/server.ts";
import { type FencedDatabase, fencedDatabase } from "../postgres/world.ts";
import type { Lab as PostgresLab } from "../postgres/lab.ts";

const patienceMs = 90_000;

/** A server that pods can reach. */
export const startReachable = (lab: PostgresLab): Promise<PostgresServer> =>
  startServer(lab, {
    settings: { listen_addresses: "*" },
    access: ["host all all 10.244.0.0/16 trust", "host all all 172.30.0.0/24 trust"],
  });

export interface Row {
  token: string;
  pod: string;
  step: number;
}

export interface JobOptions {
  /** How many rows it writes, 200 ms apart; then it ends. Default: it never ends. */
  steps?: number;
  annotations?: Record<string, string>;
  /** Of the pod. */
  spec?: object;
  job?: object;
  /** More of the worker's environment. */
  env?: Record<string, string>;
}

export interface PodStatus {
  metadata: { name: string; uid: string; deletionTimestamp?: string };
  spec: { nodeName?: string };
  status: {
    phase: string;
    initContainerStatuses?: ContainerStatus[];
    containerStatuses?: ContainerStatus[];
  };
}
interface ContainerStatus {
  name: string;
  restartCount: number;
  started?: boolean;
  state: { running?: object; terminated?: { exitCode: number; reason: string } };
}

const worker = readFileSync(path.join(import.meta.dirname, "worker.mjs"), "utf8");

export class Shop {
  readonly lab: NodesLab;
  readonly namespace: string;
  readonly db: FencedDatabase;
  readonly resource: string;

  constructor(lab: NodesLab, namespace: string, db: FencedDatabase) {
    this.lab = lab;
    this.namespace = namespace;
    this.db = db;
    this.resource = `${namespace}/orders`;
  }

  kubectl(...args: string[]): Promise<string> {
    return this.lab.kubectl([...args, "-n", this.namespace]);
  }

  async json<T>(...args: string[]): Promise<T> {
    return JSON.parse(await this.kubectl("get", ...args, "-o", "json")) as T;
  }

  /** Starts a Job whose pod writes rows under the token that it finds when it starts, and never looks again. */
  async job(
    name: string,
    { steps, annotations = {}, spec = {}, job = {}, env = {} }: JobOptions = {},
  ): Promise<void> {
    const variables = {
      DATABASE: `postgres://worker@${boxAddress}:${this.db.server.port}/${this.db.name}`,
      RESOURCE: this.resource,
      STEPS: steps === undefined ? "" : String(steps),
      ...env,
    };
    await this.lab.apply({
      apiVersion: "batch/v1",
      kind: "Job",
      metadata: { name, namespace: this.namespace },
      spec: {
        backoffLimit: 0,
        podReplacementPolicy: "Failed",
        ...job,
        template: {
          metadata: {
            labels: { "fenceline.dev/inject": "true" },
            annotations: { "fenceline.dev/resources": "orders", ...annotations },
          },
          spec: {
            restartPolicy: "Never",
            terminationGracePeriodSeconds: 2,
            securityContext: { runAsNonRoot: true, runAsUser: 1000 },
            containers: [
              {
                name: "worker",
                image: `${repository}:0.1.0`,
                command: ["node", "--input-type=module", "--eval", worker],
                env: [
                  ...Object.entries(variables).map(([name, value]) => ({ name, value })),
                  { name: "POD", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
                ],
              },
            ],
            ...spec,
          },
        },
      },
    });
  }

  /** The pods of a Job, oldest first. */
  async pods(job: string): Promise<PodStatus[]> {
    return (await this.json<{ items: PodStatus[] }>("pods", "-l", `job-name=${job}`)).items;
  }

  /** The one pod of a Job, as soon as it is on a node. */
  async pod(job: string): Promise<PodStatus> {
    return until(`the pod of ${job} to be on a node`, patienceMs, async () =>
      (await this.pods(job)).find(({ spec }) => spec.nodeName !== undefined),
    );
  }

  async rows(): Promise<Row[]> {
    const { rows } = await this.db.admin.query(
      "select token::text as token, pod, step from orders_log order by id",
    );
    return rows as Row[];
  }

  /** What each worker was answered, one line a try: `TOKEN STEP CODE`. */
  async said(job: string): Promise<string[]> {
    return (await this.kubectl("logs", `job/${job}`, "-c", "worker", "--tail=-1")).trim().split("\n");
  }

  /** Waits until this Job's pod has written a row; returns its token. */
  async writes(job: string): Promise<string> {
    const { metadata } = await this.pod(job);
    return until(
      `${metadata.name} to write`,
      patienceMs,
      async () => (await this.rows()).findLast(({ pod }) => pod === metadata.name)?.token,
    );
  }

  async completes(job: string): Promise<void> {
    await this.kubectl("wait", `job/${job}`, "--for=condition=Complete", "--timeout=90s");
  }

  async holder(): Promise<{ pod?: string; token?: string } | undefined> {
    return (await this.json<{ status?: { holder?: { pod: string; token: string } } }>("fr/orders")).status
      ?.holder;
  }

  async events(): Promise<string[]> {
    const { items } = await this.json<{ items: { reason: string; note?: string; message?: string }[] }>(
      "events",
    );
    return items.map(({ reason }) => reason);
  }
}

/** A fenced resource with a lease of 6 s, guarded in a database of its own. */
export const openShop = async (lab: NodesLab, server: PostgresServer, lease: object = {}): Promise<Shop> => {
  const namespace = await lab.namespace("shop");
  const db = await fencedDatabase(server);
  const shop = new Shop(lab, namespace, db);
  await db.admin.query(`
    create table public.orders_log (id bigint generated always as identity, token bigint, pod text, step int);
    alter table public.orders_log owner to owner;
    grant select, insert on public.orders_log to worker;
    select fenceline.guard('public.orders_log', '${shop.resource}')`);
  const url = `postgres://issuer@${boxAddress}:${server.port}/${db.name}?sslmode=disable`;
  const rbac = "rbac.authorization.k8s.io";
  await lab.apply(
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "orders-db", namespace },
      stringData: { url },
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: "Role",
      metadata: { name: "fenceline", namespace },
      rules: [
        { apiGroups: ["fenceline.dev"], resources: ["fencedresources"], verbs: ["acquire"] },
        { apiGroups: [""], resources: ["secrets"], resourceNames: ["orders-db"], verbs: ["get"] },
      ],
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: "RoleBinding",
      metadata: { name: "fenceline", namespace },
      roleRef: { apiGroup: rbac, kind: "Role", name: "fenceline" },
      subjects: [
        { kind: "ServiceAccount", name: "default", namespace },
        { kind: "ServiceAccount", name: "fenceline-controller", namespace: "fenceline-system" },
      ],
    },
    {
      apiVersion: "fenceline.dev/v1alpha1",
      kind: "FencedResource",
      metadata: { name: "orders", namespace },
      spec: {
        lease: { durationSeconds: 6, renewIntervalSeconds: 2, ...lease },
        boundary: {
          type: "PostgreSQL",
          postgresql: { secretRef: { name: "orders-db" }, tables: [{ name: "orders_log" }] },
        },
      },
    },
  );
  await shop.kubectl("wait", "fr/orders", "--for=condition=Ready", "--timeout=60s");
  await until("the guard to be proven", patienceMs, async () => {
    const { status } = await shop.json<{ status: { guarantee: string } }>("fr/orders");
    return status.guarantee === "Fenced";
  });
  return shop;
};
