import { describe, expect, test } from "vitest";
import type { Transfer } from "../api/fencedresource.ts";
import type { Ended, HolderId, LeaseView } from "../core/lease.ts";
import { wallTime } from "../core/time.ts";
import type { Token } from "../core/token.ts";
import { type Move, movesSince, type Told, transfersAfter } from "./transfers.ts";

const a = "user:a/1";
const b = "user:b/2";
const c = "user:c/3";

const lease = (holder: HolderId | undefined, token: bigint, ended: Ended[] = []): LeaseView => ({
  uid: "lease",
  resourceVersion: "1",
  ours: true,
  terminating: false,
  format: 1,
  holder,
  durationSeconds: 15,
  renewTime: wallTime(0n),
  transitions: 0,
  credit: { uid: "lease", token: token as Token, ceiling: 64n as Token },
  ended,
  unclean: false,
  boundary: undefined,
  note: undefined,
  forced: undefined,
});

const told = (holder?: HolderId, token = "1", transfers: Transfer[] = []): Told => ({
  holder: holder === undefined ? undefined : { identity: holder, token },
  granted: BigInt(token) as Token,
  transfers,
  fresh: false,
});

const granted = (holder: string, token: bigint): Move => ({ kind: "granted", holder, token: token as Token });
const ended = (
  holder: string,
  token: bigint | undefined,
  reason: "Released" | "Expired" | "Forced" | "Deleted",
): Move => ({
  kind: "ended",
  holder,
  token: token as Token | undefined,
  reason,
});

describe("moves since the status was written", () => {
  const rows: [string, Told, LeaseView | undefined, Move[]][] = [
    ["nobody, still nobody", told(), lease(undefined, 1n), []],
    ["first grant", told(undefined, "0"), lease(a, 1n), [granted(a, 1n)]],
    ["the same holder", told(a), lease(a, 1n), []],
    ["the same holder under a newer token", told(a), lease(a, 9n), [granted(a, 9n)]],
    [
      "released",
      told(a),
      lease(undefined, 1n, [{ holder: a, reason: "released" }]),
      [ended(a, 1n, "Released")],
    ],
    ["forced", told(a), lease(undefined, 1n, [{ holder: a, reason: "forced" }]), [ended(a, 1n, "Forced")]],
    [
      "expired and taken",
      told(a),
      lease(b, 2n, [{ holder: a, reason: "superseded" }]),
      [ended(a, 1n, "Expired"), granted(b, 2n)],
    ],
    ["the Lease is gone", told(a), undefined, [ended(a, 1n, "Deleted")]],
    [
      "the Lease was made anew",
      told(a),
      { ...lease(undefined, 0n), credit: undefined },
      [ended(a, 1n, "Deleted")],
    ],
    ["made anew and granted", told(a), lease(b, 65n), [ended(a, 1n, "Deleted"), granted(b, 65n)]],
    [
      "one in between, no gap: its token is certain",
      told(a),
      lease(c, 3n, [
        { holder: a, reason: "released" },
        { holder: b, reason: "forced" },
      ]),
      [ended(a, 1n, "Released"), granted(b, 2n), ended(b, 2n, "Forced"), granted(c, 3n)],
    ],
    [
      "one in between, a gap: nothing is guessed",
      told(a),
      lease(c, 70n, [
        { holder: a, reason: "released" },
        { holder: b, reason: "forced" },
      ]),
      [ended(a, 1n, "Released"), ended(b, undefined, "Forced"), granted(c, 70n)],
    ],
    [
      "came and went unseen, after one that was told",
      told(undefined, "1", [{ token: "1", from: a, reason: "Released", time: "t" }]),
      lease(undefined, 2n, [
        { holder: a, reason: "released" },
        { holder: b, reason: "released" },
      ]),
      [granted(b, 2n), ended(b, 2n, "Released")],
    ],
    [
      "a status that was never written: the past is no news",
      { ...told(undefined, "0"), fresh: true },
      lease(b, 2n, [{ holder: a, reason: "released" }]),
      [granted(b, 2n)],
    ],
    [
      "after such a first status, what was there before it stays no news",
      told(undefined, "2"),
      lease(undefined, 2n, [{ holder: a, reason: "released" }]),
      [],
    ],
    [
      "nothing known among the ended: as many as were granted since",
      told(undefined, "5"),
      lease(c, 7n, [
        { holder: a, reason: "released" },
        { holder: b, reason: "released" },
      ]),
      [granted(b, 6n), ended(b, 6n, "Released"), granted(c, 7n)],
    ],
    [
      "pushed out of the ended by eight later ones: its end is not guessed",
      told(a),
      lease(
        c,
        60n,
        Array.from({ length: 8 }, (_, index) => ({
          holder: `user:x/${index}` as const,
          reason: "released" as const,
        })),
      ),
      [
        ...Array.from({ length: 8 }, (_, index) => ended(`user:x/${index}`, undefined, "Released")),
        granted(c, 60n),
      ],
    ],
    [
      "a holder whose credit is void was granted nothing",
      told(undefined, "0"),
      { ...lease(a, 1n), credit: undefined },
      [],
    ],
  ];
  test.each(rows)("%s", (_, before, now, moves) => {
    expect(movesSince(before, now)).toEqual(moves);
  });
});

describe("transfers", () => {
  const first: Transfer = { token: "1", to: a, reason: "Granted", time: "t0" };
  const open: Transfer = { token: "1", from: a, reason: "Released", time: "t1" };

  test("the first grant has no predecessor", () => {
    expect(transfersAfter([], [granted(a, 1n)], "t")).toEqual([
      { token: "1", to: a, reason: "Granted", time: "t" },
    ]);
  });
  test("an end waits for the next grant, which fills it", () => {
    expect(transfersAfter([first], [ended(a, 1n, "Released")], "t1")).toEqual([first, open]);
    expect(transfersAfter([first, open], [granted(b, 2n)], "t2")).toEqual([
      first,
      { token: "2", from: a, to: b, reason: "Released", time: "t2" },
    ]);
  });
  test("one of unknown token is told as where it came from", () => {
    expect(transfersAfter([], [ended(b, undefined, "Forced"), granted(c, 70n)], "t")).toEqual([
      { token: "70", from: b, to: c, reason: "Forced", time: "t" },
    ]);
  });
  test("a newer token for the same holder is no transfer", () => {
    expect(transfersAfter([first], [granted(a, 9n)], "t")).toEqual([{ ...first, token: "9" }]);
  });
  test("the last ten are kept", () => {
    const many = Array.from({ length: 30 }, (_, index) => granted(`user:x/${index}`, BigInt(index + 1)));
    const kept = transfersAfter([], many, "t");
    expect(kept).toHaveLength(10);
    expect(kept.at(-1)).toMatchObject({ token: "30" });
  });
  test("nothing new changes nothing", () => {
    expect(transfersAfter([first, open], [], "t")).toEqual([first, open]);
  });
});
