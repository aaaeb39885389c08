import { createHash } from "node:crypto";
import type { ResourceSpec } from "../core/resource.ts";
import type { Boundaries, GuardOptions } from "./guard.ts";
import type { Boundary } from "./port.ts";

/** The boundary that a spec leads to, with what identifies the way there (the Secret's uid and version). */
export type Reached =
  | { kind: "reached"; boundary: Boundary; through: string }
  | { kind: "unready"; reason: string; message: string };

/** Reaches the boundaries of one type. Keeps its connections; a spec that changed is reached anew. */
export type BoundaryDriver = (resource: ResourceSpec, options: GuardOptions) => Promise<Reached>;

type Drivers = Partial<Record<ResourceSpec["boundary"]["type"], BoundaryDriver>>;

/** Hash of everything that decides which boundary a Lease was guarded for. [R] */
const boundaryHash = (leaseUid: string, resource: ResourceSpec, through: string): string =>
  createHash("sha256")
    .update([leaseUid, resource.boundary.text, through].join("\n"))
    .digest("hex")
    .slice(0, 40);

/** A type without a driver is not served: a token that nobody compares must not look like one that somebody does. */
export const makeBoundaries = (drivers: Drivers): Boundaries => ({
  async guard(resource, leaseUid, options = {}) {
    const { type, advance } = resource.boundary;
    if (type === "None") return { kind: "none", hash: undefined };
    const driver = drivers[type];
    if (driver === undefined)
      return {
        kind: "unready",
        reason: "BoundaryNotSupported",
        message: `this version has no boundary of type ${type}: use None, or upgrade`,
      };
    const reached = await driver(resource, options);
    if (reached.kind === "unready") return reached;
    return {
      kind: "ready",
      hash: boundaryHash(leaseUid, resource, reached.through),
      onGrant: advance === "OnGrant",
      boundary: reached.boundary,
    };
  },
});
