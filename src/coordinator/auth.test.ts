import { describe, expect, it } from "vitest";
import { makeFakeClock } from "../../test/support/clock.ts";
import { KubeError, TransportError } from "../kube/errors.ts";
import { makeKubeClient } from "../kube/client.ts";
import { type Auth, makeAuth, type Principal } from "./auth.ts";

interface Sent {
  path: string;
  body: { spec: Record<string, unknown> };
}

/** An API server that answers reviews by `answers`, and counts them. */
const setup = (answers: (sent: Sent) => unknown) => {
  const clock = makeFakeClock();
  const sent: Sent[] = [];
  const client = makeKubeClient({
    async request(request) {
      const one = { path: request.path, body: JSON.parse(request.body ?? "{}") as Sent["body"] };
      sent.push(one);
      return { status: 201, headers: {}, body: JSON.stringify(answers(one)) };
    },
    async open() {
      throw new TransportError(false, "unreachable", "no watches here");
    },
  });
  return { clock, sent, auth: makeAuth({ client, clock }) };
};

const podUser = {
  username: "system:serviceaccount:shop:worker",
  uid: "sa-1",
  groups: ["system:serviceaccounts"],
  extra: {
    "authentication.kubernetes.io/pod-uid": ["pod-1"],
    "authentication.kubernetes.io/pod-name": ["worker-0"],
  },
};
const accepted = (user: unknown = podUser) => ({
  status: { authenticated: true, user, audiences: ["fenceline"] },
});

const jwt = (claims: object) => `x.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.y`;

const who = async (auth: Auth, bearer: string): Promise<Principal> => {
  const result = await auth.authenticate(`Bearer ${bearer}`);
  if ("code" in result) throw new Error(result.detail);
  return result;
};

describe("authenticate", () => {
  it("knows a pod by its uid, so that a pod of the same name is another holder", async () => {
    const { auth, sent } = setup(() => accepted());
    expect(await who(auth, "opaque")).toMatchObject({ identity: "pod:pod-1", pod: "worker-0" });
    expect(sent[0]?.body.spec).toEqual({ token: "opaque", audiences: ["fenceline"] });
  });

  it("knows everybody else by a hash that tells two accounts of one name apart", async () => {
    const identities = ["sa-1", "sa-2"].map(async (uid) => {
      const { auth } = setup(() => accepted({ username: "system:serviceaccount:shop:worker", uid }));
      return (await who(auth, "opaque")).identity;
    });
    const [first, second] = await Promise.all(identities);
    expect(first).toMatch(/^user:[0-9a-f]{32}$/);
    expect(first).not.toBe(second);
  });

  it.each([
    ["no header", undefined],
    ["another scheme", "Basic abc"],
    ["an empty bearer", "Bearer "],
    ["an oversized bearer", `Bearer ${"x".repeat(8193)}`],
    ["another audience", `Bearer ${jwt({ aud: ["https://kubernetes.default.svc"] })}`],
    ["an expired token", `Bearer ${jwt({ aud: "fenceline", exp: 1 })}`],
  ])("refuses %s without asking anybody", async (_case, header) => {
    const { auth, sent } = setup(() => accepted());
    expect(await auth.authenticate(header)).toMatchObject({ code: "unauthenticated" });
    expect(sent).toEqual([]);
  });

  it("lets the API server judge a token whose expiry is a matter of clocks", async () => {
    const { auth, clock, sent } = setup(() => accepted());
    const now = Number(clock.wall() / 1_000_000n);
    await who(auth, jwt({ aud: ["fenceline"], exp: now - 30 }));
    expect(sent).toHaveLength(1);
  });

  it("refuses what an authenticator without audiences accepts", async () => {
    const { auth } = setup(() => ({ status: { authenticated: true, user: podUser } }));
    expect(await auth.authenticate("Bearer opaque")).toMatchObject({ code: "unauthenticated" });
  });

  it("asks once a minute for who was accepted, once in 5 s for who was not, and once for many at a time", async () => {
    let good = true;
    const { auth, clock, sent } = setup(() =>
      good ? accepted() : { status: { authenticated: false, error: "unknown token" } },
    );
    await Promise.all([1, 2, 3].map(() => auth.authenticate("Bearer a")));
    await clock.advance(59_000);
    await auth.authenticate("Bearer a");
    expect(sent).toHaveLength(1);
    await clock.advance(2_000);
    good = false;
    expect(await auth.authenticate("Bearer a")).toMatchObject({ code: "unauthenticated" });
    await auth.authenticate("Bearer a");
    expect(sent).toHaveLength(2);
    await clock.advance(5_001);
    await auth.authenticate("Bearer a");
    expect(sent).toHaveLength(3);
  });

  it("says that nobody can tell when the API server is away, and asks again next time", async () => {
    const { auth, sent } = setup(({ path }) => {
      if (sent.length === 1) throw new TransportError(true, "unreachable", `${path}: reset`);
      return accepted();
    });
    await expect(auth.authenticate("Bearer a")).rejects.toBeInstanceOf(KubeError);
    expect((await who(auth, "a")).identity).toBe("pod:pod-1");
  });
});

describe("authorize", () => {
  const shop = { namespace: "shop", name: "orders" };

  it("asks for the verb on the very resource, and remembers the answer", async () => {
    const { auth, sent, clock } = setup(({ path, body }) =>
      path.includes("tokenreviews")
        ? accepted()
        : { status: { allowed: (body.spec["resourceAttributes"] as { verb: string }).verb === "acquire" } },
    );
    const caller = await who(auth, "a");
    expect(await auth.authorize(caller, "acquire", shop)).toBeUndefined();
    expect(await auth.authorize(caller, "acquire", shop)).toBeUndefined();
    expect(await auth.authorize(caller, "force", shop)).toMatchObject({
      code: "forbidden",
      resource: "shop/orders",
    });
    expect(sent).toHaveLength(3);
    expect(sent[1]?.body.spec).toMatchObject({
      user: podUser.username,
      groups: podUser.groups,
      resourceAttributes: { group: "fenceline.dev", resource: "fencedresources", verb: "acquire", ...shop },
    });
    await clock.advance(5_001);
    await auth.authorize(caller, "force", shop);
    expect(sent).toHaveLength(4);
  });
});
