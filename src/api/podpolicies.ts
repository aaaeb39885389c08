/**
 * Rules for pods that opt in. One refuses what would run unguarded. The others warn at `kubectl apply`, because what a
 * webhook says of a controller's pod reaches nobody.
 */
import { agentArgs, agentContainer, probePort } from "./agentconfig.ts";
import { injectLabel, podAnnotations, webhookName } from "./injection.ts";
import { group } from "./names.ts";
import { both, cel, type Policy, type Validation } from "./policy.ts";

const either = (...parts: string[]): string => parts.join(" || ");
const list = (words: readonly string[]): string => `[${words.map(cel).join(", ")}]`;
const notes = list(Object.values(podAnnotations));

const label = (object: "object" | "oldObject"): string =>
  `${object}.metadata.?labels[?${cel(injectLabel)}].orValue('')`;
const annotation = (object: "object" | "oldObject"): string =>
  `${object}.metadata.?annotations[?key].orValue('')`;
const port = (path: string): string => `string(${path}) == '${probePort}'`;

/** An opted-in pod is made with our agent or not at all, and stays what it is. */
export const podPolicy = (repository: string): Policy => {
  const untouched = "oldObject != null || variables.inject != 'true'";
  const isOurs = both(
    `(c.image.startsWith(${cel(`${repository}:`)}) || c.image.startsWith(${cel(`${repository}@`)}))`,
    "!has(c.command)",
    `c.?args.orValue([]) == ${list(agentArgs)}`,
    "c.?restartPolicy.orValue('') == 'Always'",
    "!has(c.lifecycle)",
    `c.?ports.orValue([]).all(p, ${port("p.containerPort")})`,
    "has(c.startupProbe) && has(c.startupProbe.httpGet)",
    port("c.startupProbe.httpGet.port"),
  );
  return {
    name: "pods",
    comment:
      "A pod that asks for Fenceline never runs without its agent, whether the webhook is away, ignored or deleted; and what it asked for stays as it was.",
    rules: [{ group: "", version: "v1", resources: ["pods"], operations: ["CREATE", "UPDATE"] }],
    // Matches if either the old or the new object carries the label, so that it can be neither added nor removed.
    objectSelector: { matchExpressions: [{ key: injectLabel, operator: "Exists" }] },
    variables: [
      { name: "inject", expression: label("object") },
      {
        name: "agents",
        expression: `object.spec.?initContainers.orValue([]).filter(c, c.name == ${cel(agentContainer)})`,
      },
    ],
    validations: [
      {
        expression: either("oldObject != null", "variables.inject in ['true', 'false']"),
        message: `the label ${injectLabel} must be "true" or "false"`,
        reason: "Invalid",
      },
      {
        expression: either(untouched, "size(variables.agents) == 1"),
        message: `this pod asks for Fenceline (label ${injectLabel}) and got no agent: the webhook ${webhookName} is not there, is ignored, or does not serve this namespace`,
        reason: "Forbidden",
      },
      {
        expression: either(untouched, `variables.agents.all(c, ${isOurs})`),
        message: `the container ${agentContainer} is not the one that Fenceline injects (image of ${repository}, its arguments, port and probe): remove it from the pod, and let the webhook add it`,
        reason: "Forbidden",
      },
      {
        expression: either("oldObject == null", `${label("object")} == ${label("oldObject")}`),
        message: `the label ${injectLabel} of a pod stays as it is: make a new pod`,
        reason: "Invalid",
      },
      {
        expression: either(
          "oldObject == null",
          `${notes}.all(key, ${annotation("object")} == ${annotation("oldObject")})`,
        ),
        message: `the annotations ${group}/… of a pod stay as they are: its agent has read them. Make a new pod`,
        reason: "Invalid",
      },
    ],
  };
};

const note = (key: string): string => `variables.template.?metadata.?annotations[?${cel(key)}].orValue('')`;

