/**
 * Sequences in the status of FencedSequences, one cluster-scoped object per resource.
 *
 * | object | read | reserve | open |
 * | --- | --- | --- | --- |
 * | absent | missing | not_ready | made, then opened at `at` |
 * | no status | unopened | not_ready | opened at `at` |
 * | of another resource, unreadable | unavailable | unavailable | unavailable |
 * | another issuer, own uid | open (with its issuer) | issuer_mismatch | stays |
 * | another issuer, another uid | copied | issuer_mismatch | stays |
 * | another uid | copied | not_ready | opened at max(at, its ceiling) |
 * | sealed | open, sealed | sealed | stays |
 * | else | open | one write | stays |
 *
 * A write is conditional on the version it was computed from: our own last one, or a read. [R] Only what was read now is
 * answered as a no.
 */
import type { FencedSequence, FencedSequenceStatus } from "../api/fencedsequence.ts";
import { apiVersion, sequenceName } from "../api/names.ts";
import { higher, noToken, parseToken, type Token } from "../core/token.ts";
import { KubeError } from "../kube/errors.ts";
import { fencedSequenceKind } from "../kube/kinds.ts";
import type { KubeClient, WriteResult } from "../kube/types.ts";
import type { Clock, Random } from "../runtime/clock.ts";
import { type Block, nextBlock } from "./block.ts";
import type { Reservation, ResourceKey, SequenceState, SequenceStore } from "./port.ts";

/** What a FencedSequence says, as the controller's cache or a read shows it. */
export const sequenceState = (sequence: FencedSequence | undefined, resource: ResourceKey): SequenceState => {
  if (sequence === undefined) return { state: "missing" };
  const { metadata, spec, status } = sequence;
  if (spec.resource !== resource)
    return {
      state: "unavailable",
      message: `FencedSequence ${metadata.name} should be the one of ${resource}, but says ${spec.resource}`,
    };
  if (status === undefined) return { state: "unopened" };
  const { issuer, sealed } = status;
  const ceiling = parseToken(status.ceiling) ?? noToken;
  if (status.uid !== metadata.uid) return { state: "copied", ceiling, issuer };
  return { state: "open", base: parseToken(status.base) ?? noToken, ceiling, sealed, issuer };
};

/** How often one call tries again after a conflict or a lost answer. */
const rounds = 6;
/** Two replicas that met part for a moment: 0 to this many milliseconds. */
const partMs = 50;
/** Last versions that are kept, the least recently used ones go first: what is not kept costs a read. */
const knownMost = 10_000;

export interface StatusStoreDeps {
  client: Pick<KubeClient, "get" | "create" | "updateStatus">;
  /** Identity of this cluster: the uid of its namespace kube-system. */
  issuer: string;
  clock: Pick<Clock, "sleep">;
  random: Pick<Random, "float">;
}

type Next =
  | { kind: "write"; sequence: FencedSequence; status: FencedSequenceStatus; block: Block }
  | { kind: "answer"; reservation: Reservation };

/** Runs against the API server; what it cannot tell is `unavailable`. */
const reaching = async <T>(
  signal: AbortSignal | undefined,
  run: () => Promise<T>,
  unavailable: (message: string) => T,
): Promise<T> => {
  try {
    return await run();
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof KubeError) return unavailable(error.message);
    throw error;
  }
};

const answer = (reservation: Reservation): Next => ({ kind: "answer", reservation });

