/**
 * Headers and TLS material for the next request.
 *
 * Files are looked at (not read) before each request and read again when one of them changed, so that a rotated token
 * or certificate counts from the next request on; the library alone would go on with the old token for a minute.
 * Plugins (exec, auth-provider) are the library's: it asks them again when what they gave has expired.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { type Cluster, KubeConfig, type User } from "@kubernetes/client-node";
import type { Clock } from "../runtime/clock.ts";
import { KubeError } from "./errors.ts";

/** Fields as a message names them. */
export interface FieldNames {
  server: string;
  ca: string;
  serverName: string;
  certificate: string;
  key: string;
  token: string;
  user: string;
}

export interface Tls {
  ca?: Buffer | string | undefined;
  cert?: Buffer | string | undefined;
  key?: Buffer | string | undefined;
  rejectUnauthorized?: boolean | undefined;
  servername?: string | undefined;
}

export interface Credential {
  headers: Record<string, string>;
  tls: Tls;
  /** Equal for equal TLS material: a connection made with other material may not be used again. */
  tlsKey: string;
}

export interface Credentials {
  /** Whether there are any. */
  any: boolean;
  /** Throws a KubeError `bad_config`, or `unauthorized` where a plugin gives none. */
  current(): Promise<Credential>;
  /** The server did not take them: read everything again. */
  forget(): void;
  /** What is wrong with them, as far as it can be seen here; for the line that reports a 401. */
  complaint(): string;
}

/** Why a file cannot be read, in words. */
export const fileTrouble = (error: unknown): string => {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  switch (code) {
    case "ENOENT":
      return "there is no such file";
    case "EACCES":
      return "this user may not read it";
    case "EISDIR":
      return "it is a folder";
    default:
      return String(error instanceof Error ? error.message : error);
  }
};

const bad = (message: string, cause?: unknown) => new KubeError("bad_config", message, { cause });

export const makeCredentials = (given: {
  cluster: Cluster;
  user: User;
  tokenFile: string | undefined;
  names: FieldNames;
  clock: Clock;
}): Credentials => {
  const { cluster, user, tokenFile, names, clock } = given;
  const files: [field: string, path: string][] = (
    [
      [names.ca, cluster.caFile],
      [names.certificate, user.certFile],
      [names.key, user.keyFile],
      [names.token, tokenFile],
    ] as const
  ).flatMap(([field, path]) => (path === undefined ? [] : [[field, path]]));
  const plugin = Boolean(user.exec ?? user.authProvider);

  /** What tells that a file is another one; a mounted Secret is swapped by a symbolic link, which changes the inode. */
  const look = (): string =>
    files
      .map(([field, path]) => {
        try {
          const { ino, mtimeMs, size } = statSync(path);
          return `${ino}:${mtimeMs}:${size}`;
        } catch (error) {
          throw bad(`${field} names ${path}: ${fileTrouble(error)}`, error);
        }
      })
      .join();

  const load = (): KubeConfig => {
    const config = new KubeConfig();
    let token = user.token;
    if (tokenFile !== undefined) {
      token = readFileSync(tokenFile, "utf8").trim();
      if (token === "") throw bad(`${names.token} names ${tokenFile}: it is empty`);
    }
    config.loadFromOptions({
      // The library refuses plain http without this; that there is nothing to protect was checked before.
      clusters: [{ ...cluster, skipTLSVerify: cluster.skipTLSVerify || cluster.server.startsWith("http:") }],
      users: [{ ...user, token }],
      contexts: [{ name: "context", cluster: cluster.name, user: user.name }],
      currentContext: "context",
    });
    return config;
  };

  const check = ({ ca, cert, key }: Tls) => {
    const certificate = (field: string, pem: Buffer | string) => {
      try {
        return new X509Certificate(pem);
      } catch (error) {
        throw bad(`${field} holds no certificate in PEM form`, error);
      }
    };
    if (ca !== undefined) certificate(names.ca, ca);
    if (cert === undefined && key === undefined) return;
    if (cert === undefined) throw bad(`${names.certificate} is missing: there is a client-key without it`);
    if (key === undefined) throw bad(`${names.key} is missing: there is a client-certificate without it`);
    const own = certificate(names.certificate, cert);
    try {
      if (own.checkPrivateKey(createPrivateKey(key))) return;
    } catch (error) {
      throw bad(`${names.key} holds no private key in PEM form`, error);
    }
    throw bad(`${names.key} does not belong to the certificate of client-certificate`);
  };

  const ask = async (config: KubeConfig): Promise<Credential> => {
    const options: RequestOptions = {};
    try {
      await config.applyToHTTPSOptions(options);
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      const how = `${names.user}.${user.exec ? "exec" : "auth-provider"}`;
      throw plugin
        ? new KubeError("unauthorized", `${how} gave no credentials: ${said}`, { cause: error })
        : bad(`${names.user}: ${said}`, error);
    }
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(options.headers ?? {}))
      headers[name.toLowerCase()] = String(value);
    if (typeof options.auth === "string" && user.username !== undefined && user.username !== null)
      headers["authorization"] = `Basic ${Buffer.from(options.auth).toString("base64")}`;
    // Anything else would be taken for a second header, or refused without a word of where it came from.
    if (Object.values(headers).some((value) => /[^\t\x20-\x7e]/.test(value)))
      throw bad(`${names.token} holds characters that no header can carry`);
    const { ca, cert, key, rejectUnauthorized, servername } = options;
    const tls = { ca, cert, key, rejectUnauthorized, servername } as Tls;
    check(tls);
    return {
      headers,
      tls,
      tlsKey: [tls.ca, tls.cert, tls.key].map((part) => part?.toString() ?? "").join("\n"),
    };
  };

  let loaded: { seen: string; config: KubeConfig; credential: Promise<Credential> } | undefined;
  return {
    any:
      plugin ||
      tokenFile !== undefined ||
      [user.token, user.username, user.certFile, user.certData].some(Boolean),
    async current() {
      const seen = look();
      if (loaded?.seen !== seen) {
        const config = load();
        loaded = { seen, config, credential: ask(config) };
      } else if (plugin) loaded.credential = ask(loaded.config);
      try {
        return await loaded.credential;
      } catch (error) {
        loaded = undefined;
        throw error;
      }
    },
    forget() {
      loaded = undefined;
    },
    complaint() {
      try {
        const pem =
          user.certFile === undefined
            ? Buffer.from(user.certData ?? "", "base64")
            : readFileSync(user.certFile);
        const { validToDate } = new X509Certificate(pem);
        if (BigInt(validToDate.getTime()) * 1000n < clock.wall())
          return `${names.certificate} expired at ${validToDate.toISOString()}: get a new one`;
      } catch {
        // No certificate to speak of.
      }
      return given.tokenFile === undefined && user.token === undefined
        ? `check ${names.user}`
        : `check ${names.token}`;
    },
  };
};