const common: Validation[] = [
  {
    expression: `${note(podAnnotations.resources)} != ''`,
    message: `its pods ask for Fenceline and will be refused: name the resources in the annotation ${podAnnotations.resources} of the pod template`,
  },
  {
    expression: `variables.template.?metadata.?annotations.orValue({}).all(key, !key.startsWith(${cel(`${group}/`)}) || key in ${notes})`,
    message: `its pods will be refused: an annotation ${group}/… of the pod template is not known, is it misspelt?`,
  },
  {
    expression: "!variables.template.spec.?hostNetwork.orValue(false)",
    message:
      "its pods will be refused: on the host's network the ports of two agents would meet. Remove hostNetwork",
  },
  {
    expression: either(
      `${note(podAnnotations.onLoss)} == 'Report'`,
      `variables.template.spec.containers.all(c, !has(c.livenessProbe) || variables.told != '' && !variables.told.split(',').exists(name, name.trim() == c.name))`,
    ),
    message: `a container with a livenessProbe of its own keeps it and is not stopped when its right is lost: let it watch its state, or remove the probe`,
  },
];

const alone: Validation = {
  expression: either("variables.wait == 'Start'", "object.spec.?replicas.orValue(1) <= 1"),
  message: `only one replica can hold the resource and the others wait without ever being ready: set replicas to 1, or ${podAnnotations.wait} to Start for hot standbys`,
};

const ofJobs = (job: string): Validation[] => [
  {
    expression: `${job}.?podReplacementPolicy.orValue('') == 'Failed'`,
    message:
      "a replacement would start, and wait, while the old pod is still ending: set podReplacementPolicy to Failed",
  },
  {
    expression: "variables.template.spec.?restartPolicy.orValue('') == 'Never'",
    message:
      "a container that is restarted in place waits for no right: set restartPolicy to Never, so that each attempt is a pod of its own",
  },
];

const surge = "object.spec.strategy.rollingUpdate.maxSurge";

const rollout: Validation = {
  expression: either(
    "variables.wait == 'Start'",
    "!has(object.spec.strategy)",
    "object.spec.strategy.?type.orValue('') == 'Recreate'",
    `has(object.spec.strategy.rollingUpdate) && has(${surge}) && string(${surge}) in ['0', '0%']`,
  ),
  message: `its rollout will not end: the new pod waits for the resource of the old one, which is kept until the new one is ready. Set strategy to Recreate, maxSurge to 0, or ${podAnnotations.wait} to Start`,
};

const warning = (
  apiGroup: string,
  plural: string,
  template: string,
  more: readonly Validation[],
): Policy => ({
  name: `warn-${plural}`,
  comment: `Warns whoever applies ${plural} of which the pods ask for Fenceline and would not do what is hoped for.`,
  rules: [{ group: apiGroup, version: "v1", resources: [plural], operations: ["CREATE", "UPDATE"] }],
  matchConditions: [
    {
      name: "asks",
      expression: `${template}.?metadata.?labels[?${cel(injectLabel)}].orValue('') == 'true'`,
    },
    {
      // Controllers read no warnings.
      name: "person",
      expression: "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
    },
  ],
  variables: [
    { name: "template", expression: template },
    { name: "wait", expression: note(podAnnotations.wait) },
    { name: "told", expression: note(podAnnotations.containers) },
  ],
  validations: [...common, ...more],
  action: "Warn",
});

/** One for each kind that makes pods, as the rules of one kind do not fit another. */
export const warningPolicies = (): Policy[] => [
  warning("batch", "jobs", "object.spec.template", ofJobs("object.spec")),
  warning(
    "batch",
    "cronjobs",
    "object.spec.jobTemplate.spec.template",
    ofJobs("object.spec.jobTemplate.spec"),
  ),
  warning("apps", "deployments", "object.spec.template", [alone, rollout]),
  warning("apps", "statefulsets", "object.spec.template", [alone]),
];
