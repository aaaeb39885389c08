import { randomBytes } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { exec } from "./exec.ts";

/** Everything openssl would otherwise take from the machine's own configuration. */
const opensslConfig = "[req]\ndistinguished_name = subject\n[subject]\n";

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Escapes what separates the parts of a subject on openssl's command line. */
const escaped = (text: string) => text.replaceAll(/[\\/+]/g, "\\$&");

const subject = (user: string, groups: readonly string[]) =>
  `${groups.map((group) => `/O=${escaped(group)}`).join("")}/CN=${escaped(user)}`;

const base64 = async (file: string) => (await readFile(file)).toString("base64");

export interface Certificate {
  certificate: string;
  key: string;
}

/** One certificate authority in one folder, good for a month. */
export class Pki {
  readonly #folder: string;
  readonly caFile: string;
  readonly caKeyFile: string;
  /** Signs service account tokens. */
  readonly tokenKeyFile: string;

  constructor(folder: string) {
    this.#folder = folder;
    this.caFile = path.join(folder, "ca.crt");
    this.caKeyFile = path.join(folder, "ca.key");
    this.tokenKeyFile = path.join(folder, "tokens.key");
  }

  async create(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    await writeFile(this.#config, opensslConfig);
    await Promise.all([
      this.#sign("ca", "/CN=fenceline-test-ca", ["basicConstraints=critical,CA:TRUE"], []),
      exec("openssl", ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", this.tokenKeyFile]),
    ]);
  }

  /**
   * Files of a new certificate. `groups` become the subject's organisations, which Kubernetes reads as groups;
   * `names` are the subject alternative names (`DNS:…`, `IP:…`).
   */
  async issue(
    file: string,
    user: string,
    groups: readonly string[] = [],
    names: readonly string[] = [],
  ): Promise<Certificate> {
    const extensions = ["basicConstraints=CA:FALSE"];
    if (names.length > 0) extensions.push(`subjectAltName=${names.join(",")}`);
    const signer = ["-CA", this.caFile, "-CAkey", this.caKeyFile];
    await this.#sign(file, subject(user, groups), extensions, signer);
    return this.files(file);
  }

  /** A new key, and the request that somebody else may sign it (PEM). */
  async request(file: string, user: string, groups: readonly string[]): Promise<string> {
    await writeFile(this.#config, opensslConfig);
    const { key } = this.files(file);
    const args = ["-new", "-config", this.#config, ...newKey, "-subj", subject(user, groups), "-keyout", key];
    return exec("openssl", ["req", ...args]);
  }

  files(file: string): Certificate {
    return {
      certificate: path.join(this.#folder, `${file}.crt`),
      key: path.join(this.#folder, `${file}.key`),
    };
  }

  /** Writes a kubeconfig that holds everything it needs. Its one context is called `lab`. */
  async kubeconfig(target: string, server: string, client: Certificate): Promise<string> {
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [
        { name: "lab", cluster: { server, "certificate-authority-data": await base64(this.caFile) } },
      ],
      users: [
        {
          name: "lab",
          user: {
            "client-certificate-data": await base64(client.certificate),
            "client-key-data": await base64(client.key),
          },
        },
      ],
      contexts: [{ name: "lab", context: { cluster: "lab", user: "lab" } }],
      "current-context": "lab",
    };
    await writeFile(target, JSON.stringify(config, null, 2), { mode: 0o600 });
    return target;
  }

  get #config() {
    return path.join(this.#folder, "openssl.cnf");
  }

  async #sign(file: string, subject: string, extensions: string[], signer: string[]) {
    const { certificate, key } = this.files(file);
    const serial = `0x${randomBytes(8).toString("hex")}`;
    const extend = extensions.flatMap((extension) => ["-addext", extension]);
    const common = ["-x509", "-config", this.#config, ...newKey, "-days", "30", "-set_serial", serial];
    await exec("openssl", [
      "req",
      ...common,
      "-subj",
      subject,
      ...extend,
      ...signer,
      "-keyout",
      key,
      "-out",
      certificate,
    ]);
  }
}
