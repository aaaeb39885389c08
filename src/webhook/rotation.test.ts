import { X509Certificate } from "node:crypto";
import { connect, createServer } from "node:tls";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import { type WallTime, wallTime } from "../core/time.ts";
import { makeAuthority, type Pair, readCertificate, signServing, splitBundle } from "../runtime/x509.ts";
import { backdateSeconds, bundleOf, type Keys, nextStep, validity } from "./rotation.ts";

const lives = { servingSeconds: 9000, authoritySeconds: 36_000 };
const names = ["fenceline.fenceline-system.svc", "127.0.0.1"];
const start = wallTime(1_800_000_000_000_000n);
const at = (seconds: number): WallTime => wallTime(start + BigInt(seconds) * 1_000_000n);
const authorityAt = (seconds: number) =>
  makeAuthority(`authority ${seconds}`, validity(at(seconds), lives.authoritySeconds));
const servingAt = (seconds: number, authority: Pair) =>
  signServing(authority, names, validity(at(seconds), lives.servingSeconds));

let first: Pair;
let second: Pair;
let keys: Keys;

beforeAll(async () => {
  first = await authorityAt(0);
  second = await authorityAt(24_000);
  keys = { authority: first, next: undefined, serving: await servingAt(0, first), trusted: first.cert };
});

const step = (changed: Partial<Keys>, seconds: number, { spread = false, named = names } = {}) => {
  const all = { ...keys, ...changed };
  const trusted = changed.trusted ?? bundleOf("", [all.authority, all.next], at(seconds));
  return nextStep({ ...all, trusted }, at(seconds), { lives, names: named, spread }).step;
};

describe("what is due", () => {
  const backdate = backdateSeconds(lives.authoritySeconds);

  test("nothing, while everything is young", () => expect(step({}, 5_000)).toBe("nothing"));
  test("everything, where nothing is", () =>
    expect(step({ authority: undefined, serving: undefined }, 0)).toBe("found"));
  test("everything, where what is there cannot be read", () =>
    expect(step({ authority: { cert: "?", key: "?" } }, 0)).toBe("found"));
  test("a serving certificate at two thirds of its life", () => {
    const twoThirds = 6_000 - backdateSeconds(lives.servingSeconds);
    expect(step({}, twoThirds - 1)).toBe("nothing");
    expect(step({}, twoThirds)).toBe("sign");
  });
  test("a serving certificate where it is missing or has not the names", () => {
    expect(step({ serving: undefined }, 1)).toBe("sign");
    expect(step({}, 1, { named: ["elsewhere.svc"] })).toBe("sign");
  });
  test("a serving certificate where another authority signed it", () =>
    expect(step({ authority: second, trusted: second.cert + first.cert }, 24_001)).toBe("sign"));
  test("the next authority at two thirds of this one's life", () => {
    expect(step({}, 24_000 - backdate - 1)).toBe("sign");
    expect(step({}, 24_000 - backdate)).toBe("announce");
  });
  test("the next one signs only once it is trusted everywhere, and for long enough", () => {
    const both = { next: second };
    expect(step(both, 26_999, { spread: true })).toBe("sign");
    expect(step(both, 27_000, { spread: false })).toBe("sign");
    expect(step(both, 27_000, { spread: true })).toBe("promote");
  });
  test("the next one signs at once where this one has expired", () =>
    expect(step({ next: second }, 36_000)).toBe("promote"));
  test("everything begins anew where all of them have expired", () =>
    expect(step({ next: second }, 24_000 + 36_000)).toBe("found"));
  test("who has expired is trusted no longer", async () => {
    const serving = await servingAt(36_000, second);
    const later = { authority: second, serving, trusted: first.cert + second.cert };
    expect(step(later, 35_699)).toBe("nothing");
    expect(step(later, 36_001)).toBe("retire");
    expect(bundleOf(later.trusted, [second], at(36_001))).toBe(second.cert);
  });
});

test("a bundle has each authority once", () => {
  expect(splitBundle(bundleOf(first.cert, [first, second], at(24_001)))).toEqual([first.cert, second.cert]);
});

describe("certificates", () => {
  test("say what they are", () => {
    const serving = readCertificate(keys.serving?.cert ?? "");
    expect(serving?.names).toEqual(names);
    expect(serving?.signedBy(first.cert)).toBe(true);
    expect(serving?.signedBy(second.cert)).toBe(false);
    expect(serving?.until).toBe(wallTime((serving?.from ?? 0n) + 9_000_000_000n));
    expect(new X509Certificate(first.cert).ca).toBe(true);
    expect(new X509Certificate(keys.serving?.cert ?? "").ca).toBe(false);
    expect(readCertificate("no certificate")).toBeUndefined();
  });

  test("are accepted by whoever trusts both authorities, whichever signed them", async () => {
    const now = wallTime(BigInt(Date.now()) * 1000n);
    const authorities = await Promise.all(
      ["old", "new"].map((name) => makeAuthority(name, validity(now, 3600))),
    );
    const ca = authorities.map(({ cert }) => cert).join("");
    for (const authority of authorities) {
      const pair = await signServing(authority, names, validity(now, 600));
      await using server = createServer(pair).listen(0, "127.0.0.1");
      await once(server, "listening");
      const socket = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", ca });
      await once(socket, "secureConnect");
      expect(socket.authorized).toBe(true);
      socket.destroy();
    }
  });
});
