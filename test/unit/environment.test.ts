import { expect, it } from "vitest";

it("tests see no cluster of somebody's in their environment", () => {
  expect(Object.keys(process.env).filter((name) => /^KUBECONFIG$|^KUBERNETES_/.test(name))).toEqual([]);
});
