/** What the chart renders, and that the real API server takes it. */
import { readFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { installManifest, template } from "../../../deploy/render.ts";
import { chartValues } from "../../../src/api/values.ts";
import { buildHelm } from "../../support/cluster/build.ts";
import { sharedNodes } from "../../support/cluster/shared.ts";
import { installed } from "../../support/e2e/installation.ts";

interface Rule {
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
  verbs: string[];
}
interface Rendered {
  kind: string;
  metadata: { name: string; namespace?: string; annotations?: Record<string, string> };
  rules?: Rule[];
  spec?: { template?: { spec: object } };
}

const root = path.join(import.meta.dirname, "../../..");
const install = path.join(root, "deploy/install.yaml");
const lab = sharedNodes();
let helm: string;

beforeAll(async () => {
  helm = await buildHelm();
  await installed(lab);
});

const objects = (text: string): Rendered[] =>
  parseAllDocuments(text).flatMap((document) => (document.toJS() as Rendered | null) ?? []);
const rendered = (...values: string[]) =>
  objects(
    template(
      helm,
      values.flatMap((value) => ["--set", value]),
    ),
  );
const rightsOnSecrets = (found: readonly Rendered[]) =>
  found.flatMap(({ kind, metadata, rules = [] }) =>
    rules
      .filter(({ resources = [] }) => resources.includes("secrets"))
      .map((rule) => ({ kind, namespace: metadata.namespace, names: rule.resourceNames, verbs: rule.verbs })),
  );
const own = [
  { kind: "Role", namespace: "fenceline-system", names: ["fenceline-tls"], verbs: ["get", "update"] },
  { kind: "Role", namespace: "fenceline-system", names: undefined, verbs: ["create"] },
];

describe("the chart", () => {
  test("deploy/install.yaml is what it renders with its defaults", () => {
    expect(readFileSync(install, "utf8"), "run npm run render").toBe(installManifest(helm));
  });

  test("values.yaml holds every value, and the schema takes it", () => {
    const values: unknown = parse(readFileSync(path.join(root, "charts/fenceline/values.yaml"), "utf8"));
    expect(chartValues.parse(values)).toEqual(values);
  });

  test("no role has a wildcard", () => {
    const rules = rendered("secretNamespaces={shop}").flatMap(({ rules = [] }) => rules);
    expect(rules.filter(({ verbs }) => verbs.length > 0).length).toBeGreaterThan(10);
    for (const { apiGroups = [], resources = [], verbs } of rules)
      expect([...apiGroups, ...resources, ...verbs]).not.toContain("*");
  });

  test("Secrets are readable in secretNamespaces, and otherwise only the certificate's", () => {
    expect(rightsOnSecrets(rendered())).toEqual(own);
    const shops = rightsOnSecrets(rendered("secretNamespaces={shop,depot}"));
    expect(shops).toHaveLength(4);
    expect(shops).toEqual(
      expect.arrayContaining([
        ...own,
        { kind: "Role", namespace: "shop", names: undefined, verbs: ["get"] },
        { kind: "Role", namespace: "depot", names: undefined, verbs: ["get"] },
      ]),
    );
  });

  test("a misspelt value is refused by its name", () => {
    expect(() => rendered("replicaz=3")).toThrow(/replicaz/);
    expect(() => rendered("agent.memroy=1Gi")).toThrow(/memroy/);
  });

  test("what is off by default renders: certificates by cert-manager, ServiceMonitor, NetworkPolicy", () => {
    const kinds = (found: readonly Rendered[]) => found.map(({ kind }) => kind);
    const optional = ["Certificate", "ServiceMonitor", "NetworkPolicy"];
    for (const kind of optional) expect(kinds(rendered())).not.toContain(kind);
    const found = rendered(
      "certManager.enabled=true",
      "certManager.issuerRef.name=ours",
      "serviceMonitor.enabled=true",
      "networkPolicy.enabled=true",
    );
    expect(kinds(found)).toEqual(expect.arrayContaining(optional));
    const webhook = found.find(({ kind }) => kind === "MutatingWebhookConfiguration");
    expect(webhook?.metadata.annotations).toEqual({
      "cert-manager.io/inject-ca-from": "fenceline-system/fenceline",
    });
  });

  test("the API server takes deploy/install.yaml", async () => {
    const said = await lab.kubectl([
      "apply",
      "--server-side",
      "--force-conflicts",
      "--dry-run=server",
      "-f",
      install,
    ]);
    expect(said.trim().split("\n")).toHaveLength(objects(readFileSync(install, "utf8")).length);
  });

  test("our pods may run where Pod Security is restricted", async () => {
    const namespace = await lab.namespace("restricted");
    await lab.kubectl([
      "label",
      "namespace",
      namespace,
      "pod-security.kubernetes.io/enforce=restricted",
      "--overwrite",
    ]);
    const spec = rendered().find(({ kind }) => kind === "Deployment")?.spec?.template?.spec;
    const create = (changes: object) =>
      lab.kubectl(["create", "--dry-run=server", "-f", "-"], {
        input: JSON.stringify({
          apiVersion: "v1",
          kind: "Pod",
          metadata: { name: "ours", namespace },
          spec: { ...spec, serviceAccountName: "default", ...changes },
        }),
      });
    expect(await create({})).toContain("created");
    await expect(create({ securityContext: {} })).rejects.toThrow(/restricted/);
  });
});
