/**
 * What the protocol leans on in an API server, asked of the real one and of its model alike: status, reason and effect of
 * each request. Requests are sent as they are, below the client, which would refuse half of them before the server can.
 */
import { describe, expect, it } from "vitest";
import type { Transport } from "../../src/kube/types.ts";
import {
  type Answer,
  type ApiHarness,
  fenced,
  fencedBody,
  leaseBody,
  leases,
  type Loose,
  type Method,
  send,
} from "./kuberequests.ts";

type State = "unchanged" | "changed" | "deleted" | "re-created";
const states: State[] = ["unchanged", "changed", "deleted", "re-created"];

/** kubernetes: what becomes of a write that was computed from a version that may have passed. */
const rows: { write: string; method: Method; names: ("uid" | "resourceVersion")[]; want: string[] }[] = [
  {
    write: "PUT, uid + resourceVersion",
    method: "PUT",
    names: ["uid", "resourceVersion"],
    want: ["200 new", "409 Conflict", "409 Conflict nothing", "409 Conflict"],
  },
  {
    write: "PUT, uid, no resourceVersion",
    method: "PUT",
    names: ["uid"],
    want: ["422 Invalid", "422 Invalid", "409 Conflict nothing", "409 Conflict"],
  },
  {
    write: "PUT, no uid, old resourceVersion",
    method: "PUT",
    names: ["resourceVersion"],
    want: ["200 new", "409 Conflict", "201 ghost", "409 Conflict"],
  },
  {
    write: "PUT, no uid, no resourceVersion",
    method: "PUT",
    names: [],
    want: ["422 Invalid", "422 Invalid", "201 ghost", "422 Invalid"],
  },
  {
    write: "merge patch, uid + resourceVersion",
    method: "PATCH",
    names: ["uid", "resourceVersion"],
    want: ["200 new", "409 Conflict", "404 NotFound nothing", "409 Conflict"],
  },
  {
    write: "merge patch, uid only",
    method: "PATCH",
    names: ["uid"],
    want: ["200 new", "200 new", "404 NotFound nothing", "422 Invalid"],
  },
];

const outcome = async (api: Transport, path: string, written: Answer): Promise<string> => {
  const now = await send(api, "GET", path);
  const holder = now.body.spec?.["holderIdentity"];
  const effect =
    now.status === 404 ? "nothing" : holder !== "writer" ? "" : written.status === 201 ? "ghost" : "new";
  return [written.status, written.reason, effect]
    .filter((part) => part !== undefined && part !== "")
    .join(" ");
};

const metaOf = ({ metadata }: Loose) => ({
  uid: metadata?.uid ?? "",
  resourceVersion: metadata?.resourceVersion ?? "",
});

