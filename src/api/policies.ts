/**
 * Who may write what: ValidatingAdmissionPolicies, evaluated by the API server itself.
 *
 * They are a second line. The first is that each of our writes is conditional on what was read; these refuse what
 * others, or our own mistakes, would do to the record. An expression that fails refuses everybody, so each one must
 * hold for every operation that reaches it: in a deletion `object` is null, in deletecollection there is no
 * `request.name`, and a field that may be missing is asked for with `has` or `?`.
 */
import type { JsonSchema } from "./crd.ts";
import { confirmDelete, group, leaderLease, leaseAnnotations, resourceLabel, version } from "./names.ts";
import { podPolicy, warningPolicies } from "./podpolicies.ts";
import { both, cel, manifest, note, type Policy, same, type Validation } from "./policy.ts";
import { tokenPattern } from "./text.ts";

/** Where Fenceline runs, and as whom. */
export interface PolicyOptions {
  systemNamespace: string;
  /** Names of the service accounts that write Leases, sequences and status. */
  accounts: readonly string[];
  /** The image that agents are started from, without tag and digest. */
  agentRepository: string;
}

/** A raise beyond this would burn a noticeable part of the range. */
const largeRaise = "4294967296";

const leases = (operations: string[]) => [
  { group: "coordination.k8s.io", version: "v1", resources: ["leases"], operations },
];

const ownKinds = (resources: string[], operations: string[]) => [{ group, version, resources, operations }];

/** CEL: the resource that a Lease is labelled with, "" where it is not. */
const label = (object: "object" | "oldObject") =>
  `${object}.metadata.?labels[?${cel(resourceLabel)}].orValue('')`;

const holder = (object: "object" | "oldObject") => `${object}.?spec.?holderIdentity.orValue('')`;

/** CEL: a variable is empty or a token's text. */
const wellFormed = (variable: string) =>
  `variables.${variable} == '' || variables.${variable}.matches(${cel(tokenPattern)}) && (size(variables.${variable}) < 19 || variables.${variable} <= '9223372036854775807')`;

/** The Leases of resources: who writes them, and what is never written. */
const leasePolicy = (ours: string): Policy => {
  const { token, ceiling, creditUid, resource } = leaseAnnotations;
  return {
    name: "leases",
    comment:
      "Leases of fenced resources are written by Fenceline alone, made empty, and never go back to a lower token. Anyone with the right may delete them: that costs a gap in the tokens and nothing else.",
    rules: leases(["CREATE", "UPDATE"]),
    // Matches if either the old or the new object carries the label, so that it can be neither added nor removed.
    objectSelector: { matchExpressions: [{ key: resourceLabel, operator: "Exists" }] },
    variables: [
      { name: "ours", expression: ours },
      {
        // The garbage collector takes its finalizer off, a storage migration writes back what it read. Neither changes
        // anything that counts, and a Lease that is being deleted counts as absent.
        name: "harmless",
        expression: both(
          "oldObject != null",
          same("?spec"),
          same("metadata.?labels"),
          same("metadata.?annotations"),
          `(has(oldObject.metadata.deletionTimestamp) || ${same("metadata.?finalizers")} && ${same("metadata.?ownerReferences")})`,
        ),
      },
      { name: "fenced", expression: `oldObject != null && ${label("oldObject")} != ''` },
      { name: "token", expression: note("object", token) },
      { name: "ceiling", expression: note("object", ceiling) },
      { name: "oldToken", expression: `oldObject == null ? '' : ${note("oldObject", token)}` },
      {
        name: "credited",
        expression: `variables.fenced && ${note("oldObject", creditUid)} == string(oldObject.metadata.uid)`,
      },
      { name: "wellFormed", expression: `(${wellFormed("token")}) && (${wellFormed("ceiling")})` },
    ],
    validations: [
      {
        expression: "variables.ours || variables.harmless",
        messageExpression: `'Leases with the label ${resourceLabel} are written by Fenceline alone: take the resource away with "fenceline release ' + object.metadata.namespace + '/' + ${note("object", resource)} + ' --force --reason ..."'`,
        message: `Leases with the label ${resourceLabel} are written by Fenceline alone: take the resource away with "fenceline release --force"`,
        reason: "Forbidden",
      },
      {
        expression: "variables.wellFormed",
        message: `${token} and ${ceiling} must be decimal strings from 0 to 9223372036854775807 without sign or leading zero`,
        reason: "Invalid",
      },
      {
        expression: `variables.fenced || ${holder("object")} == '' && variables.token == ''`,
        message:
          "a Lease of a fenced resource starts without a holder and without a token: make it empty, then acquire",
        reason: "Invalid",
      },
      {
        expression: `oldObject == null || variables.fenced || ${holder("oldObject")} == ''`,
        message: "a Lease that somebody holds is not taken over: wait until it is free, or delete it",
        reason: "Invalid",
      },
      {
        expression: `${label("object")} != '' && (!variables.fenced || ${label("object")} == ${label("oldObject")})`,
        message: `the label ${resourceLabel} stays as it is: delete the Lease instead`,
        reason: "Invalid",
      },
      {
        expression: `!variables.credited || ${note("object", creditUid)} == ${note("oldObject", creditUid)}`,
        message: `${creditUid} stays as it is: it says that the tokens beside it are this Lease's own`,
        reason: "Invalid",
      },
      {
        // The leading zero makes a missing token 0 and changes no other.
        expression:
          "!variables.credited || !variables.wellFormed || int('0' + variables.token) >= int('0' + variables.oldToken)",
        messageExpression: `'${token} may not fall from ' + variables.oldToken + ' to ' + (variables.token == '' ? 'nothing' : variables.token) + ': tokens never go back'`,
        message: `${token} may not fall: tokens never go back`,
        reason: "Invalid",
      },
    ],
  };
};

