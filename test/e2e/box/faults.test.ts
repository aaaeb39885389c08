import { expect, test } from "vitest";
import { images } from "../../support/cluster/images.ts";
import { sharedNodes } from "../../support/cluster/shared.ts";

const lab = sharedNodes();

/** A pod on one node that answers HTTP, and its address. */
const serve = async (node: number) => {
  const namespace = await lab.namespace();
  await lab.apply({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "server", namespace },
    spec: {
      nodeName: `node${node}`,
      terminationGracePeriodSeconds: 1,
      containers: [
        {
          name: "main",
          image: images.busybox,
          command: ["httpd", "-f", "-p", "8080", "-h", "/www"],
        },
      ],
    },
  });
  await lab.kubectl(["wait", "pod/server", "-n", namespace, "--for=condition=Ready", "--timeout=60s"]);
  const address = await lab.kubectl([
    "get",
    "pod",
    "server",
    "-n",
    namespace,
    "-o",
    "jsonpath={.status.podIP}",
  ]);
  const answer = async () => {
    try {
      const response = await fetch(`http://${address}:8080`, { signal: AbortSignal.timeout(2_000) });
      return (await response.text()).trim();
    } catch {
      return "silent";
    }
  };
  await expect.poll(answer, { timeout: 30_000 }).toBe("hello");
  return { pod: lab.pod(namespace, "server"), answer };
};

test("a frozen pod is silent until it is thawed", async () => {
  const { pod, answer } = await serve(1);
  const fault = await pod.freeze();
  expect(await answer()).toBe("silent");
  await fault.heal();
  await expect.poll(answer, { timeout: 30_000 }).toBe("hello");
});

test("a pod can be cut from one address, or from all", async () => {
  const { pod, answer } = await serve(1);
  const elsewhere = await pod.cut({ to: ["192.0.2.1"] });
  expect(await answer()).toBe("hello");
  await elsewhere.heal();
  const everywhere = await pod.cut();
  expect(await answer()).toBe("silent");
  await everywhere.heal();
  await expect.poll(answer, { timeout: 30_000 }).toBe("hello");
});

test("a node that is cut off becomes NotReady, its pod runs on, and heals", async () => {
  const { pod, answer } = await serve(2);
  const node = lab.node(2);
  const fault = await node.cut();
  await node.untilNotReady();
  expect(await answer()).toBe("silent");
  await expect(pod.freeze()).resolves.toMatchObject({ what: "pod server frozen" });
  await fault.heal();
  await node.untilReady();
  await lab.heal();
  await expect.poll(answer, { timeout: 30_000 }).toBe("hello");
});

test("a frozen node becomes NotReady, and goes on as if nothing was", async () => {
  const { answer } = await serve(2);
  const node = lab.node(2);
  await node.freeze();
  await node.untilNotReady();
  await node.thaw();
  await node.untilReady();
  await expect.poll(answer, { timeout: 30_000 }).toBe("hello");
});

test("a node that lost its power takes its pods with it, and boots from its own disk", async () => {
  const { answer } = await serve(2);
  const node = lab.node(2);
  const fault = await node.powerOff();
  expect(await answer()).toBe("silent");
  await node.untilNotReady();
  await fault.heal();
  await serve(2);
});

test("the API server comes back with the same nodes", async () => {
  const fault = await lab.apiserver.kill();
  await fault.heal();
  await expect(Promise.all(lab.nodes.map((node) => node.untilReady()))).resolves.toHaveLength(2);
});
