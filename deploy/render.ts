/**
 * `npm run render`: writes `deploy/install.yaml`, the chart with its defaults for those who do not use Helm. Takes the
 * `helm` of the PATH.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";

const root = path.join(import.meta.dirname, "..");

const namespace = `# The chart with its defaults, by \`npm run render\`: change it there.
apiVersion: v1
kind: Namespace
metadata:
  name: fenceline-system
  labels:
    app.kubernetes.io/name: fenceline
    pod-security.kubernetes.io/enforce: restricted
`;

/** What Helm renders of the chart with these further arguments. Throws with Helm's words where it refuses. */
export const template = (helm: string, args: readonly string[] = []): string =>
  execFileSync(
    helm,
    ["template", "fenceline", path.join(root, "charts/fenceline"), "-n", "fenceline-system", ...args],
    {
      encoding: "utf8",
      stdio: "pipe",
    },
  );

/** The text of `deploy/install.yaml`. */
export const installManifest = (helm: string): string =>
  `${namespace}${template(helm).replaceAll("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")}`;

if (import.meta.main) writeFileSync(path.join(root, "deploy/install.yaml"), installManifest("helm"));