/** What our own accounts may do to Leases at large. */
const ownLeasePolicy = (ours: string, { systemNamespace }: PolicyOptions): Policy => ({
  name: "own-leases",
  comment:
    "Fenceline's own accounts write no Lease but those of fenced resources and the one by which a leader is elected.",
  rules: leases(["CREATE", "UPDATE"]),
  matchConditions: [{ name: "ours", expression: ours }],
  validations: [
    {
      expression: `object.metadata.?labels[?${cel(resourceLabel)}].hasValue() || object.metadata.namespace == ${cel(systemNamespace)} && object.metadata.name == ${cel(leaderLease)}`,
      message: `Fenceline writes only Leases with the label ${resourceLabel}, and ${leaderLease} in ${systemNamespace}`,
      reason: "Forbidden",
    },
  ],
});

const statusPolicy = (ours: string): Policy => ({
  name: "status",
  comment: "What was seen is written by Fenceline alone.",
  rules: ownKinds(["fencedresources/status", "fencedsequences/status"], ["UPDATE"]),
  variables: [{ name: "ours", expression: ours }],
  validations: [
    {
      expression: "variables.ours",
      message: "status is written by Fenceline alone: change spec instead",
      reason: "Forbidden",
    },
  ],
});

const copyPolicy = (): Policy => ({
  name: "sequence-copies",
  comment:
    "What was written for another sequence, as in a backup put back, is not passed off as this one's own.",
  rules: ownKinds(["fencedsequences/status"], ["UPDATE"]),
  validations: [
    {
      expression: "!has(object.status) || object.status.uid == string(object.metadata.uid)",
      message: "status.uid must be the object's own metadata.uid",
      reason: "Invalid",
    },
  ],
});

const sequencePolicy = (ours: string): Policy => ({
  name: "sequences",
  comment:
    "Sequences are made by Fenceline alone. Deleting one lets tokens go back, so it takes a confirmation, from ourselves too.",
  rules: ownKinds(["fencedsequences"], ["CREATE", "DELETE"]),
  variables: [
    { name: "ours", expression: ours },
    { name: "resource", expression: "oldObject == null ? '' : string(oldObject.spec.resource)" },
  ],
  validations: [
    {
      expression: "oldObject != null || variables.ours",
      message: "sequences are made by Fenceline alone: make a FencedResource instead",
      reason: "Forbidden",
    },
    {
      expression: `oldObject == null || variables.ours || authorizer.group(${cel(group)}).resource('fencedresources').namespace(variables.resource.split('/')[0]).name(variables.resource.split('/')[1]).check('force').allowed()`,
      messageExpression: `request.userInfo.username + ' may not delete the sequence of ' + variables.resource + ': it needs the verb force on this FencedResource'`,
      message: "deleting a sequence needs the verb force on its FencedResource",
      reason: "Forbidden",
    },
    {
      expression: `oldObject == null || ${note("oldObject", confirmDelete)} == variables.resource`,
      messageExpression: `'tokens of ' + variables.resource + ' may go back without this sequence. If that is wanted: kubectl annotate fencedsequence ' + oldObject.metadata.name + ' ${confirmDelete}=' + variables.resource`,
      message: `tokens may go back without this sequence: set the annotation ${confirmDelete} to spec.resource first`,
      reason: "Forbidden",
    },
  ],
});

