import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { makeFakeClock } from "../../test/support/clock.ts";
import { makeCertificate } from "../../test/support/faultproxy/certificate.ts";
import { type KubeSource, loadKubeConfig } from "./config.ts";
import { fileTrouble } from "./credentials.ts";
import { KubeError } from "./errors.ts";

const folder = mkdtempSync(join(tmpdir(), "kubeconfig-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;
const write = (content: string): string => {
  const path = join(folder, `file-${files++}`);
  writeFileSync(path, content);
  return path;
};
const clock = makeFakeClock();
const load = (path: string, context?: string) => loadKubeConfig({ from: "file", path, context }, clock);

const ca = makeCertificate({ commonName: "ca" });
const user = makeCertificate({ commonName: "alice", issuer: ca });
const base64 = (text: string) => Buffer.from(text).toString("base64");

const config = (more: { cluster?: object; user?: object; context?: object; top?: object } = {}) =>
  write(
    stringify({
      apiVersion: "v1",
      kind: "Config",
      "current-context": "lab",
      contexts: [
        { name: "lab", context: { cluster: "c", user: "u", namespace: "shop", ...more.context } },
        { name: "other", context: { cluster: "broken", user: "u" } },
      ],
      clusters: [
        { name: "c", cluster: { server: "https://127.0.0.1:6443", ...more.cluster } },
        { name: "broken", cluster: {} },
      ],
      users: [{ name: "u", user: { ...more.user } }],
      ...more.top,
    }),
  );

/** The one line that is said, at loading or when credentials are asked for. */
const complaint = async (source: KubeSource): Promise<string> => {
  try {
    await loadKubeConfig(source, clock).credentials.current();
  } catch (error) {
    expect(error).toBeInstanceOf(KubeError);
    if (!(error instanceof KubeError)) throw error;
    expect(error.message).not.toContain("\n");
    return `${error.code}: ${error.message}`;
  }
  return expect.unreachable("it was accepted");
};
const file = (path: string, context?: string): KubeSource => ({ from: "file", path, context });

const exec = (command: string, args: string[] = []) => file(config({ user: { exec: { command, args } } }));

describe("a kubeconfig that cannot work is told in one line", () => {
  const path = config();
  it.each<[string, KubeSource, RegExp]>([
    ["missing", file(join(folder, "nowhere")), /kubeconfig .*nowhere: there is no such file/],
    ["a folder", file(folder), /it is a folder/],
    ["empty", file(write("")), /the file is empty/],
    ["not YAML", file(write("a: [1\nb: 2")), /not YAML: .*line 2/],
    ["a list", file(write("- a")), /cannot be used/],
    ["no context", file(config({ top: { "current-context": "" } })), /current-context is not set/],
    ["unknown context", file(path, "prod"), /contexts has no "prod"; it has: lab, other/],
    [
      "unknown cluster",
      file(config({ context: { cluster: "x" } })),
      /clusters has no "x", which context "lab" names/,
    ],
    ["unknown user", file(config({ context: { user: "x" } })), /users has no "x"/],
    ["no server", file(path, "other"), /clusters\[broken\]\.cluster\.server is missing/],
    [
      "no address",
      file(config({ cluster: { server: "127.0.0.1:6443" } })),
      /clusters\[c\]\.cluster\.server is not an address/,
    ],
    ["a number", file(config({ user: { token: 7 } })), /users\[u\]\.user\.token cannot be used/],
    ["as-groups", file(config({ user: { "as-groups": ["a"] } })), /as-groups .*not supported/],
    ["socks", file(config({ cluster: { "proxy-url": "socks5://h:1" } })), /proxy-url is not supported/],
    [
      "CA file missing",
      file(config({ cluster: { "certificate-authority": "no.crt" } })),
      /certificate-authority names .*no\.crt: there is no such file/,
    ],
    [
      "CA not PEM",
      file(config({ cluster: { "certificate-authority-data": base64("x") } })),
      /certificate-authority holds no certificate in PEM form/,
    ],
    [
      "certificate not PEM",
      file(config({ user: { "client-certificate-data": base64("x"), "client-key-data": base64(user.key) } })),
      /client-certificate holds no certificate/,
    ],
    [
      "key not PEM",
      file(
        config({ user: { "client-certificate-data": base64(user.cert), "client-key-data": base64("x") } }),
      ),
      /client-key holds no private key/,
    ],
    [
      "key of another",
      file(
        config({ user: { "client-certificate-data": base64(user.cert), "client-key-data": base64(ca.key) } }),
      ),
      /client-key does not belong/,
    ],
    [
      "key missing",
      file(config({ user: { "client-certificate-data": base64(user.cert) } })),
      /client-key is missing/,
    ],
    [
      "token file missing",
      file(config({ user: { tokenFile: "no-token" } })),
      /tokenFile names .*no-token: there is no such file/,
    ],
    ["token file empty", file(config({ user: { tokenFile: write("\n") } })), /it is empty/],
    [
      "token with a line end inside",
      file(config({ user: { tokenFile: write("a\nb") } })),
      /no header can carry/,
    ],
    [
      "credentials over http",
      file(config({ cluster: { server: "http://h" }, user: { token: "t" } })),
      /plain http, and .* holds credentials/,
    ],
    [
      "exec without command",
      file(config({ user: { exec: {} } })),
      /users\[u\]\.user\.exec\.command is missing/,
    ],
    [
      "no service account",
      { from: "cluster", host: "10.0.0.1", port: "443", folder: join(folder, "none") },
      /service account .*namespace: there is no such file/,
    ],
  ])("%s", async (_name, source, line) => {
    const said = await complaint(source);
    expect(said).toMatch(line);
    expect(said).toMatch(/^bad_config: /);
  });

  it("not readable", () => {
    const denied = Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
    expect(fileTrouble(denied)).toBe("this user may not read it");
  });

  it("exec that is not there, fails, or prints nonsense is unauthorized", async () => {
    expect(await complaint(exec("no-such-plugin"))).toMatch(
      /^unauthorized: .*user\.exec gave no credentials: .*no-such-plugin/,
    );
    expect(await complaint(exec("sh", ["-c", "echo expired login >&2; exit 1"]))).toMatch(/expired login/);
    expect(await complaint(exec("echo", ["nonsense"]))).toMatch(/^unauthorized/);
  });
});

describe("a kubeconfig that works", () => {
  it("takes the context that is named, its namespace, and data before files", async () => {
    const path = config({
      cluster: { "certificate-authority-data": base64(ca.cert), "tls-server-name": "kubernetes" },
      user: {
        "client-certificate-data": base64(user.cert),
        "client-certificate": "/nowhere",
        "client-key-data": base64(user.key),
        as: "bob",
      },
    });
    const access = load(path, "lab");
    expect(access).toMatchObject({ namespace: "shop", source: `kubeconfig ${path}, context lab` });
    const { headers, tls } = await access.credentials.current();
    expect(headers).toEqual({ "impersonate-user": "bob" });
    expect(tls).toMatchObject({ servername: "kubernetes" });
    expect(String(tls.ca)).toBe(ca.cert);
    expect(String(tls.cert)).toBe(user.cert);
  });

  it("reads paths relative to itself", async () => {
    const inner = join(folder, "inner");
    mkdirSync(inner);
    writeFileSync(join(inner, "ca.crt"), ca.cert);
    writeFileSync(join(inner, "token"), "abc\n");
    const path = join(inner, "config");
    writeFileSync(
      path,
      stringify({
        "current-context": "x",
        contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
        clusters: [{ name: "c", cluster: { server: "https://h:1", "certificate-authority": "ca.crt" } }],
        users: [{ name: "u", user: { tokenFile: "token" } }],
      }),
    );
    const { headers, tls } = await load(path).credentials.current();
    expect(headers).toEqual({ authorization: "Bearer abc" });
    expect(String(tls.ca)).toBe(ca.cert);
  });

  it("reads user and password, a plugin's token, and nothing", async () => {
    const basic = await load(config({ user: { username: "a", password: "b:c" } })).credentials.current();
    expect(basic.headers).toEqual({ authorization: `Basic ${base64("a:b:c")}` });
    const credential = JSON.stringify({ status: { token: "from-plugin" } });
    const plugin = load(config({ user: { exec: { command: "echo", args: [credential] } } }));
    expect((await plugin.credentials.current()).headers).toEqual({ authorization: "Bearer from-plugin" });
    const anonymous = load(config({ context: { user: "" } }));
    expect((await anonymous.credentials.current()).headers).toEqual({});
  });

  it("asks a plugin again when what it gave has expired", async () => {
    const counter = write("");
    const script = `echo x >> ${counter}; printf '{"status":{"token":"t%s","expirationTimestamp":"2000-01-01T00:00:00Z"}}' $(wc -l < ${counter})`;
    const { credentials } = load(config({ user: { exec: { command: "sh", args: ["-c", script] } } }));
    expect((await credentials.current()).headers).toEqual({ authorization: "Bearer t1" });
    expect((await credentials.current()).headers).toEqual({ authorization: "Bearer t2" });
  });

  it("takes a rotated token and certificate with the next request", async () => {
    const token = write("one");
    const caFile = write(ca.cert);
    const { credentials } = load(
      config({ cluster: { "certificate-authority": caFile }, user: { tokenFile: token } }),
    );
    const first = await credentials.current();
    expect(await credentials.current()).toBe(first);
    writeFileSync(token, "another");
    const second = await credentials.current();
    expect(second.headers).toEqual({ authorization: "Bearer another" });
    expect(second.tlsKey).toBe(first.tlsKey);
    writeFileSync(caFile, makeCertificate({ commonName: "new ca" }).cert);
    expect((await credentials.current()).tlsKey).not.toBe(first.tlsKey);
  });

  it("says that a certificate has expired when the server refuses it", () => {
    const old = makeCertificate({ commonName: "a", validTo: new Date("2025-01-02T00:00:00Z") });
    const access = load(
      config({ user: { "client-certificate-data": base64(old.cert), "client-key-data": base64(old.key) } }),
    );
    expect(access.credentials.complaint()).toMatch(
      /users\[u\]\.user\.client-certificate expired at 2025-01-02/,
    );
  });

  it("reads the pod's service account", async () => {
    const mount = join(folder, "mount");
    mkdirSync(mount);
    for (const [name, content] of Object.entries({ token: "t", "ca.crt": ca.cert, namespace: "shop\n" }))
      writeFileSync(join(mount, name), content);
    const access = loadKubeConfig({ from: "cluster", host: "fd00::1", port: "443", folder: mount }, clock);
    expect(access.namespace).toBe("shop");
    expect(access.server.href).toBe("https://[fd00::1]/");
    expect((await access.credentials.current()).headers).toEqual({ authorization: "Bearer t" });
  });
});
