/**
 * `fenceline agent gate`: an init container after the agent. A sidecar cannot fail its pod; this one ends with 0 when every
 * right is held, and else with the reason, so that `wait: Fail` and a wait-timeout are what they say.
 */
import { agentEnv, localPort } from "../api/agentconfig.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Failure } from "./rights.ts";

const http = process.getBuiltinModule("node:http");

/** Exit codes of the command line. */
const codes: Record<Failure["kind"], number> = { busy: 3, lost: 4, failed: 1, unreachable: 6 };

/** An agent that restarts is asked again after this long, in milliseconds. */
const againMs = 500;
/** An agent that says nothing for this long is asked again, in milliseconds. */
const longestMs = 40_000;

interface Told {
  status: number;
  body: Partial<Failure>;
}

const parse = (text: string): Partial<Failure> => {
  try {
    return JSON.parse(text) as Partial<Failure>;
  } catch {
    return {};
  }
};

/** Undefined: nobody answered as a whole. */
const ask = (port: number): Promise<Told | undefined> => {
  const { promise, resolve } = Promise.withResolvers<Told | undefined>();
  const request = http.request(
    { host: "127.0.0.1", port, path: "/v1/gate", method: "POST", timeout: longestMs },
    (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => (text += part));
      response.on("error", () => resolve(undefined));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: parse(text) }));
    },
  );
  request.on("timeout", () => request.destroy(new Error("no answer")));
  request.on("error", () => resolve(undefined));
  request.end();
  return promise;
};

/** Resolves with the exit code. */
export const runGate = async (environment: {
  env: Readonly<Record<string, string | undefined>>;
  stderr: { write(text: string): unknown };
  clock: Clock;
}): Promise<number> => {
  const { env, stderr, clock } = environment;
  const port = Number(env[agentEnv.localPort] ?? localPort);
  for (;;) {
    const told = await ask(port);
    if (told?.status === 200) return 0;
    if (told?.status === 409) {
      const { kind = "failed", detail = "the rights are not held" } = told.body;
      stderr.write(`fenceline: ${detail}\n`);
      return codes[kind] ?? 1;
    }
    if (told?.status !== 202) await clock.sleep(againMs);
  }
};
