/** Lists and watches, asked of the real API server and of its model alike. */
import { describe, expect, it } from "vitest";
import type { Transport } from "../../src/kube/types.ts";
import { type ApiHarness, leaseBody, leases, type Loose, send } from "./kuberequests.ts";

interface Event {
  type: string;
  object: Loose;
}

/** Events of one watch until it ends. */
const watchAll = async (api: Transport, namespace: string, query: string): Promise<Event[]> => {
  const stop = new AbortController();
  const answer = await api.open(
    {
      method: "GET",
      path: `${leases(namespace)}?watch=true&${query}`,
      verb: "watch",
      resource: "contract",
    },
    stop.signal,
  );
  if (answer.status !== 200) return [{ type: "ANSWER", object: JSON.parse(answer.body ?? "") }];
  const events: Event[] = [];
  for await (const line of answer.lines) events.push(JSON.parse(line));
  stop.abort();
  return events;
};

const holderOf = ({ spec }: Loose) => JSON.stringify(spec?.["holderIdentity"]).replaceAll('"', "");

const told = (events: Event[]) =>
  events
    .filter(({ type }) => type !== "BOOKMARK")
    .map(({ type, object }) => `${type} ${object.metadata?.name} ${holderOf(object)}`);

const namesOf = (body: Loose) => (body.items ?? []).map(({ metadata }) => metadata?.name);

