/**
 * etcd goes back to a backup while holders live, under real coordinator processes. Behind a boundary that is told of
 * grants even an unnoticed restore is mended: that is shown beside PostgreSQL. Here nobody but a holder can testify.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { startApi } from "../../support/cluster/api.ts";
import type { Lab } from "../../support/cluster/lab.ts";
import { collectOnFailure } from "../../support/cluster/shared.ts";
import { type Answer, type Caller, type Held, heldBy } from "../../support/fenceline/caller.ts";
import { type Controller, install, killAll, startController } from "../../support/fenceline/install.ts";
import { callerFor, readyResource } from "../coordinator/support.ts";

let cluster: Lab;
collectOnFailure(() => cluster);
let controllers: Controller[] = [];
let callers: Caller[] = [];

const start = async (...replicas: string[]): Promise<Controller[]> => {
  const started = await Promise.all(replicas.map((replica) => startController(cluster, { replica })));
  controllers.push(...started);
  return started;
};
const call = async (controller: Controller | undefined, resource: string, sa: string): Promise<Caller> => {
  if (controller === undefined) throw new Error("no controller");
  const caller = await callerFor(cluster, controller, resource, sa);
  callers.push(caller);
  return caller;
};

beforeAll(async () => {
  cluster = await startApi();
  await install(cluster);
});
afterEach(async () => {
  await Promise.all(callers.map((caller) => caller.close()));
  await killAll(cluster, controllers);
  controllers = [];
  callers = [];
});
afterAll(() => cluster?.[Symbol.asyncDispose]());

const slowly = { timeout: 90_000, interval: 300 };
const jump = 2n ** 20n;
const tokenOf = (answer: Answer): bigint => BigInt(heldBy(answer).token);

/** Grants of `count` attempts that are given back; returns their tokens. */
const pass = async (caller: Caller, resource: string, count: number): Promise<bigint[]> => {
  const tokens: bigint[] = [];
  for (let round = 0; round < count; round += 1) {
    const answer = await caller.acquire(resource);
    expect(answer.status).toBe(200);
    tokens.push(tokenOf(answer));
    await caller.release(resource, heldBy(answer));
  }
  return tokens;
};

/** Acquires until somebody grants: a restore is followed by a time in which nothing is granted. */
const granted = async (caller: Caller, resource: string): Promise<Answer> => {
  let answer: Answer | undefined;
  await expect
    .poll(async () => {
      answer = await caller.acquire(resource, { waitMs: 1000 }).catch(() => undefined);
      return answer?.status;
    }, slowly)
    .toBe(200);
  if (answer === undefined) throw new Error("no answer");
  return answer;
};

/** The holder of a token that the restored world knows nothing of. */
interface Survivor {
  caller: Caller;
  held: Held;
  before: bigint[];
}

/** Backup at some token, four grants more, the last of which lives on; then everything goes back to the backup. */
const history = async (
  controller: Controller | undefined,
  resource: string,
  between: () => Promise<void> = async () => {},
): Promise<Survivor> => {
  const [alice, bob] = [await call(controller, resource, "alice"), await call(controller, resource, "bob")];
  const early = await pass(alice, resource, 2);
  const backup = await cluster.etcd.snapshot();
  const late = await pass(alice, resource, 3);
  const last = await bob.acquire(resource);
  expect(last.status).toBe(200);
  await between();
  await cluster.etcd.restore(backup);
  return { caller: bob, held: heldBy(last), before: [...early, ...late, tokenOf(last)] };
};

describe("FM-29 etcd goes back to a backup while a holder lives", () => {
  it("noticed by the watches of two replicas: no token is given again, and the old holder is told", {
    timeout: 180_000,
  }, async () => {
    const [a, b] = await start("restore-a", "restore-b");
    const resource = await readyResource(cluster);
    const { caller, held, before } = await history(a, resource);
    const highest = before.at(-1) ?? 0n;
    const carol = await call(b, resource, "carol");
    const next = tokenOf(await granted(carol, resource));
    expect(next).toBeGreaterThan(highest + jump);
    // The one that holds 6 shares it with nobody: for the restored Lease it never held anything.
    await expect
      .poll(async () => (await caller.renew(resource, held).catch(() => undefined))?.body["code"], slowly)
      .toBe("lost");
    const shown = async () =>
      JSON.parse(
        await cluster.kubectl(["get", "fr/orders", "-n", resource.split("/")[0] ?? "", "-o", "json"]),
      ) as { status: { tokens: { ceiling: string } } };
    await expect
      .poll(async () => BigInt((await shown()).status.tokens.ceiling), slowly)
      .toBeGreaterThan(highest + jump);
  });

  it("unnoticed, as nobody ran: the renewal of the holder that lives testifies, before anything is granted", {
    timeout: 180_000,
  }, async () => {
    const [old] = await start("forgot-old");
    const resource = await readyResource(cluster);
    const { held, before } = await history(old, resource, async () => {
      await killAll(cluster, controllers);
      controllers = [];
    });
    const highest = before.at(-1) ?? 0n;
    const [fresh] = await start("forgot-new");
    const bob = await call(fresh, resource, "bob");
    await expect
      .poll(async () => (await bob.renew(resource, held).catch(() => undefined))?.body["code"], slowly)
      .toBe("lost");
    const carol = await call(fresh, resource, "carol");
    const grant = await granted(carol, resource);
    expect(tokenOf(grant)).toBeGreaterThan(highest + jump);
    // And never below again: not by the credit that the restored Lease carried either.
    await carol.release(resource, heldBy(grant));
    for (const token of await pass(bob, resource, 3)) expect(token).toBeGreaterThan(tokenOf(grant));
  });
});
