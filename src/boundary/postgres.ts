/**
 * The mark of one resource in PostgreSQL.
 *
 * An advance that has to wait first gives its connection back, then waits in one of two places; after a limit it ends
 * those who hold it up. So one blocked resource never holds up another.
 */
import type { HolderId } from "../core/lease.ts";
import { parseToken, type Token, noToken } from "../core/token.ts";
import { elapsed } from "../core/time.ts";
import type { Database } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import type { Slots } from "../postgres/slots.ts";
import { advance } from "../postgres/statements/advance.ts";
import { type Blocker, evict } from "../postgres/statements/evict.ts";
import { mark } from "../postgres/statements/mark.ts";
import { reopen } from "../postgres/statements/reopen.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Wanted } from "./install.ts";
import { type Advance, type Boundary, unissued } from "./port.ts";
import { verifyGuard } from "./verification.ts";

export interface PostgresBoundaryDeps {
  database: Database;
  /** Places for advances that wait, shared by all resources of one database: two. */
  waiting: Slots;
  /** `namespace/name`. */
  resource: string;
  /** Identity of this cluster. */
  issuer: string;
  clock: Pick<Clock, "mono" | "sleep" | "timer">;
  /** After so many milliseconds those who block an advance are ended. Its bound is this and 1 s. */
  evictAfterMs: number;
  /** Told of each session that was ended. */
  onEvicted?: (pid: number) => void;
  /** How the guard is to be. */
  wanted: Wanted;
  /** Left out where the guard is installed by people. */
  install?: Boundary["install"];
}

/** So long an advance may wait with a connection that others need. */
const quickMs = 200;
/** A server that says nothing for so long is away. */
const answerMs = 3_000;
const graceMs = 1000;
const evictEveryMs = 100;

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** A refusal of the guard as the port says it; everything else is unknown. */
const outcomeOf = (error: unknown): Advance => {
  if (!(error instanceof DatabaseError)) throw error;
  switch (error.sqlstate) {
    case "FNC01":
      return { outcome: "refused", mark: parseToken(textOf(error.detail["accepted"])) ?? noToken };
    case "FNC06":
      return { outcome: "issuer_mismatch", issuer: textOf(error.detail["issuer"]) };
    case "FNC07":
      return { outcome: "closed", closing: textOf(error.detail["closing"]) };
    default:
      return { outcome: "unknown", message: error.message };
  }
};

const isBusy = (error: unknown): boolean =>
  error instanceof DatabaseError && ["55P03", "40001", "40P01"].includes(error.sqlstate ?? "");

const unmoved = (blockers: readonly Blocker[]): string =>
  blockers
    .filter(({ ended }) => !ended)
    .map(({ pid, prepared }) =>
      pid === 0
        ? `the prepared transaction ${prepared ?? "of somebody"}`
        : `session ${pid}, which only a superuser may end`,
    )
    .join(", ");

export const makePostgresBoundary = (deps: PostgresBoundaryDeps): Boundary => {
  const { database, waiting, resource, issuer, clock, evictAfterMs, onEvicted, wanted, install } = deps;

  /** Waits for the holders, and ends them after the limit. */
  const wait = async (
    token: Token,
    holder: HolderId,
    begun: number,
    signal?: AbortSignal,
  ): Promise<Advance> => {
    const leftMs = () => Math.max(1, Math.ceil(evictAfterMs + graceMs - (clock.mono() - begun)));
    let left: readonly Blocker[] = [];
    const done = new AbortController();
    const watch = async () => {
      await clock.sleep(Math.max(0, evictAfterMs - (clock.mono() - begun)), done.signal);
      for (;;) {
        // Not cut off when the advance comes through: who was ended is told.
        left = await database.run(evict(resource), { urgent: true, withinMs: graceMs });
        for (const { pid, ended } of left) if (ended) onEvicted?.(pid);
        await clock.sleep(evictEveryMs, done.signal);
      }
    };
    const watching = watch().catch(() => undefined);
    try {
      const withinMs = leftMs();
      await database.run(advance(resource, token, holder, issuer), {
        lockMs: withinMs,
        withinMs: withinMs + 500,
        signal,
      });
      return { outcome: "ok" };
    } catch (error) {
      const outcome = outcomeOf(error);
      const who = unmoved(left);
      if (outcome.outcome === "unknown" && who !== "")
        return { outcome: "unknown", message: `${outcome.message}; held up by ${who}` };
      return outcome;
    } finally {
      done.abort();
      await watching;
    }
  };

  return {
    async advance(token, holder, signal) {
      const begun = clock.mono();
      try {
        await database.run(advance(resource, token, holder, issuer), {
          lockMs: quickMs,
          withinMs: answerMs,
          signal,
        });
        return { outcome: "ok" };
      } catch (error) {
        if (signal?.aborted) return { outcome: "unknown", message: "given up" };
        if (!isBusy(error)) return outcomeOf(error);
      }
      let give: () => void;
      try {
        give = await waiting.take(signal);
      } catch {
        return { outcome: "unknown", message: "given up" };
      }
      try {
        return await wait(token, holder, begun + elapsed(begun, clock.mono()) - quickMs, signal);
      } catch (error) {
        if (signal?.aborted) return { outcome: "unknown", message: "given up" };
        throw error;
      } finally {
        give();
      }
    },

    async marks(signal) {
      try {
        const [row] = await database.run(mark(resource), { signal });
        if (row === undefined) return { outcome: "missing" };
        if (row.issuer !== null && row.issuer !== issuer)
          return { outcome: "issuer_mismatch", issuer: row.issuer };
        return {
          outcome: "ok",
          granted: parseToken(row.granted) ?? noToken,
          used: parseToken(row.used) ?? noToken,
          refused: { stale: BigInt(row.stale), missing: BigInt(row.missing) },
          closing: row.issuer === null ? unissued : (row.closing ?? undefined),
        };
      } catch (error) {
        if (!(error instanceof DatabaseError)) {
          if (signal?.aborted) return { outcome: "unknown", message: "given up" };
          throw error;
        }
        // Not installed is not unreachable: somebody has to install it.
        if (["FNC03", "3F000", "42883", "42P01", "42703"].includes(error.sqlstate ?? ""))
          return { outcome: "missing" };
        return { outcome: "unknown", message: error.message };
      }
    },

    async reopen(token, holder, closing, signal) {
      try {
        const id = closing === unissued ? undefined : closing;
        const [row] = await database.run(reopen(resource, token, holder, id, issuer), { signal });
        if (row?.opened === true) return { outcome: "ok" };
        return { outcome: "unknown", message: "it is open, or closed by another id: look again" };
      } catch (error) {
        if (signal?.aborted && !(error instanceof DatabaseError))
          return { outcome: "unknown", message: "given up" };
        return outcomeOf(error);
      }
    },

    verify: (signal) => verifyGuard(database, resource, wanted, signal),
    ...(install !== undefined && { install }),
  };
};