export const kubeWatchContract = (name: string, harness: () => Promise<ApiHarness>) => {
  const start = async () => {
    const api = await harness();
    const { admin } = api;
    const here = await api.namespace();
    const create = async (lease: string, holder = "first", labels: Record<string, string> = {}) => {
      const body = leaseBody(here, lease, { holderIdentity: holder }, { labels });
      const made = await send(admin, "POST", leases(here), body);
      expect(made.status).toBe(201);
      return made.body;
    };
    const change = async (lease: string, patch: object) =>
      (await send(admin, "PATCH", leases(here, lease), patch)).body;
    const remove = (lease: string) => send(admin, "DELETE", leases(here, lease));
    const list = (query = "") => send(admin, "GET", `${leases(here)}?${query}`);
    return { admin, here, create, change, remove, list };
  };

  describe(`API server (${name}): watches`, { concurrent: true, timeout: 20_000 }, () => {
    it("tell what came after a version, in order, each once, and nothing of a write that changed nothing", async () => {
      const { admin, here, create, change, remove, list } = await start();
      await create("before");
      const from = (await list()).body.metadata?.resourceVersion;
      const watching = watchAll(admin, here, `resourceVersion=${from}&timeoutSeconds=3`);
      await create("a");
      await change("a", { spec: { holderIdentity: "second" } });
      await change("a", { spec: { holderIdentity: "second" } });
      await remove("a");
      await create("a", "third");
      const events = await watching;
      expect(told(events)).toEqual([
        "ADDED a first",
        "MODIFIED a second",
        "DELETED a second",
        "ADDED a third",
      ]);
      const versions = events
        .filter(({ type }) => type !== "BOOKMARK")
        .map(({ object }) => BigInt(object.metadata?.resourceVersion ?? "0"));
      expect(versions).toEqual(versions.toSorted((a, b) => (a < b ? -1 : 1)));
      expect(new Set(versions).size).toBe(4);
    });

    it("replay the past from where they begin", async () => {
      const { admin, here, create, change, list } = await start();
      const from = (await list()).body.metadata?.resourceVersion;
      await create("a");
      await change("a", { spec: { holderIdentity: "second" } });
      const events = await watchAll(admin, here, `resourceVersion=${from}&timeoutSeconds=2`);
      expect(told(events)).toEqual(["ADDED a first", "MODIFIED a second"]);
    });

    it("without a version begin with all there is", async () => {
      const { admin, here, create } = await start();
      await create("a");
      await create("b");
      const events = await watchAll(admin, here, "timeoutSeconds=2");
      expect(told(events).toSorted()).toEqual(["ADDED a first", "ADDED b first"]);
    });

    it("with a selector tell of what comes into view and leaves it", async () => {
      const { admin, here, create, change, list } = await start();
      const from = (await list()).body.metadata?.resourceVersion;
      await create("a");
      await create("b", "first", { ours: "yes" });
      await change("a", { metadata: { labels: { ours: "yes" } } });
      await change("b", { metadata: { labels: { ours: null } }, spec: { holderIdentity: "second" } });
      const events = await watchAll(
        admin,
        here,
        `resourceVersion=${from}&labelSelector=ours&timeoutSeconds=2`,
      );
      expect(told(events)).toEqual(["ADDED b first", "ADDED a first", "DELETED b first"]);
    });

    it("send a bookmark before their end, where one was asked for", async () => {
      const { admin, here, create, list } = await start();
      await create("a");
      const from = (await list()).body.metadata?.resourceVersion ?? "";
      const asked = await watchAll(
        admin,
        here,
        `resourceVersion=${from}&timeoutSeconds=4&allowWatchBookmarks=true`,
      );
      expect(asked.map(({ type }) => type)).toContain("BOOKMARK");
      const { metadata } = asked.at(-1)?.object ?? {};
      expect(BigInt(metadata?.resourceVersion ?? "0")).toBeGreaterThanOrEqual(BigInt(from));
      expect(metadata?.name).toBeUndefined();
      expect(told(await watchAll(admin, here, `resourceVersion=${from}&timeoutSeconds=3`))).toEqual([]);
    });

    it("from a version to come say nothing", async () => {
      const { admin, here, create, list } = await start();
      const now = Number((await list()).body.metadata?.resourceVersion);
      const watching = watchAll(
        admin,
        here,
        `resourceVersion=${now + 1_000_000}&timeoutSeconds=3&allowWatchBookmarks=true`,
      );
      await create("a");
      expect(told(await watching)).toEqual([]);
    });
  });

  describe(`API server (${name}): lists`, { concurrent: true, timeout: 20_000 }, () => {
    it("come in pages of one moment", async () => {
      const { create, remove, list } = await start();
      for (const lease of ["c", "a", "b"]) await create(lease);
      const first = await list("limit=2");
      expect(namesOf(first.body)).toEqual(["a", "b"]);
      await remove("c");
      await create("d");
      const next = first.body.metadata?.continue ?? "";
      const second = await list(`limit=2&continue=${encodeURIComponent(next)}`);
      expect(namesOf(second.body)).toEqual(["c"]);
      expect(second.body.metadata?.resourceVersion).toBe(first.body.metadata?.resourceVersion);
      expect(second.body.metadata?.continue ?? "").toBe("");
      expect(namesOf((await list()).body)).toEqual(["a", "b", "d"]);
    });

    it("select by label and by name", async () => {
      const { create, list } = await start();
      await create("a", "first", { team: "red" });
      await create("b", "first", { team: "blue" });
      await create("c");
      expect(namesOf((await list("labelSelector=team")).body)).toEqual(["a", "b"]);
      expect(namesOf((await list("labelSelector=team%3Dred")).body)).toEqual(["a"]);
      expect(namesOf((await list("labelSelector=team!%3Dred")).body)).toEqual(["b", "c"]);
      expect(namesOf((await list("fieldSelector=metadata.name%3Dc")).body)).toEqual(["c"]);
      expect((await list("fieldSelector=spec.holderIdentity%3Dx")).status).toBe(400);
    });

    it("newer than all there is are refused for now, and say so", async () => {
      const { list } = await start();
      const now = Number((await list()).body.metadata?.resourceVersion);
      const ahead = await list(`resourceVersion=${now + 1_000_000}&resourceVersionMatch=NotOlderThan`);
      expect([ahead.status, ahead.reason]).toEqual([504, "Timeout"]);
      expect(ahead.body["details"]).toMatchObject({ causes: [{ reason: "ResourceVersionTooLarge" }] });
    });
  });
};

/** `forget`: nothing older than now can be watched from any more. */
export const kubeForgetContract = (
  name: string,
  harness: () => Promise<ApiHarness & { forget: () => Promise<void> }>,
) => {
  it(`API server (${name}): a watch from what was forgotten ends with an error 410 in the stream`, {
    timeout: 60_000,
  }, async () => {
    const api = await harness();
    const here = await api.namespace();
    const from = (await send(api.admin, "GET", leases(here))).body.metadata?.resourceVersion;
    await send(api.admin, "POST", leases(here), leaseBody(here, "a"));
    await api.forget();
    const events = await watchAll(api.admin, here, `resourceVersion=${from}&timeoutSeconds=2`);
    expect(events).toMatchObject([{ type: "ERROR", object: { code: 410, reason: "Expired" } }]);
  });
};
