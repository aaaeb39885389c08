import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, it } from "vitest";
import { leaseKind } from "../../../src/kube/kinds.ts";
import { sharedCluster } from "../../support/cluster/shared.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { changedKubeconfig, connect, type KubeconfigChange } from "./world.ts";

const cluster = sharedCluster();
const changed = (change: KubeconfigChange) => changedKubeconfig(cluster, change);

describe("a real API server that cannot be used is told in one line", () => {
  const plain = createServer((_request, response) => response.end("hello"));
  afterAll(() => plain.close());
  const plainPort = async () => {
    if (!plain.listening) await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
    return (plain.address() as AddressInfo).port;
  };
  const other = makeCertificate({ commonName: "other" });
  const base64 = (text: string) => Buffer.from(text).toString("base64");

  it.each<[string, () => string | Promise<string>, string, RegExp]>([
    [
      "no rights",
      () => cluster.credentials("alice"),
      "forbidden",
      /User "alice" cannot list resource "leases"/,
    ],
    [
      "unknown token",
      () => changed({ user: { token: "nonsense" } }),
      "unauthorized",
      /does not accept the credentials .*users\[.*\]\.user\.token/,
    ],
    [
      "certificate of another CA",
      () =>
        changed({
          user: { "client-certificate-data": base64(other.cert), "client-key-data": base64(other.key) },
        }),
      "unauthorized",
      /users\[.*\]\.user/,
    ],
    [
      "expired certificate",
      () => {
        const old = makeCertificate({ commonName: "alice", validTo: new Date(Date.now() - 60_000) });
        return changed({
          user: { "client-certificate-data": base64(old.cert), "client-key-data": base64(old.key) },
        });
      },
      "unauthorized",
      /users\[.*\]\.user\.client-certificate expired at /,
    ],
    [
      "untrusted CA",
      () => changed({ cluster: { "certificate-authority-data": base64(other.cert) } }),
      "bad_config",
      /not signed by the trusted CA .*certificate-authority/,
    ],
    [
      "wrong port",
      () => changed({ cluster: { server: "https://127.0.0.1:1" } }),
      "unreachable",
      /nothing listens there: .*cluster\.server/,
    ],
    [
      "HTTP instead of HTTPS",
      () => changed({ cluster: { server: cluster.server.replace("https", "http") }, user: {} }),
      "bad_config",
      /write https in .*cluster\.server/,
    ],
    [
      "HTTPS instead of HTTP",
      async () => changed({ cluster: { server: `https://127.0.0.1:${await plainPort()}` } }),
      "bad_config",
      /does not speak TLS/,
    ],
    [
      "something that is no API server",
      async () => changed({ cluster: { server: `http://127.0.0.1:${await plainPort()}` }, user: {} }),
      "bad_answer",
      /cannot be read/,
    ],
  ])("%s", async (_name, config, code, line) => {
    await using connection = connect(await config(), { context: cluster.context });
    const error = await connection.client.list(leaseKind, { namespace: "default" }).then(
      () => expect.unreachable("it was listed"),
      (error: Error) => error,
    );
    expect(error).toMatchObject({ code });
    expect(error.message).toMatch(line);
    expect(error.message).not.toContain("\n");
  });
});
