/**
 * Reaches boundaries in PostgreSQL. What was read of a Secret is kept until somebody asks for it fresh: a Lease names the
 * credential that it was guarded with, so whoever goes on with that one needs no other.
 */
import { parseBoundary } from "../api/fencedresource.ts";
import type { ResourceSpec } from "../core/resource.ts";
import { elapsed, type MonoTime } from "../core/time.ts";
import { openDatabase } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import { marks } from "../postgres/statements/mark.ts";
import { parseDatabaseUrl } from "../postgres/url.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Metrics } from "../runtime/metrics.ts";
import { type Connection, type Connections, makeConnections } from "./connections.ts";
import { readCredential, type SecretRef } from "./credentials.ts";
import { installGuard } from "./install.ts";
import type { Boundary, Installed } from "./port.ts";
import { makePostgresBoundary } from "./postgres.ts";
import type { BoundaryDriver, Reached } from "./registry.ts";

export interface PostgresDriverDeps {
  client: Pick<KubeClient, "get">;
  /** Identity of this cluster. */
  issuer: string;
  /** Where Fenceline's own service account is. */
  namespace: string;
  clock: Clock;
  metrics: Pick<Metrics, "evictionsTotal">;
}

export interface PostgresDriver {
  driver: BoundaryDriver;
  /**
   * Looks at all boundaries that were reached, in one question per database, and says which of them changed: closed,
   * granted or refused something, went away or came back. Until `signal` is aborted.
   */
  watch(changed: (resource: `${string}/${string}`) => void, signal: AbortSignal): Promise<void>;
  end(): void;
}

/** After so long those who block an advance are ended; its bound is 1 s more. */
const evictAfterMs = 1_000;
const lookEveryMs = 1_000;
const lookWithinMs = 2_000;
/** Not reached again in this time: the resource is gone, or guarded elsewhere. */
const forgottenMs = 300_000;

interface Entry {
  key: `${string}/${string}`;
  text: string;
  version: string;
  connection: Connection;
  boundary: Boundary;
  usedAt: MonoTime;
  /** What the last look showed. */
  seen: string | undefined;
}

export const makePostgresDriver = (deps: PostgresDriverDeps): PostgresDriver => {
  const { client, clock, issuer, namespace: system, metrics } = deps;
  const connections: Connections = makeConnections(clock);
  const entries = new Map<string, Entry>();

  const login = (resource: ResourceSpec, ref: SecretRef, signal?: AbortSignal) =>
    readCredential(client, system, resource.namespace, ref, signal);

  /** The owner's login is used rarely, and kept by nobody. */
  const install = async (
    resource: ResourceSpec,
    ref: SecretRef,
    wanted: Parameters<typeof installGuard>[1],
    signal?: AbortSignal,
  ): Promise<Installed> => {
    const credential = await login(resource, ref, signal);
    if (credential.kind === "unready") return { outcome: "failed", message: credential.message };
    const parsed = parseDatabaseUrl(credential.login.url, credential.login.ca);
    if (!parsed.ok) return { outcome: "failed", message: parsed.message };
    const database = openDatabase(parsed.address, clock);
    try {
      return await installGuard(database, wanted, signal);
    } finally {
      await database.end();
    }
  };

  const forget = (): void => {
    const now = clock.mono();
    for (const [key, { usedAt }] of entries) if (elapsed(usedAt, now) >= forgottenMs) entries.delete(key);
    connections.keep(new Set([...entries.values()].map(({ connection }) => connection)));
  };

  const reach = async (resource: ResourceSpec, signal: AbortSignal | undefined): Promise<Reached> => {
    const key = `${resource.namespace}/${resource.name}` as const;
    const { text } = resource.boundary;
    const { postgresql: spec, advance } = parseBoundary(text);
    if (spec === undefined)
      return {
        kind: "unready",
        reason: "BoundaryNotSupported",
        message: "spec.boundary.postgresql is missing",
      };
    const credential = await login(resource, spec.secretRef, signal);
    if (credential.kind === "unready") return credential;
    const { version } = credential;
    const known = entries.get(key);
    if (known?.text === text && known.version === version) {
      known.usedAt = clock.mono();
      return { kind: "reached", boundary: known.boundary, through: version };
    }
    const opened = connections.open(credential.login);
    if (!opened.ok) return { kind: "unready", reason: "SecretInvalid", message: opened.message };
    const { database, user, waiting } = opened.connection;
    const { adminSecretRef: admin, mode, tables } = spec;
    const wanted = { mode, advance, tables };
    const boundary = makePostgresBoundary({
      database,
      waiting,
      resource: key,
      issuer,
      clock,
      evictAfterMs,
      onEvicted: () => metrics.evictionsTotal.inc(),
      wanted,
      ...(admin !== undefined && {
        install: (signal?: AbortSignal) =>
          install(resource, admin, { ...wanted, resource: key, issuer: user }, signal),
      }),
    });
    entries.set(key, {
      key,
      text,
      version,
      connection: opened.connection,
      boundary,
      usedAt: clock.mono(),
      seen: undefined,
    });
    forget();
    return { kind: "reached", boundary, through: version };
  };

  /** What can be seen of each of these, as a text that changes when it does. */
  const look = async (connection: Connection, of: readonly Entry[], signal: AbortSignal) => {
    try {
      const rows = await connection.database.run(marks(of.map(({ key }) => key)), {
        withinMs: lookWithinMs,
        signal,
      });
      const shown = new Map(
        rows.map((row) => [row.resource, `${row.closing ?? ""} ${row.granted} ${row.refused}`]),
      );
      return (key: string) => shown.get(key) ?? "missing";
    } catch (error) {
      if (!(error instanceof DatabaseError)) throw error;
      return () => "away";
    }
  };

  const lookAtAll = async (changed: (resource: Entry["key"]) => void, signal: AbortSignal): Promise<void> => {
    const groups = Map.groupBy(entries.values(), ({ connection }) => connection);
    await Promise.all(
      [...groups].map(async ([connection, of]) => {
        const shown = await look(connection, of, signal);
        for (const entry of of) {
          const seen = shown(entry.key);
          if (entry.seen !== seen) changed(entry.key);
          entry.seen = seen;
        }
      }),
    );
  };

  return {
    async driver(resource, { fresh = false, signal }) {
      const known = entries.get(`${resource.namespace}/${resource.name}`);
      if (!fresh && known !== undefined && known.text === resource.boundary.text) {
        known.usedAt = clock.mono();
        return { kind: "reached", boundary: known.boundary, through: known.version };
      }
      return reach(resource, signal);
    },

    async watch(changed, signal) {
      try {
        for (;;) {
          await clock.sleep(lookEveryMs, signal);
          await lookAtAll(changed, signal);
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    },

    end() {
      entries.clear();
      connections.keep(new Set());
    },
  };
};
