/** How a command reaches the coordinator, and as whom. */
import { readFileSync } from "node:fs";
import { audience } from "../api/names.ts";
import { tokenRequest, tokenRequestPath } from "../api/tokenrequest.ts";
import { after, type MonoTime } from "../core/time.ts";
import { type CoordinatorClient, makeCoordinatorClient } from "../holder/client.ts";
import type { KubeClient } from "../kube/types.ts";
import type { Clock } from "../runtime/clock.ts";
import { makeHttpClient, NoAnswer } from "../runtime/httpclient.ts";
import type { ClusterFlags } from "./cluster.ts";
import type { CliDeps } from "./deps.ts";
import { CliError } from "./errors.ts";

export interface CoordinatorFlags extends ClusterFlags {
  server?: string;
  caFile?: string;
  tokenFile?: string;
  /** `[namespace/]name`. */
  serviceAccount?: string;
}

export interface CoordinatorAccess {
  client: CoordinatorClient;
  close(): Promise<void>;
}

/** Lifetime asked for tokens of a service account, in seconds; a new one is fetched when four fifths are over. */
const tokenSeconds = 3600;

/** Reads a file that a flag names, so that one that cannot be read is told before anything else. */
const readable = (flag: string, path: string): string => {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new CliError("usage", `cannot read ${flag} ${path}: ${code}: name a file that can be read`);
  }
  if (text.trim() === "") throw new CliError("usage", `${flag} ${path} is empty`);
  return text;
};

const serverOf = (text: string | undefined): string => {
  if (text === undefined)
    throw new CliError("usage", "where is the coordinator? name it by --server https://host:8443");
  const url = URL.parse(text);
  if (url === null || url.protocol !== "https:" || url.hostname === "")
    throw new CliError("usage", `--server ${text} is no address: write https://host:8443`);
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw new CliError(
      "usage",
      "--server takes host, port and at most a path: the caller is named by --token-file",
    );
  return text;
};

/** Tokens of the service account `namespace/name`, each fetched when the one before is four fifths through its life. */
export const makeTokens = (client: KubeClient, account: string, clock: Clock): (() => Promise<string>) => {
  const [namespace = "", name = ""] = account.split("/");
  let current: { token: string; until: MonoTime } | undefined;
  return async (): Promise<string> => {
    if (current !== undefined && clock.mono() < current.until) return current.token;
    const asked = clock.mono();
    const answer = tokenRequest.parse(
      await client.post(tokenRequestPath(namespace, name), {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        spec: { audiences: [audience], expirationSeconds: tokenSeconds },
      }),
    );
    const { expirationSeconds } = answer.spec;
    current = { token: answer.status.token, until: after(asked, expirationSeconds * 800) };
    return current.token;
  };
};

/** Throws a CliError for flags that cannot work, and a KubeError where no token is to be had. */
export const reach = async (
  flags: CoordinatorFlags,
  resourceNamespace: string,
  deps: Pick<CliDeps, "env" | "clock">,
): Promise<CoordinatorAccess> => {
  const { caFile, tokenFile, serviceAccount } = flags;
  const { clock } = deps;
  const server = serverOf(flags.server);
  if (caFile !== undefined && !readable("--ca-file", caFile).includes("-----BEGIN CERTIFICATE-----"))
    throw new CliError("usage", `--ca-file ${caFile} holds no certificate in PEM form`);
  if ((tokenFile === undefined) === (serviceAccount === undefined))
    throw new CliError("usage", "who is asking? name --token-file or --service-account, one of them");
  if (tokenFile !== undefined) {
    readable("--token-file", tokenFile);
    const http = makeHttpClient({ server, caFile, bearerFile: tokenFile, clock });
    return {
      client: makeCoordinatorClient({ http, clock }),
      close: async () => http.close(),
    };
  }
  const account = serviceAccount?.includes("/") ? serviceAccount : `${resourceNamespace}/${serviceAccount}`;
  if (!/^[a-z0-9-]+\/[a-z0-9.-]+$/.test(account))
    throw new CliError("usage", `--service-account ${account} is no name: write namespace/name`);
  const { connect } = await import("./cluster.ts");
  const connection = connect(flags, deps);
  const tokens = makeTokens(connection.client, account, clock);
  await tokens();
  const bearer = async (): Promise<string> => {
    try {
      return await tokens();
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new NoAnswer(`no token for ${account}: ${why}`, { cause: error });
    }
  };
  const http = makeHttpClient({ server, caFile, bearer, clock });
  return {
    client: makeCoordinatorClient({ http, clock }),
    async close() {
      http.close();
      await connection.close();
    },
  };
};
