/** Calls in any order and overlap, shrunk to the shortest that breaks something. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { isLong } from "./long.ts";
import { makeScene } from "./scene.ts";

const client = fc.integer({ min: 0, max: 2 });
const replica = fc.integer({ min: 0, max: 1 });
const command = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constant("acquire" as const),
      client,
      replica,
      waitMs: fc.constantFrom(0, 0, 2_000),
    }),
  },
  { weight: 3, arbitrary: fc.record({ call: fc.constant("renew" as const), client, replica }) },
  { weight: 2, arbitrary: fc.record({ call: fc.constant("release" as const), client, replica }) },
  { weight: 1, arbitrary: fc.record({ call: fc.constant("force" as const), replica }) },
  { weight: 1, arbitrary: fc.record({ call: fc.constant("new attempt" as const), client }) },
  { weight: 1, arbitrary: fc.record({ call: fc.constant("crash" as const), replica }) },
  // Up to a takeover of who was not heard of.
  {
    weight: 3,
    arbitrary: fc.record({ call: fc.constant("pass" as const), ms: fc.constantFrom(1, 5, 50, 4_000) }),
  },
);
type Command = typeof command extends fc.Arbitrary<infer C> ? C : never;

const run = async (commands: readonly Command[]) => {
  const scene = await makeScene({ durationSeconds: 3, reserve: 2 });
  const attempts = [0, 0, 0];
  const tokens: (string | undefined)[] = [];
  for (const command of commands) {
    if (command.call === "pass") await scene.pass(command.ms);
    else if (command.call === "new attempt") attempts[command.client] = (attempts[command.client] ?? 0) + 1;
    else if (command.call === "crash") {
      scene.killReplica(command.replica);
      scene.reviveReplica(command.replica);
    } else if (command.call === "force")
      void scene.call(command.replica, "user:ann", "force-release", { reason: "as planned" });
    else {
      const { client, replica, call } = command;
      const attempt = `${client}-${attempts[client]}`;
      const token = tokens[client];
      if (call !== "acquire" && token === undefined) continue;
      const waitMs = call === "acquire" ? command.waitMs : 0;
      void scene
        .call(replica, `pod:c${client}`, call, { attempt, token, waitMs })
        .then(({ status, body }) => {
          if (call === "acquire" && status === 200) tokens[client] = (body as { token: string }).token;
        });
    }
    await scene.pass(1);
  }
  await scene.pass(5_000);
  return scene;
};

test("S1-17 S2-34 acquire, renew, release, force and takeover in any order keep every invariant", {
  timeout: isLong ? 7_200_000 : 300_000,
}, async () => {
  let granted = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 1, maxLength: 20 }), async (commands) => {
      const scene = await run(commands);
      granted += scene.recorder.history.filter(
        (event) => event.kind === "acquire" && event.outcome === "granted",
      ).length;
      expect(scene.violations()).toEqual([]);
    }),
    { numRuns: isLong ? 50_000 : 200, seed: 42 },
  );
  expect(granted).toBeGreaterThan(isLong ? 50_000 : 200);
});
