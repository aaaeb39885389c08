/**
 * Writes what is generated from the schemas: `crds/`, `deploy/policies/`, `deploy/webhook/`, `docs/reference/`.
 *
 * With `--check` it writes nothing, names each file that differs, and exits 1 if there is one.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Document } from "yaml";
import { customResourceDefinition, type Definition, type JsonSchema } from "./crd.ts";
import { fencedResourceDefinition } from "./fencedresource.ts";
import { fencedSequenceDefinition } from "./fencedsequence.ts";
import { imageRepository } from "./injection.ts";
import { group, systemAccount, systemNamespace, systemService } from "./names.ts";
import { policies } from "./policies.ts";
import { injectionWebhook } from "./webhook.ts";
import { customResourcesPage, httpApiPage } from "./reference.ts";

const definitions: readonly Definition[] = [fencedResourceDefinition, fencedSequenceDefinition];

const notice = "Generated from src/api by `npm run generate`: change it there.";

const yaml = (objects: readonly JsonSchema[]): string =>
  `# ${notice}\n${objects
    .map((object) => new Document(object, { aliasDuplicateObjects: false }).toString({ lineWidth: 0 }))
    .join("---\n")}`;

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
