import type { ResourceSpec } from "../core/resource.ts";
import type { Boundary } from "./port.ts";

/**
 * The boundary that a resource names, as one replica sees it now.
 *
 * - `none`: nothing compares tokens. Guarded at once.
 * - `ready`: `hash` stands for the Lease's uid, the spec and the credential that reach this very boundary.
 * - `unready`: it cannot be reached from here; `reason` is one of the BoundaryGuarded condition.
 */
export type Guard =
  | { kind: "none"; hash: undefined }
  | { kind: "ready"; hash: string; onGrant: boolean; boundary: Boundary }
  | { kind: "unready"; reason: string; message: string };

export interface GuardOptions {
  /** The credential is read now; else one that was read before will do. */
  fresh?: boolean;
  signal?: AbortSignal;
}

/** Finds the boundary of a resource. One per process; drivers keep their connections. */
export interface Boundaries {
  guard(resource: ResourceSpec, leaseUid: string, options?: GuardOptions): Promise<Guard>;
}
