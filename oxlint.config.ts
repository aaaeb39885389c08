import { defineConfig, type OxlintOverride } from "oxlint";

/** Who may know whom: each folder of src, and the folders it may import. Its picture is docs/architecture.md. */
export const walls: Record<string, readonly string[]> = {
  core: [],
  api: ["core"],
  runtime: ["core", "api"],
  kube: ["core", "api", "runtime"],
  postgres: ["core", "api", "runtime"],
  store: ["core", "api", "runtime", "kube", "postgres"],
  boundary: ["core", "api", "runtime", "kube", "postgres"],
  coordinator: ["core", "api", "runtime", "kube", "store", "boundary"],
  controller: ["core", "api", "runtime", "kube", "store", "boundary"],
  webhook: ["core", "api", "runtime", "kube", "store", "boundary"],
  holder: ["core", "api", "runtime"],
  agent: ["holder", "core", "api", "runtime"],
  ledger: ["core", "api", "runtime", "postgres"],
  gateway: ["ledger", "holder", "core", "api", "runtime"],
  client: ["holder", "ledger", "core", "api", "runtime"],
  cli: ["holder", "kube", "postgres", "boundary", "core", "api", "runtime"],
};

const folders = Object.keys(walls);

/** Packages that one folder alone may import. */
const owned: Record<string, string> = { "@kubernetes/client-node": "kube", pg: "postgres" };

const clockMessage = "Time and randomness come from src/runtime, passed in as arguments.";

const clocks = ["Date", "performance", "setTimeout", "setInterval", "setImmediate", "crypto"];

/** What tells the time, plays dice or reads the process without being a global. */
const hiddenClocks = [
  { regex: "^(node:)?(timers(/.*)?|perf_hooks|process)$", message: clockMessage },
  {
    regex: "^(node:)?crypto$",
    importNames: ["default", "randomUUID", "randomBytes", "randomInt", "getRandomValues", "webcrypto"],
    message: clockMessage,
  },
];

const wallOf = (folder: string): OxlintOverride => {
  const forbidden = folders.filter((other) => other !== folder && !walls[folder]?.includes(other));
  const patterns = [
    {
      group: [...forbidden.map((other) => `**/${other}/**`), "**/main.ts"],
      message: `src/${folder} may not know this folder: see docs/architecture.md.`,
    },
    ...Object.entries(owned)
      .filter(([, owner]) => owner !== folder)
      .map(([name, owner]) => ({
        group: [name, `${name}/**`],
        message: `Only src/${owner} imports ${name}.`,
        // The library takes a pool that its user made.
        allowTypeImports: folder === "client",
      })),
    ...(folder === "runtime" ? [] : hiddenClocks),
    ...(folder === "core"
      ? [{ regex: "^[^.]", message: "src/core is pure: values in, values out, and no import but its own." }]
      : []),
  ];
  return {
    files: [`src/${folder}/**/*.ts`],
    excludeFiles: ["**/*.test.ts"],
    rules: { "no-restricted-imports": ["error", { patterns }] },
  };
};

export default defineConfig({
  plugins: ["eslint", "typescript", "unicorn", "oxc", "import", "promise", "node", "vitest"],
  categories: { correctness: "error", suspicious: "error" },
  options: { typeAware: true },
  ignorePatterns: ["dist", "coverage", "**/generated"],
  rules: {
    "typescript/no-floating-promises": "error",
    "typescript/no-misused-promises": "error",
    "typescript/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
    "typescript/no-explicit-any": "error",
    "typescript/no-non-null-assertion": "error",
    "typescript/ban-ts-comment": "error",
    "typescript/consistent-type-imports": "error",
    "import/no-cycle": "error",
    "import/no-default-export": "error",
    "no-console": "error",
    "no-var": "error",
    "prefer-const": "error",
    eqeqeq: "error",
    "no-await-in-loop": "off",
    "no-shadow": "off",
    "import/no-unassigned-import": "off",
    "promise/always-return": "off",
    "typescript/no-unsafe-type-assertion": "off",
    // Written for Express; fastify waits for the promise of a handler.
    "oxc/no-async-endpoint-handlers": "off",
    "vitest/no-conditional-tests": "off",
    "vitest/require-mock-type-parameters": "off",
  },
  overrides: [
    {
      // The process is read in the composition root and wrapped in runtime, nowhere else. The token path has no
      // wall clock at all (S1-23): what cannot be named cannot break a tie.
      files: ["src/**/*.ts"],
      excludeFiles: ["src/main.ts", "src/runtime/**", "**/*.test.ts", "src/api/generate.ts"],
      rules: {
        "no-restricted-globals": ["error", ...clocks.map((name) => ({ name, message: clockMessage }))],
        "no-restricted-properties": [
          "error",
          ...clocks.map((property) => ({ object: "globalThis", property, message: clockMessage })),
          { object: "Math", property: "random", message: clockMessage },
          { object: "process", property: "env", message: "Only src/main.ts reads the environment." },
          { object: "process", property: "argv", message: "Only src/main.ts reads the arguments." },
          { object: "process", property: "hrtime", message: clockMessage },
        ],
      },
    },
    ...folders.map(wallOf),
    { files: ["*.config.ts"], rules: { "import/no-default-export": "off" } },
    // A helper of one describe block reads best inside it.
    { files: ["**/*.test.ts"], rules: { "unicorn/consistent-function-scoping": "off" } },
    { files: ["test/**", "deploy/**", "src/main.ts", "src/api/generate.ts"], rules: { "no-console": "off" } },
  ],
});
