import { expect, test } from "vitest";
import { images } from "../../support/cluster/images.ts";
import { sharedNodes } from "../../support/cluster/shared.ts";

const lab = sharedNodes();

const container = (script: string) => ({
  name: "main",
  image: images.busybox,
  command: ["sh", "-c", script],
});

test("a Job completes, and its log can be read", async () => {
  const namespace = await lab.namespace();
  await lab.apply({
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: { name: "once", namespace },
    spec: {
      template: { spec: { restartPolicy: "Never", containers: [container("echo the work is done")] } },
    },
  });
  await lab.kubectl(["wait", "job/once", "-n", namespace, "--for=condition=Complete", "--timeout=60s"]);
  expect(await lab.kubectl(["logs", "job/once", "-n", namespace])).toBe("the work is done\n");
});

test("pods of two nodes reach each other through a Service by its name, under the strictest pod security", async () => {
  const namespace = await lab.namespace();
  await lab.kubectl(["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]);
  const metadata = (name: string) => ({ name, namespace, labels: { role: name } });
  const pod = (name: string, node: number, script: string) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: metadata(name),
    spec: {
      nodeName: `node${node}`,
      terminationGracePeriodSeconds: 1,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          ...container(script),
          securityContext: strict,
        },
      ],
    },
  });
  const strict = {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"] },
  };
  await lab.apply(pod("server", 1, "exec httpd -f -p 8080 -h /www"), pod("client", 2, "sleep 3600"), {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadata("server"),
    spec: { selector: { role: "server" }, ports: [{ port: 80, targetPort: 8080 }] },
  });
  await lab.kubectl(["wait", "pods", "--all", "-n", namespace, "--for=condition=Ready", "--timeout=60s"]);
  const inClient = (script: string) =>
    lab.kubectl(["exec", "client", "-n", namespace, "--", "sh", "-c", script]).catch(() => "");
  const ip = await lab.kubectl([
    "get",
    "service",
    "server",
    "-n",
    namespace,
    "-o",
    "jsonpath={.spec.clusterIP}",
  ]);
  const look = () => inClient(`nslookup server.${namespace}.svc.cluster.local`);
  await expect.poll(look, { timeout: 30_000 }).toContain(`Address: ${ip}`);
  const fetched = () => inClient(`printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 ${ip} 80`);
  await expect.poll(fetched, { timeout: 30_000 }).toContain("hello");
});

test("no packet leaves the box", async () => {
  await expect(
    lab.kubectl(["version", "--server=https://192.0.2.1:443", "--request-timeout=10s"]),
  ).rejects.toThrow(/network is unreachable/);
});
