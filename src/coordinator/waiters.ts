import type { HolderId } from "../core/lease.ts";
import type { Clock } from "../runtime/clock.ts";
import { makeBells } from "./bells.ts";

/** How many may wait at once: per resource, per identity and resource, and in this process. */
export interface WaitLimits {
  perResource: number;
  perIdentity: number;
  total: number;
}

export const waitLimits: WaitLimits = { perResource: 256, perIdentity: 16, total: 10_000 };

/** How long a seat is kept for its attempt between two long polls. */
const seatKeptMs = 5_000;

interface Seat {
  me: HolderId;
  identity: string;
  /** Polls that sit on it now; at 0 it is kept for a while. */
  polls: number;
  cancelExpiry: (() => void) | undefined;
}

/** One poll's place in the queue of one resource. */
export interface Place {
  /** How many attempts on this replica come first. */
  ahead(): number;
  /** Leaves for good: granted, or refused for a reason that waiting does not change. */
  leave(): void;
  /** Leaves the poll; the seat stays for a while. */
  pause(): void;
}

/**
 * Who waits for what on this replica: first in, first out per resource. Over replicas there is no order; only the head
 * of each queue tries the compare-and-set.
 */
export interface Waiters {
  /** A seat at the end, or the attempt's own where it has one. Undefined: too many wait. */
  join(resource: string, me: HolderId, identity: string): Place | undefined;
  /** Attempts that wait for the resource on this replica. */
  count(resource: string): number;
  total(): number;
  /** Calls `wake` whenever the queue of the resource changed. Returns what ends it. */
  onChange(resource: string, wake: () => void): () => void;
}

/** `counted` hears how many wait for a resource, whenever that changed. */
export const makeWaiters = (
  clock: Clock,
  counted: (resource: string, waiting: number) => void,
  limits: WaitLimits = waitLimits,
): Waiters => {
  const queues = new Map<string, Seat[]>();
  const bells = makeBells();
  let total = 0;

  const changed = (resource: string) => {
    bells.ring(resource);
    counted(resource, queues.get(resource)?.length ?? 0);
  };

  const remove = (resource: string, seat: Seat) => {
    const queue = queues.get(resource);
    const index = queue?.indexOf(seat) ?? -1;
    if (queue === undefined || index < 0) return;
    seat.cancelExpiry?.();
    queue.splice(index, 1);
    total -= 1;
    if (queue.length === 0) queues.delete(resource);
    changed(resource);
  };

  const keep = (resource: string, seat: Seat) => {
    seat.cancelExpiry = clock.timer(seatKeptMs, () => {
      remove(resource, seat);
    });
  };

  return {
    join(resource, me, identity) {
      const queue = queues.get(resource) ?? [];
      let seat = queue.find((other) => other.me === me);
      if (seat === undefined) {
        const own = queue.filter((other) => other.identity === identity).length;
        if (queue.length >= limits.perResource || own >= limits.perIdentity || total >= limits.total)
          return undefined;
        seat = { me, identity, polls: 0, cancelExpiry: undefined };
        queue.push(seat);
        queues.set(resource, queue);
        total += 1;
        changed(resource);
      }
      const mine = seat;
      mine.cancelExpiry?.();
      mine.polls += 1;
      let seated = true;
      return {
        ahead: () => Math.max(0, queues.get(resource)?.indexOf(mine) ?? 0),
        leave() {
          if (!seated) return;
          seated = false;
          remove(resource, mine);
        },
        pause() {
          if (!seated) return;
          seated = false;
          mine.polls -= 1;
          if (mine.polls === 0) keep(resource, mine);
        },
      };
    },
    count: (resource) => queues.get(resource)?.length ?? 0,
    total: () => total,
    onChange: (resource, wake) => bells.listen(resource, wake),
  };
};