export const makeStatusStore = ({ client, issuer, clock, random }: StatusStoreDeps): SequenceStore => {
  const known = new Map<ResourceKey, FencedSequence>();
  const turns = new Map<ResourceKey, Promise<unknown>>();

  const keep = (resource: ResourceKey, sequence: FencedSequence | undefined) => {
    known.delete(resource);
    if (sequence !== undefined) known.set(resource, sequence);
    for (const oldest of known.keys()) {
      if (known.size <= knownMost) break;
      known.delete(oldest);
    }
  };

  /** Calls of one process for one resource come one after the other: they would only meet in a conflict. */
  const inTurn = <T>(resource: ResourceKey, run: () => Promise<T>): Promise<T> => {
    const turn = (turns.get(resource) ?? Promise.resolve()).then(run, run);
    turns.set(resource, turn);
    const end = () => {
      if (turns.get(resource) === turn) turns.delete(resource);
    };
    turn.then(end, end);
    return turn;
  };

  const fetch = async (resource: ResourceKey, signal?: AbortSignal): Promise<FencedSequence | undefined> => {
    const result = await client.get(fencedSequenceKind, { name: sequenceName(resource) }, signal);
    const sequence = result.outcome === "found" ? result.object : undefined;
    keep(resource, sequence);
    return sequence;
  };

  const write = async (
    resource: ResourceKey,
    sequence: FencedSequence,
    status: FencedSequenceStatus,
    signal?: AbortSignal,
  ): Promise<WriteResult<FencedSequence>> => {
    const result = await client.updateStatus(fencedSequenceKind, { ...sequence, status }, signal);
    keep(resource, result.outcome === "ok" ? result.object : undefined);
    return result;
  };

  const next = (
    sequence: FencedSequence | undefined,
    resource: ResourceKey,
    count: bigint,
    atLeast: Token,
  ): Next => {
    const found = sequenceState(sequence, resource);
    if (found.state === "unavailable") return answer({ outcome: "unavailable", message: found.message });
    if (sequence?.status === undefined || found.state === "missing" || found.state === "unopened")
      return answer({ outcome: "not_ready", reason: found.state === "missing" ? "missing" : "unopened" });
    if (found.issuer !== issuer) return answer({ outcome: "issuer_mismatch", issuer: found.issuer });
    if (found.state === "copied") return answer({ outcome: "not_ready", reason: "copied" });
    if (found.sealed) return answer({ outcome: "sealed" });
    const block = nextBlock(found.ceiling, count, atLeast);
    if (block === undefined) return answer({ outcome: "exhausted" });
    if (block.ceiling === found.ceiling) return answer({ outcome: "reserved", ...block });
    return {
      kind: "write",
      sequence,
      status: { ...sequence.status, ceiling: block.ceiling.toString() },
      block,
    };
  };

  const reserve = async (
    resource: ResourceKey,
    count: bigint,
    atLeast: Token,
    signal?: AbortSignal,
  ): Promise<Reservation> => {
    let message = "";
    for (let round = 0; round < rounds; round += 1) {
      if (round > 1) await clock.sleep(random.float() * partMs, signal);
      const cached = known.get(resource);
      let step = next(cached ?? (await fetch(resource, signal)), resource, count, atLeast);
      if (step.kind === "answer" && cached !== undefined)
        step = next(await fetch(resource, signal), resource, count, atLeast);
      if (step.kind === "answer") return step.reservation;
      const written = await write(resource, step.sequence, step.status, signal);
      if (written.outcome === "ok") return { outcome: "reserved", ...step.block };
      if (written.outcome === "refused" || written.outcome === "unavailable")
        return { outcome: "unavailable", message: written.message };
      // A write of unknown outcome may still land: its block is a gap, ours comes after it or its condition fails.
      message = written.message;
    }
    return {
      outcome: "unavailable",
      message: `the FencedSequence of ${resource} keeps changing: ${message}`,
    };
  };

  const read = async (resource: ResourceKey, signal?: AbortSignal): Promise<SequenceState> =>
    sequenceState(await fetch(resource, signal), resource);

  const make = (resource: ResourceKey, signal?: AbortSignal): Promise<WriteResult<FencedSequence>> =>
    client.create(
      fencedSequenceKind,
      { ...typeMeta, metadata: { name: sequenceName(resource) }, spec: { resource } },
      signal,
    );

  const open = async (resource: ResourceKey, at: Token, signal?: AbortSignal): Promise<SequenceState> => {
    let message = "";
    for (let round = 0; round < rounds; round += 1) {
      if (round > 1) await clock.sleep(random.float() * partMs, signal);
      let sequence = await fetch(resource, signal);
      if (sequence === undefined) {
        const made = await make(resource, signal);
        if (made.outcome !== "ok") {
          message = made.message;
          if (made.outcome === "refused" || made.outcome === "unavailable") break;
          continue;
        }
        sequence = made.object;
      }
      const found = sequenceState(sequence, resource);
      if (found.state === "open" || found.state === "unavailable") return found;
      if (found.state === "copied" && found.issuer !== issuer) return found;
      const start = (found.state === "copied" ? higher(at, found.ceiling) : at).toString();
      const status = {
        base: start,
        ceiling: start,
        uid: sequence.metadata.uid,
        issuer,
        sealed: false,
      };
      const written = await write(resource, sequence, status, signal);
      if (written.outcome === "ok") return sequenceState(written.object, resource);
      message = written.message;
      if (written.outcome === "refused" || written.outcome === "unavailable") break;
    }
    return { state: "unavailable", message };
  };

  return {
    reserve: (resource, count, atLeast, signal) =>
      inTurn(resource, () =>
        reaching(
          signal,
          () => reserve(resource, count, atLeast, signal),
          (message) => ({ outcome: "unavailable", message }),
        ),
      ),
    read: (resource, signal) =>
      reaching(
        signal,
        () => read(resource, signal),
        (message) => ({ state: "unavailable", message }),
      ),
    open: (resource, at, signal) =>
      inTurn(resource, () =>
        reaching(
          signal,
          () => open(resource, at, signal),
          (message) => ({ state: "unavailable", message }),
        ),
      ),
  };
};

const typeMeta = { apiVersion, kind: fencedSequenceKind.kind };
