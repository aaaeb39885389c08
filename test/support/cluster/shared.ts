import { afterEach, beforeEach, inject } from "vitest";
import { Cluster } from "./cluster.ts";
import { Lab } from "./lab.ts";
import { NodesLab } from "./nodes.ts";

/**
 * The one cluster of this run, shared by all test files: take a fresh `namespace()` per test, and do not break
 * it. On failure of a test its logs and events are kept. To break a control plane, start your own.
 */
export const sharedCluster = (): Cluster => {
  const { access, lab } = inject("cluster");
  if (!lab) return new Cluster(access);
  const cluster = new Lab(lab);
  collectOnFailure(() => cluster);
  return cluster;
};

/**
 * The one cluster with two nodes of this run (level `nodes`). Test files run one after the other, and after each
 * test every fault is healed.
 */
export const sharedNodes = (): NodesLab => {
  const lab = new NodesLab(inject("nodes"));
  afterEach(() => lab.heal());
  collectOnFailure(() => lab);
  return lab;
};

/** Keeps logs, events and pod states of a lab whenever a test of this file fails, and prints where. */
export const collectOnFailure = (lab: () => Lab | undefined): void => {
  beforeEach(({ task, onTestFailed }) => {
    onTestFailed(async () => {
      const folder = await lab()?.collect(`${task.file.name}-${task.name}`);
      if (folder) console.error(`logs of the cluster: ${folder}`);
    });
  });
};
