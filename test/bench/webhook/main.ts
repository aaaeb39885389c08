/**
 * What injection costs: AdmissionReviews answered a second over kept TLS connections, beside a bare Node HTTPS server
 * that sends back a body of the same size. Each server is a process of its own; read the ratio.
 *
 *     node test/bench/webhook/main.ts [--seconds 4] [--connections 8]
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { Agent, request } from "node:https";
import { parseArgs } from "node:util";
import { injectPath } from "../../../src/api/injection.ts";
import { makeCertificate } from "../../support/faultproxy/certificate.ts";
import { optedIn, review } from "../../support/pods.ts";
import { quantile, table } from "../support.ts";

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "4" }, connections: { type: "string", default: "8" } },
});
const seconds = Number(values.seconds);
const connections = Number(values.connections);
const goal = 0.7;

/** As a Deployment's pod is: two containers, some variables, mounts, and what the API server records of its fields. */
const container = (name: string) => ({
  name,
  image: `registry.example/${name}:1.0.0`,
  env: Array.from({ length: 10 }, (_, index) => ({ name: `SETTING_${index}`, value: "some value" })),
  volumeMounts: [{ name: "data", mountPath: "/data" }],
  resources: { requests: { cpu: "100m", memory: "128Mi" }, limits: { memory: "256Mi" } },
  terminationMessagePath: "/dev/termination-log",
  terminationMessagePolicy: "File",
  imagePullPolicy: "IfNotPresent",
});
const pod = optedIn(
  {},
  {
    volumes: [{ name: "data", emptyDir: {} }],
    containers: [container("app"), container("proxy")],
    restartPolicy: "Never",
  },
);
const managed = { manager: "kube-controller-manager", operation: "Update", fieldsV1: pod.spec };
const body = JSON.stringify(review({ ...pod, metadata: { ...pod.metadata, managedFields: [managed] } }));

const { cert, key } = makeCertificate({ commonName: "bench", names: ["127.0.0.1"] });

interface Measured {
  rate: number;
  p50: number;
  p99: number;
  bytes: number;
}

const measure = async (kind: "webhook" | "echo"): Promise<Measured> => {
  const child = fork(new URL("server.ts", import.meta.url), [kind], { stdio: "inherit" });
  child.send({ cert, key });
  const [port] = (await once(child, "message")) as [number];
  const agent = new Agent({ ca: cert, keepAlive: true, maxSockets: connections });
  const samples: number[] = [];
  let bytes = 0;
  const ask = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      const sent = request(
        { host: "127.0.0.1", port, path: injectPath, method: "POST", agent, headers },
        (answer) => {
          bytes = 0;
          answer.on("data", (part: Buffer) => (bytes += part.length));
          answer.on("end", () =>
            answer.statusCode === 200 ? resolve() : reject(new Error(`${kind}: ${answer.statusCode}`)),
          );
        },
      );
      sent.on("error", reject);
      sent.end(body);
    });
  const run = async (until: number): Promise<void> => {
    while (performance.now() < until) {
      const started = performance.now();
      await ask();
      samples.push(performance.now() - started);
    }
  };
  const workers = (ms: number) =>
    Promise.all(Array.from({ length: connections }, () => run(performance.now() + ms)));
  await workers(1000);
  samples.length = 0;
  await workers(seconds * 1000);
  agent.destroy();
  child.kill();
  await once(child, "exit");
  return { rate: samples.length / seconds, p50: quantile(samples, 0.5), p99: quantile(samples, 0.99), bytes };
};

const echo = await measure("echo");
const webhook = await measure("webhook");
const row = (name: string, { rate, p50, p99, bytes }: Measured) => [
  name,
  `${rate.toFixed(0)}/s`,
  `${p50.toFixed(2)} ms`,
  `${p99.toFixed(2)} ms`,
  `${(bytes / 1024).toFixed(1)} KiB`,
];
console.log(`reviews of ${(body.length / 1024).toFixed(1)} KiB over ${connections} kept connections`);
table(["server", "rate", "p50", "p99", "answer"], [row("node:https echo", echo), row("webhook", webhook)]);
const ratio = webhook.rate / echo.rate;
console.log(`webhook: ${ratio.toFixed(2)}x of the echo's rate (goal ≥ ${goal}x)`);
if (ratio < goal) process.exitCode = 1;
