import { generated } from "../api/generate.ts";

/** The definitions as one YAML stream for `kubectl apply -f -`; with `policies` also the admission policies. */
export const crds = (policies: boolean): string =>
  [...generated()]
    .filter(([path]) => path.startsWith("crds/") || (policies && path.startsWith("deploy/policies/")))
    .map(([, text]) => text)
    .join("---\n");