export const kubeApiContract = (name: string, harness: () => Promise<ApiHarness>) => {
  /** A namespace with a Lease `orders` held by `first`. */
  const start = async () => {
    const api = await harness();
    const namespace = await api.namespace();
    const path = leases(namespace, "orders");
    const body = (spec: Record<string, unknown>, metadata: object = {}) =>
      leaseBody(namespace, "orders", spec, metadata);
    const make = async () => {
      const made = await send(api.admin, "POST", leases(namespace), body({ holderIdentity: "first" }));
      expect(made.status).toBe(201);
      return made.body;
    };
    return { ...api, namespace, path, body, make };
  };

  describe(`API server (${name}): writes after the object moved`, () => {
    for (const { write, method, names, want } of rows)
      for (const [index, state] of states.entries())
        it(`${write}, Lease ${state}: ${want[index]}`, async () => {
          const { admin, path, body, make } = await start();
          const read = metaOf(await make());
          if (state === "changed") await send(admin, "PUT", path, body({ holderIdentity: "rival" }, read));
          if (state === "deleted" || state === "re-created") await send(admin, "DELETE", path);
          if (state === "re-created") await make();
          const metadata = Object.fromEntries(names.map((key) => [key, read[key]]));
          const sent =
            method === "PUT"
              ? body({ holderIdentity: "writer" }, metadata)
              : { metadata, spec: { holderIdentity: "writer" } };
          const written = await send(admin, method, path, sent);
          expect(await outcome(admin, path, written)).toBe(want[index]);
        });

    it("a PUT that changes nothing keeps the resourceVersion", async () => {
      const { admin, path, body, make } = await start();
      const read = metaOf(await make());
      const same = await send(admin, "PUT", path, body({ holderIdentity: "first" }, read));
      expect([same.status, same.body.metadata?.resourceVersion]).toEqual([200, read.resourceVersion]);
    });

    it("a custom resource is not made by a PUT", async () => {
      const { admin, namespace } = await start();
      const bare = await send(admin, "PUT", fenced(namespace, "orders"), fencedBody(namespace, "orders"));
      expect([bare.status, bare.reason]).toEqual([404, "NotFound"]);
      const uid = { uid: "6e1f4bd0-0000-4000-8000-000000000000", resourceVersion: "7" };
      const named = await send(
        admin,
        "PUT",
        fenced(namespace, "orders"),
        fencedBody(namespace, "orders", {}, uid),
      );
      expect([named.status, named.reason]).toEqual([404, "NotFound"]);
    });

    it("a name or namespace that is not the address's is a bad request", async () => {
      const { admin, path, namespace } = await start();
      const other = await send(admin, "PUT", path, leaseBody(namespace, "other"));
      expect([other.status, other.reason]).toEqual([400, "BadRequest"]);
      const elsewhere = await send(admin, "POST", leases(namespace), leaseBody("default", "orders"));
      expect([elsewhere.status, elsewhere.reason]).toEqual([400, "BadRequest"]);
    });

    it("creating what is there is AlreadyExists; in a namespace that is not there, NotFound", async () => {
      const { admin, namespace, body, make } = await start();
      await make();
      const again = await send(admin, "POST", leases(namespace), body({}));
      expect([again.status, again.reason]).toEqual([409, "AlreadyExists"]);
      const nowhere = await send(admin, "POST", leases("nowhere"), leaseBody("nowhere", "orders"));
      expect([nowhere.status, nowhere.reason]).toEqual([404, "NotFound"]);
    });
  });

  describe(`API server (${name}): what a Lease may say`, () => {
    const micro = "2026-01-02T03:04:05.123456Z";
    const cases: [string, Record<string, unknown>, string][] = [
      ["six digits", { renewTime: micro }, "200"],
      ["an offset", { renewTime: "2026-01-02T05:04:05.123456+02:00" }, "200"],
      ["three digits", { renewTime: "2026-01-02T03:04:05.123Z" }, "400 BadRequest"],
      ["no digits", { renewTime: "2026-01-02T03:04:05Z" }, "400 BadRequest"],
      ["nine digits", { acquireTime: "2026-01-02T03:04:05.123456789Z" }, "400 BadRequest"],
      ["an empty time", { renewTime: "" }, "400 BadRequest"],
      ["a number as time", { renewTime: 5 }, "400 BadRequest"],
      ["no duration with a holder", { holderIdentity: "x" }, "200"],
      ["duration 0", { leaseDurationSeconds: 0 }, "422 Invalid"],
      ["duration −1", { leaseDurationSeconds: -1 }, "422 Invalid"],
      ["duration 1.5", { leaseDurationSeconds: 1.5 }, "400 BadRequest"],
      ["duration as text", { leaseDurationSeconds: "5" }, "400 BadRequest"],
      ["duration 2^31", { leaseDurationSeconds: 2_147_483_648 }, "400 BadRequest"],
      ["duration 2^31−1", { leaseDurationSeconds: 2_147_483_647 }, "200"],
      ["transitions −1", { leaseTransitions: -1 }, "422 Invalid"],
      ["transitions that fall", { leaseTransitions: 0 }, "200"],
      ["an empty holder", { holderIdentity: "" }, "200"],
    ];
    for (const [what, spec, want] of cases)
      it(`${what}: ${want}`, async () => {
        const { admin, path, body, make } = await start();
        const written = await send(admin, "PUT", path, body(spec, metaOf(await make())));
        expect([written.status, written.reason].filter(Boolean).join(" ")).toBe(want);
      });

    it("stores times as UTC, and an empty holder as such", async () => {
      const { admin, path, body, make } = await start();
      const renewTime = "2026-01-02T05:04:05.123456+02:00";
      const written = await send(
        admin,
        "PUT",
        path,
        body({ renewTime, holderIdentity: "" }, metaOf(await make())),
      );
      expect(written.body.spec).toEqual({ renewTime: micro, holderIdentity: "" });
    });

    it("annotations beyond 256 KiB, and labels beyond 63 characters, are Invalid", async () => {
      const { admin, path, body, make } = await start();
      const read = metaOf(await make());
      const huge = body({}, { ...read, annotations: { a: "x".repeat(262_144) } });
      expect((await send(admin, "PUT", path, huge)).reason).toBe("Invalid");
      const long = body({}, { ...read, labels: { a: "x".repeat(64) } });
      expect((await send(admin, "PUT", path, long)).reason).toBe("Invalid");
      const odd = body({}, { ...read, annotations: { a: 5 } });
      expect((await send(admin, "PUT", path, odd)).reason).toBe("BadRequest");
    });

    it("has no status of its own", async () => {
      const { admin, path, body, make } = await start();
      const written = await send(admin, "PUT", `${path}/status`, body({}, metaOf(await make())));
      expect(written.status).toBe(404);
    });
  });

  describe(`API server (${name}): deletion`, { timeout: 60_000 }, () => {
    it("looks at its preconditions", async () => {
      const { admin, path, make } = await start();
      const { uid, resourceVersion } = metaOf(await make());
      const wrong = { uid: "6e1f4bd0-0000-4000-8000-000000000000" };
      const remove = (preconditions: object) =>
        send(admin, "DELETE", path, { apiVersion: "v1", kind: "DeleteOptions", preconditions });
      expect(await remove(wrong)).toMatchObject({ status: 409, reason: "Conflict" });
      expect(await remove({ uid, resourceVersion: "1" })).toMatchObject({ status: 409, reason: "Conflict" });
      expect(await remove({ uid, resourceVersion })).toMatchObject({ status: 200 });
      expect(await remove({})).toMatchObject({ status: 404, reason: "NotFound" });
    });

    it("with a finalizer waits, still takes a holder, lets no new one be made, and ends with the finalizer", async () => {
      const { admin, namespace, path, body, make } = await start();
      const read = metaOf(await make());
      const kept = { finalizers: ["test.fenceline.dev/kept"] };
      await send(admin, "PUT", path, body({}, { ...read, ...kept }));
      expect((await send(admin, "DELETE", path)).body.metadata?.deletionTimestamp).toBeDefined();
      expect(await send(admin, "POST", leases(namespace), body({}))).toMatchObject({
        status: 409,
        reason: "AlreadyExists",
      });
      const dying = metaOf((await send(admin, "GET", path)).body);
      const taken = await send(admin, "PUT", path, body({ holderIdentity: "late" }, { ...dying, ...kept }));
      expect([taken.status, taken.body.metadata?.deletionTimestamp]).toEqual([200, expect.any(String)]);
      const last = await send(admin, "PUT", path, body({}, { ...metaOf(taken.body), finalizers: [] }));
      expect(last.status).toBe(200);
      expect((await send(admin, "GET", path)).status).toBe(404);
    });

    it("of a namespace takes its content, and nothing new comes in meanwhile", async () => {
      const { admin, namespace, path, body, make } = await start();
      await make();
      expect((await send(admin, "DELETE", `/api/v1/namespaces/${namespace}`)).status).toBe(200);
      const late = await send(
        admin,
        "POST",
        leases(namespace),
        leaseBody(namespace, "late", { holderIdentity: "late" }),
      );
      expect([late.status, late.reason]).toEqual([403, "Forbidden"]);
      await expect
        .poll(async () => (await send(admin, "GET", path)).status, { timeout: 20_000, interval: 200 })
        .toBe(404);
      await expect
        .poll(async () => (await send(admin, "GET", `/api/v1/namespaces/${namespace}`)).status, {
          timeout: 20_000,
          interval: 200,
        })
        .toBe(404);
      expect((await send(admin, "POST", leases(namespace), body({}))).status).toBe(404);
    });
  });

  describe(`API server (${name}): status of a custom resource`, () => {
    const holder = { waiters: 3 };

    it("is dropped by create and by PUT of the object, and alone changed by PUT of the status", async () => {
      const { admin, us, namespace } = await start();
      const path = fenced(namespace, "orders");
      const made = await send(
        admin,
        "POST",
        fenced(namespace),
        fencedBody(namespace, "orders", { status: holder }),
      );
      expect(made).toMatchObject({ status: 201, body: { metadata: { generation: 1 } } });
      expect(made.body.status).toBeUndefined();

      const told = await send(
        us,
        "PUT",
        `${path}/status`,
        fencedBody(namespace, "orders", { spec: { suspend: true }, status: holder }, metaOf(made.body)),
      );
      expect(told).toMatchObject({
        status: 200,
        body: { metadata: { generation: 1 }, spec: { suspend: false }, status: holder },
      });

      const changed = await send(
        admin,
        "PUT",
        path,
        fencedBody(namespace, "orders", { spec: { suspend: true } }, metaOf(told.body)),
      );
      expect(changed).toMatchObject({
        status: 200,
        body: { metadata: { generation: 2 }, spec: { suspend: true }, status: holder },
      });

      const labelled = await send(admin, "PATCH", path, {
        metadata: { labels: { a: "b" } },
        status: { waiters: 9 },
      });
      expect(labelled).toMatchObject({ status: 200, body: { metadata: { generation: 2 }, status: holder } });

      const patched = await send(us, "PATCH", `${path}/status`, {
        status: { waiters: 4 },
        spec: { suspend: false },
      });
      expect(patched).toMatchObject({
        status: 200,
        body: { spec: { suspend: true }, status: { waiters: 4 } },
      });

      const stale = await send(
        us,
        "PUT",
        `${path}/status`,
        fencedBody(namespace, "orders", { status: { waiters: 5 } }, metaOf(told.body)),
      );
      expect(stale).toMatchObject({ status: 409, reason: "Conflict" });
    });

    it("fills in defaults and refuses what the schema does not allow", async () => {
      const { admin, us, namespace } = await start();
      const made = await send(admin, "POST", fenced(namespace), fencedBody(namespace, "orders"));
      expect(made.body.spec).toMatchObject({
        suspend: false,
        lease: { durationSeconds: 15 },
        tokens: { store: "Status", reserve: 64, floor: "0" },
        boundary: { type: "None", advance: "OnGrant" },
      });
      const bad = await send(
        admin,
        "POST",
        fenced(namespace),
        fencedBody(namespace, "bad", { spec: { lease: { durationSeconds: 0 } } }),
      );
      expect([bad.status, bad.reason]).toEqual([422, "Invalid"]);
      const odd = await send(us, "PUT", `${fenced(namespace, "orders")}/status`, {
        ...fencedBody(namespace, "orders", { status: { waiters: "three" } }, metaOf(made.body)),
      });
      expect([odd.status, odd.reason]).toEqual([422, "Invalid"]);
    });
  });

  describe(`API server (${name}): reviews`, () => {
    it("knows no made-up bearer and no stranger's rights", async () => {
      const { admin } = await harness();
      const token = await send(admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenReview",
        spec: { token: "made-up", audiences: ["fenceline"] },
      });
      expect(token).toMatchObject({ status: 201, body: { spec: { token: "made-up" } } });
      expect(token.body.status).not.toMatchObject({ authenticated: true });
      const access = await send(admin, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: {
          user: "stranger",
          resourceAttributes: {
            group: "fenceline.dev",
            resource: "fencedresources",
            verb: "acquire",
            namespace: "shop",
            name: "orders",
          },
        },
      });
      expect(access).toMatchObject({ status: 201, body: { status: { allowed: false } } });
    });
  });
};
