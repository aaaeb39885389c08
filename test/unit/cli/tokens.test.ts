import { expect, it } from "vitest";
import { makeTokens } from "../../../src/cli/coordinator.ts";
import { makeKubeClient } from "../../../src/kube/client.ts";
import type { HttpRequest } from "../../../src/kube/types.ts";
import { makeFakeClock } from "../../support/clock.ts";

const setUp = (expirationSeconds: number) => {
  const requests: HttpRequest[] = [];
  const client = makeKubeClient({
    request: (request) => {
      requests.push(request);
      const body = { spec: { expirationSeconds }, status: { token: `token-${requests.length}` } };
      return Promise.resolve({ status: 201, headers: {}, body: JSON.stringify(body) });
    },
    open: () => Promise.reject(new Error("nobody watches")),
  });
  const clock = makeFakeClock();
  return { requests, clock, tokens: makeTokens(client, "shop/worker", clock) };
};

it("a service account's token is asked for with our audience, and kept", async () => {
  const { requests, tokens } = setUp(3600);
  expect([await tokens(), await tokens()]).toEqual(["token-1", "token-1"]);
  expect(requests).toHaveLength(1);
  expect(requests[0]?.path).toBe("/api/v1/namespaces/shop/serviceaccounts/worker/token");
  expect(JSON.parse(requests[0]?.body ?? "")).toMatchObject({
    kind: "TokenRequest",
    spec: { audiences: ["fenceline"], expirationSeconds: 3600 },
  });
});

it("a new one is fetched before the old one ends, also where less was granted than asked for", async () => {
  const { clock, tokens } = setUp(600);
  await tokens();
  await clock.advance(479_000);
  expect(await tokens()).toBe("token-1");
  await clock.advance(2000);
  expect(await tokens()).toBe("token-2");
});