const definitionName = `fencedsequences.${group}`;

const definitionPolicy = (): Policy => ({
  name: "definition",
  comment:
    "Deleting the kind FencedSequence deletes every sequence and asks nobody, so it takes a confirmation too.",
  rules: [
    {
      group: "apiextensions.k8s.io",
      version: "v1",
      resources: ["customresourcedefinitions"],
      operations: ["DELETE"],
    },
  ],
  matchConditions: [
    {
      name: "sequences",
      expression: `oldObject != null && oldObject.metadata.name == ${cel(definitionName)}`,
    },
  ],
  validations: [
    {
      expression: `${note("oldObject", confirmDelete)} == oldObject.metadata.name`,
      message: `tokens of every resource may go back without their sequences. If that is wanted: kubectl annotate crd ${definitionName} ${confirmDelete}=${definitionName}`,
      reason: "Forbidden",
    },
  ],
});

const mayGet = (reference: string): string => {
  const path = `object.spec.boundary.postgresql.${reference}`;
  return `!has(${path}) || authorizer.group('').resource('secrets').namespace(object.metadata.namespace).name(${path}.name).check('get').allowed()`;
};

const resourcePolicy = (): Policy => ({
  name: "resources",
  comment:
    "A FencedResource lends nobody more than he has: whoever names a Secret must be allowed to read it, and a large jump of the floor takes the verb force.",
  rules: ownKinds(["fencedresources"], ["CREATE", "UPDATE"]),
  variables: [
    {
      name: "changed",
      expression:
        "has(object.spec.boundary.postgresql) && (oldObject == null || !has(oldObject.spec.boundary.postgresql) || object.spec.boundary.postgresql != oldObject.spec.boundary.postgresql)",
    },
    {
      name: "oldFloor",
      expression: "oldObject == null ? 0 : int(oldObject.spec.tokens.floor)",
    },
  ],
  validations: [
    ...["secretRef", "adminSecretRef"].map(
      (reference): Validation => ({
        expression: `!variables.changed || ${mayGet(reference)}`,
        messageExpression: `request.userInfo.username + ' may not get the Secret ' + object.metadata.namespace + '/' + object.spec.boundary.postgresql.${reference}.name + ', so it may not be named in spec.boundary.postgresql.${reference}: ask for the right to get it'`,
        message: `whoever names a Secret in spec.boundary.postgresql.${reference} must be allowed to get it`,
        reason: "Forbidden",
      }),
    ),
    {
      expression: `int(object.spec.tokens.floor) - variables.oldFloor <= ${largeRaise} || authorizer.group(${cel(group)}).resource('fencedresources').namespace(object.metadata.namespace).name(object.metadata.name).check('force').allowed()`,
      messageExpression: `'raising spec.tokens.floor to ' + object.spec.tokens.floor + ' burns more than 2^32 tokens: it needs the verb force on this FencedResource, which ' + request.userInfo.username + ' has not'`,
      message: "raising spec.tokens.floor by more than 2^32 needs the verb force on this FencedResource",
      reason: "Forbidden",
    },
  ],
});

/** Every policy with its binding, by a short name. */
export const policies = (options: PolicyOptions): { name: string; objects: JsonSchema[] }[] => {
  const users = options.accounts.map((account) =>
    cel(`system:serviceaccount:${options.systemNamespace}:${account}`),
  );
  const ours = `request.userInfo.username in [${users.join(", ")}]`;
  return [
    leasePolicy(ours),
    ownLeasePolicy(ours, options),
    statusPolicy(ours),
    copyPolicy(),
    sequencePolicy(ours),
    definitionPolicy(),
    resourcePolicy(),
    podPolicy(options.agentRepository),
    ...warningPolicies(),
  ].map((policy) => ({ name: policy.name, objects: manifest(policy) }));
};
