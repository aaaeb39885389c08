/** Every name that Fenceline gives to something in a cluster, and every word that its status and events use. */
import { createHash } from "node:crypto";

export const group = "fenceline.dev";
export const version = "v1alpha1";
export const apiVersion = `${group}/${version}`;

/** Audience of the bearer tokens that the coordinator accepts. */
export const audience = "fenceline";

/** Verbs of our own on `fencedresources.fenceline.dev`, asked by SubjectAccessReview and by policies. */
export type Verb = "acquire" | "force" | "reconcile";

/** Where the controller lives unless the installation says otherwise. */
export const systemNamespace = "fenceline-system";
/** The service account of controller and coordinator unless the installation says otherwise. */
export const systemAccount = "fenceline-controller";
/** The Service of coordinator and webhook unless the installation says otherwise. */
export const systemService = "fenceline";

/** The leader-election Lease in the system namespace: no resource's Lease can be called like this. */
export const leaderLease = "controller.fenceline.dev";

/** On Leases: which resource this one belongs to. Carries {@link resourceLabelValue}; only we may set or remove it. */
export const resourceLabel = "fenceline.dev/resource";

/** What the protocol keeps in a Lease. Flat, so that admission rules and people can read it. */
export const leaseAnnotations = {
  /** Full name of the resource, also where the label had to be shortened. */
  resource: "fenceline.dev/resource",
  /** Highest token granted by this Lease. */
  token: "fenceline.dev/token",
  /** Last token that may be spent without asking the sequence. */
  ceiling: "fenceline.dev/token-ceiling",
  /** The Lease's own uid when token and ceiling were written; they count under no other. */
  creditUid: "fenceline.dev/credit-uid",
  /** The last ended attempts, each with its reason. */
  ended: "fenceline.dev/ended",
  /** `unclean` after a forced release. */
  loss: "fenceline.dev/loss",
  /** Hash of the boundary that was guarded and advanced for this Lease. */
  boundary: "fenceline.dev/boundary",
  /** Version of this layout. */
  format: "fenceline.dev/format",
  /** Pod of the holder. */
  holderPod: "fenceline.dev/holder-pod",
  /** The holder's own words about itself. */
  holderLabel: "fenceline.dev/holder-label",
  /** Who took the Lease away by force, and why; until the next grant. */
  forced: "fenceline.dev/forced",
} as const;

/** On a FencedSequence: must repeat `spec.resource` before a DELETE is let through. */
export const confirmDelete = "fenceline.dev/confirm-delete";

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");

/** Hexadecimal digits of the hash that stands for the cut part of a name: 160 bits. */
const hashDigits = 40;

/**
 * `prefix` and `name` in fewer than `limit` characters, or, where that is too long, in exactly `limit` with a hash at
 * the end. As no whole name is as long as a cut one, the two can never meet (FM-39).
 */
const fitted = (prefix: string, name: string, limit: number): string => {
  if (prefix.length + name.length < limit) return prefix + name;
  const head = name.slice(0, limit - prefix.length - hashDigits - 1);
  // A name's part may not end in a dot or a dash.
  const clean = head.replace(/[.-]+$/, (end) => "x".repeat(end.length));
  return `${prefix}${clean}-${hash(name).slice(0, hashDigits)}`;
};

/** Name of the Lease of a resource, in the resource's namespace: `fenceline-<name>`, hashed from 243 characters on. */
export const leaseName = (name: string): string => fitted("fenceline-", name, 253);

/** Value of {@link resourceLabel}: the resource's name, hashed from 63 characters on. */
export const resourceLabelValue = (name: string): string => fitted("", name, 63);

/** Name of the cluster-scoped FencedSequence of `namespace/name`. */
export const sequenceName = (resource: `${string}/${string}`): string => hash(resource);

/** What the boundary of a resource makes true. */
export const guarantees = ["Fenced", "Idempotent", "Advisory"] as const;
export type Guarantee = (typeof guarantees)[number];

export const conditionTypes = ["Ready", "LeaseBound", "BoundaryGuarded", "TokensConsistent"] as const;
export type ConditionType = (typeof conditionTypes)[number];

/** Why a condition stands as it stands. The first of each list is the one of `True`. */
export const conditionReasons = {
  Ready: ["Ready", "Suspended", "InvalidSpec", "LeaseNotBound", "BoundaryNotGuarded", "TokensNotConsistent"],
  LeaseBound: ["Bound", "LeaseMissing", "ForeignLease", "NewerFormat", "LeaseRefused"],
  BoundaryGuarded: [
    "Guarded",
    "NoBoundary",
    "BoundaryNotSupported",
    "BoundaryNotInstalled",
    "BoundaryUnreachable",
    "BoundaryClosed",
    "BoundaryOpen",
    "SecretForbidden",
    "SecretMissing",
    "SecretInvalid",
    "IssuerMismatch",
  ],
  TokensConsistent: [
    "Consistent",
    "TokenRegression",
    "ImplausibleMark",
    "SequenceMissing",
    "SequenceCopied",
    "SequenceSealed",
    "TokensExhausted",
    "IssuerMismatch",
    "StoreNotSupported",
    "StoreUnavailable",
  ],
} as const satisfies Record<ConditionType, readonly string[]>;
export type ConditionReason<T extends ConditionType = ConditionType> = (typeof conditionReasons)[T][number];

/** Reasons of the events on a FencedResource, and whether an operator should look at them. */
export const eventTypes = {
  TokenGranted: "Normal",
  LeaseReleased: "Normal",
  LeaseExpired: "Warning",
  LeaseForced: "Warning",
  OwnershipTransferred: "Normal",
  StaleWriteRejected: "Warning",
  BoundaryAdvanced: "Normal",
  BoundaryClosed: "Warning",
  BoundaryReopened: "Normal",
  BoundaryUnreachable: "Warning",
  TokenFloorRaised: "Warning",
  GuaranteeChanged: "Normal",
  Waiting: "Normal",
  InjectionRefused: "Warning",
  EffectUnknown: "Warning",
  NeedsReconciliation: "Warning",
  Reconciled: "Normal",
} as const satisfies Record<string, "Normal" | "Warning">;
export type EventReason = keyof typeof eventTypes;
