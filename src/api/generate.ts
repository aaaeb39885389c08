/**
 * Writes what is generated from the schemas: `crds/`, `deploy/policies/`, `deploy/webhook/`, `docs/reference/`.
 *
 * With `--check` it writes nothing, names each file that differs, and exits 1 if there is one.
 */
import { readFileSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Document } from "yaml";
import { z } from "zod";
import { customResourceDefinition, type Definition, type JsonSchema } from "./crd.ts";
import { fencedResourceDefinition } from "./fencedresource.ts";
import { fencedSequenceDefinition } from "./fencedsequence.ts";
import { imageRepository } from "./injection.ts";
import { group, systemAccount, systemNamespace, systemService } from "./names.ts";
import { policies } from "./policies.ts";
import { injectionWebhook } from "./webhook.ts";
import { chartValues } from "./values.ts";
import { customResourcesPage, httpApiPage } from "./reference.ts";

const definitions: readonly Definition[] = [fencedResourceDefinition, fencedSequenceDefinition];

const notice = "Generated from src/api by `npm run generate`: change it there.";

const yaml = (objects: readonly JsonSchema[]): string =>
  `# ${notice}\n${objects
    .map((object) => new Document(object, { aliasDuplicateObjects: false }).toString({ lineWidth: 0 }))
    .join("---\n")}`;

/** What the chart fills in. The objects themselves are the same as in the plain manifests. */
const inChart = {
  systemNamespace: "{{ .Release.Namespace }}",
  agentRepository: "{{ .Values.image.repository }}",
};

const kept = (definition: JsonSchema): JsonSchema => ({
  ...definition,
  metadata: {
    ...(definition["metadata"] as object),
    // Uninstalling takes no resource and no sequence of tokens away.
    annotations: { "helm.sh/resource-policy": "keep" },
  },
});

/** With cert-manager, it and not the controller says whom the API server trusts. */
const trusted = (text: string): string =>
  text.replace(
    "metadata:\n",
    `metadata:
  {{- if .Values.certManager.enabled }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/fenceline
  {{- end }}
`,
  );

/** The manifests of the roles, as the chart has them: the namespace is Helm's, and so is where it is. */
const roles = (text: string): string =>
  `# ${notice.replace("src/api", "deploy/rbac")}\n${text
    .split(/^---\n/m)
    .filter((part) => !part.includes("kind: Namespace\n"))
    .join("---\n")
    .replaceAll(systemNamespace, inChart.systemNamespace)}`;

const readRoles = (name: string): string =>
  readFileSync(new URL(`../../deploy/rbac/${name}.yaml`, import.meta.url), "utf8");

const chart = (): [string, string][] =>
  [
    ["crds.yaml", yaml(definitions.map((definition) => kept(customResourceDefinition(definition))))],
    [
      "policies.yaml",
      yaml(policies({ ...inChart, accounts: [systemAccount] }).flatMap(({ objects }) => objects)),
    ],
    ["webhook.yaml", trusted(yaml([injectionWebhook({ ...inChart, service: systemService })]))],
    ["rbac-controller.yaml", roles(readRoles("controller"))],
    ["rbac-people.yaml", roles(readRoles("people"))],
  ].map(([name = "", text = ""]) => [`charts/fenceline/templates/${name}`, text]);

const page = (text: string): string => `<!-- ${notice} -->\n\n${text}\n`;

/** Every generated file: its path from the root of the checkout, and its whole text. */
export const generated = (): Map<string, string> =>
  new Map([
    ...definitions.map((definition): [string, string] => [
      `crds/${group}_${definition.plural}.yaml`,
      yaml([customResourceDefinition(definition)]),
    ]),
    ...policies({ systemNamespace, accounts: [systemAccount], agentRepository: imageRepository }).map(
      ({ name, objects }): [string, string] => [`deploy/policies/${name}.yaml`, yaml(objects)],
    ),
    ["deploy/webhook/injection.yaml", yaml([injectionWebhook({ systemNamespace, service: systemService })])],
    ...chart(),
    [
      "charts/fenceline/values.schema.json",
      `${JSON.stringify(z.toJSONSchema(chartValues, { target: "draft-7", io: "input" }), null, 2)}\n`,
    ],
    ["docs/reference/custom-resources.md", page(customResourcesPage(definitions))],
    ["docs/reference/http-api.md", page(httpApiPage())],
  ]);

/** Paths of the files below `root` that are not what they should be. */
export const outdated = async (root: string): Promise<string[]> => {
  const differing: string[] = [];
  for (const [path, text] of generated()) {
    const found = await readFile(join(root, path), "utf8").catch(() => undefined);
    if (found !== text) differing.push(path);
  }
  return differing;
};

/** Writes every generated file below `root`. */
export const generate = async (root: string): Promise<void> => {
  for (const [path, text] of generated()) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
};

if (import.meta.main) {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const [option, ...more] = process.argv.slice(2);
  if (more.length > 0 || (option !== undefined && option !== "--check")) {
    console.error("usage: npm run generate [-- --check]");
    process.exitCode = 2;
  } else if (option === "--check") {
    const differing = await outdated(root);
    for (const path of differing) console.error(`${path} differs from src/api: run npm run generate`);
    process.exitCode = differing.length === 0 ? 0 : 1;
  } else {
    await generate(root);
  }
}
