/** Sequences as rows of `fenceline.sequence`, one statement each, answered after COMMIT. */
import { lastToken, noToken, parseToken, type Token } from "../core/token.ts";
import type { Database, RunOptions } from "../postgres/database.ts";
import { DatabaseError } from "../postgres/errors.ts";
import type { Statement } from "../postgres/sql.ts";
import { reserve, type SequenceRow, sequenceOpen, sequenceState } from "../postgres/statements/sequence.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import type { Reservation, ResourceKey, SequenceState, SequenceStore } from "./port.ts";

export interface PostgresStoreDeps {
  database: Pick<Database, "run">;
  /** Identity of this cluster. */
  issuer: string;
  clock: Pick<Clock, "sleep">;
  random: Pick<Random, "float">;
}

/** How often one call tries again after a conflict or a lost answer: what may have been reserved is a gap. */
const rounds = 6;
const partMs = 50;

const tokenOf = (text: string): Token => parseToken(text) ?? noToken;

const stateOf = (row: SequenceRow | undefined): SequenceState => {
  if (row === undefined) return { state: "missing" };
  const { issuer, sealed } = row;
  const ceiling = tokenOf(row.ceiling);
  if (row.copied) return { state: "copied", ceiling, issuer };
  return { state: "open", base: tokenOf(row.base), ceiling, sealed, issuer };
};

const reaching = async <T>(ask: () => Promise<T>, unavailable: (message: string) => T): Promise<T> => {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof DatabaseError) return unavailable(error.message);
    throw error;
  }
};

const lost = (message: string): SequenceState => ({ state: "unavailable", message });

export const makePostgresStore = ({ database, issuer, clock, random }: PostgresStoreDeps): SequenceStore => {
  const run = async <Row>(statement: Statement<Row>, options: RunOptions): Promise<Row[]> => {
    for (let round = 1; ; round += 1) {
      try {
        return await database.run(statement, options);
      } catch (error) {
        const again =
          error instanceof DatabaseError &&
          (error.kind === "unknown" || ["40001", "40P01", "57P03"].includes(error.sqlstate ?? ""));
        if (!again || round === rounds) throw error;
      }
      await clock.sleep(random.float() * partMs, options.signal);
    }
  };

  const refused = (state: SequenceState): Reservation => {
    switch (state.state) {
      case "missing":
      case "unopened":
        return { outcome: "not_ready", reason: state.state };
      case "unavailable":
        return { outcome: "unavailable", message: state.message };
      case "copied":
        return state.issuer === issuer
          ? { outcome: "not_ready", reason: "copied" }
          : { outcome: "issuer_mismatch", issuer: state.issuer };
      case "open":
        if (state.issuer !== issuer) return { outcome: "issuer_mismatch", issuer: state.issuer };
        return state.sealed ? { outcome: "sealed" } : { outcome: "exhausted" };
      default: {
        const never: never = state;
        return never;
      }
    }
  };

  return {
    reserve: (resource: ResourceKey, count, atLeast, signal) =>
      reaching<Reservation>(
        async () => {
          // Nothing wraps: a raise beyond the last token ends there.
          const lowest = atLeast > lastToken ? lastToken : atLeast;
          const [block] = await run(reserve(resource, count, lowest, issuer), { signal });
          if (block !== undefined)
            return { outcome: "reserved", base: tokenOf(block.base), ceiling: tokenOf(block.ceiling) };
          const [row] = await run(sequenceState(resource), { signal });
          return refused(stateOf(row));
        },
        (message) => ({ outcome: "unavailable", message }),
      ),
    read: (resource, signal) =>
      reaching(async () => stateOf((await run(sequenceState(resource), { signal }))[0]), lost),
    open: (resource, at, signal) =>
      reaching(async () => stateOf((await run(sequenceOpen(resource, at, issuer), { signal }))[0]), lost),
  };
};
