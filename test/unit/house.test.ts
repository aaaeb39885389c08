/**
 * The house rules bite: each is broken once, on purpose, in a copy of the house that has only its walls, and the real
 * linter with the real configuration must find it there, by that rule and no other. A checker that checks nothing is
 * green, too.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { walls } from "../../oxlint.config.ts";

const house = join(import.meta.dirname, "../..");
const folders = Object.keys(walls);

interface Plant {
  name: string;
  file: string;
  source: string;
  /** The rule that must find it; undefined where all is well. */
  rule?: string;
}

let planted = 0;
const plant = (name: string, folder: string, source: string, rule?: string): Plant => {
  planted += 1;
  return { name, file: `src/${folder}/planted${planted}.ts`, source, ...(rule !== undefined && { rule }) };
};

const imports = "eslint(no-restricted-imports)";
const globals = "eslint(no-restricted-globals)";
const properties = "eslint(no-restricted-properties)";
const use = (module: string) => `import { door } from "${module}";\nexport const used = door;\n`;

const forbiddenImports = folders.flatMap((folder) => [
  ...folders
    .filter((other) => other !== folder && walls[folder]?.includes(other) !== true)
    .map((other) =>
      plant(`src/${folder} may not know src/${other}`, folder, use(`../${other}/door.ts`), imports),
    ),
  plant(`src/${folder} may not know src/main.ts`, folder, use("../main.ts"), imports),
]);
const disguises = [
  ["a type", 'import type { Door } from "../kube/door.ts";\nexport type Used = Door;\n'],
  ["a re-export", 'export { door } from "../kube/door.ts";\n'],
  ["a re-export of everything", 'export * from "../kube/door.ts";\n'],
  ["a deeper file", use("../kube/inner/door.ts")],
].map(([what = "", source = ""]) =>
  plant(`a forbidden import in the shape of ${what}`, "holder", source, imports),
);

const packages = folders.flatMap((folder) => [
  ...(folder === "kube"
    ? []
    : [
        plant(
          `src/${folder} may not import @kubernetes/client-node`,
          folder,
          'import { KubeConfig } from "@kubernetes/client-node";\nexport const used = KubeConfig;\n',
          imports,
        ),
      ]),
  ...(folder === "postgres"
    ? []
    : [
        plant(
          `src/${folder} may not import pg`,
          folder,
          'import { Pool } from "pg";\nexport const used = Pool;\n',
          imports,
        ),
      ]),
]);
const pure = [
  ["zod", 'import { z } from "zod";\nexport const used = z;\n'],
  ["node:*", 'import { inspect } from "node:util";\nexport const used = inspect;\n'],
  ["undici", 'import { Agent } from "undici";\nexport const used = Agent;\n'],
].map(([what, source = ""]) => plant(`src/core may not import ${what}`, "core", source, imports));

const allowed = [
  ...folders.map((folder) =>
    plant(
      `src/${folder} may know ${["its own", ...(walls[folder] ?? [])].join(", ")}`,
      folder,
      [folder, ...(walls[folder] ?? [])]
        .map(
          (other, i) =>
            `import { door as door${i} } from "../${other}/door.ts";\nexport const used${i} = door${i};\n`,
        )
        .toSorted()
        .toReversed()
        .join(""),
    ),
  ),
  plant(
    "src/kube may import @kubernetes/client-node",
    "kube",
    'import { KubeConfig } from "@kubernetes/client-node";\nexport const used = KubeConfig;\n',
  ),
  plant("src/postgres may import pg", "postgres", 'import { Pool } from "pg";\nexport const used = Pool;\n'),
  plant("src/api may import zod", "api", 'import { z } from "zod";\nexport const used = z;\n'),
  plant("src/runtime may read the clock", "runtime", "export const now = () => Date.now();\n"),
];

const clocks = ["core", "coordinator"].flatMap((folder) =>
  (
    [
      ["Date.now()", globals],
      ["new Date()", globals],
      ["performance.now()", globals],
      ["setTimeout(() => undefined, 1)", globals],
      ["setInterval(() => undefined, 1)", globals],
      ["setImmediate(() => undefined)", globals],
      ["crypto.randomUUID()", globals],
      ["Math.random()", properties],
      ["process.env", properties],
      ["process.argv", properties],
      ["process.hrtime()", properties],
    ] as const
  ).map(([what, rule]) =>
    plant(`src/${folder} may not touch ${what}`, folder, `export const read = () => ${what};\n`, rule),
  ),
);

const hiddenClocks = (
  [
    [
      "timers",
      'import { setTimeout as sleep } from "node:timers/promises";\nexport const used = sleep;\n',
      imports,
    ],
    [
      "perf_hooks",
      'import { performance } from "node:perf_hooks";\nexport const used = performance;\n',
      imports,
    ],
    ["process", 'import { env } from "node:process";\nexport const used = env;\n', imports],
    ["crypto", 'import { randomUUID } from "node:crypto";\nexport const used = randomUUID;\n', imports],
    ["all of crypto", 'import crypto from "node:crypto";\nexport const used = crypto.randomUUID;\n', imports],
    ["globalThis", "export const used = () => globalThis.Date.now();\n", properties],
  ] as const
).map(([what, source, rule]) => plant(`not even by way of ${what}`, "coordinator", source, rule));
const hashing = plant(
  "src/coordinator may hash",
  "coordinator",
  'import { createHash } from "node:crypto";\nexport const used = createHash;\n',
);

const promises = [
  plant(
    "a floating promise",
    "holder",
    "export const start = (work: () => Promise<void>) => {\n  work();\n};\n",
    "typescript(no-floating-promises)",
  ),
  plant(
    "a promise taken for a condition",
    "holder",
    "export const start = (ready: () => Promise<boolean>) => {\n  if (ready()) return 1;\n  return 2;\n};\n",
    "typescript(no-misused-promises)",
  ),
  plant(
    "a promise that nobody waits for, as a callback",
    "holder",
    "export const all = (names: string[], work: (name: string) => Promise<void>) => {\n  names.forEach(async (name) => work(name));\n};\n",
    "typescript(no-misused-promises)",
  ),
];
const shapes = [
  plant(
    "a switch that forgets an outcome",
    "core",
    'export const text = (outcome: "granted" | "busy" | "unknown") => {\n  switch (outcome) {\n    case "granted":\n      return 1;\n    case "busy":\n      return 2;\n  }\n  return 3;\n};\n',
    "typescript(switch-exhaustiveness-check)",
  ),
  {
    name: "an import cycle",
    file: "src/core/cycle.ts",
    source: 'import { back } from "./back.ts";\nexport const there = (): number => back();\n',
    rule: "import(no-cycle)",
  },
  {
    name: "an import cycle, seen from its other end",
    file: "src/core/back.ts",
    source: 'import { there } from "./cycle.ts";\nexport const back = (): number => there();\n',
    rule: "import(no-cycle)",
  },
];

const plants = [
  ...forbiddenImports,
  ...disguises,
  ...packages,
  ...pure,
  ...allowed,
  ...clocks,
  ...hiddenClocks,
  hashing,
  ...promises,
  ...shapes,
];

/** What the linter found, by file. */
const found = new Map<string, Set<string>>();
let copy = "";

const lint = (cwd: string): Promise<string> =>
  new Promise((resolve, reject) => {
    execFile(
      join(house, "node_modules/.bin/oxlint"),
      ["--format", "json", "src"],
      { cwd, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) =>
        stdout.startsWith("{") ? resolve(stdout) : reject(new Error(stderr, { cause: error })),
    );
  });

beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), "fenceline-house-"));
  const write = async (file: string, source: string) => {
    await mkdir(join(copy, dirname(file)), { recursive: true });
    await writeFile(join(copy, file), source);
  };
  for (const file of ["package.json", "tsconfig.json", "oxlint.config.ts"])
    await cp(join(house, file), join(copy, file));
  await symlink(join(house, "node_modules"), join(copy, "node_modules"));
  const door = "export const door = 1;\nexport type Door = number;\n";
  for (const folder of folders) await write(`src/${folder}/door.ts`, door);
  await write("src/kube/inner/door.ts", door);
  await write("src/main.ts", door);
  for (const { file, source } of plants) await write(file, source);
  const { diagnostics } = JSON.parse(await lint(copy)) as {
    diagnostics: { filename: string; code: string }[];
  };
  for (const { filename, code } of diagnostics)
    found.set(filename, (found.get(filename) ?? new Set<string>()).add(code));
}, 60_000);
afterAll(() => rm(copy, { recursive: true, force: true }));

/** What the linter found in each of these, beside what it should have found. */
const verdicts = (some: readonly Plant[]) =>
  some.map(({ name, file }) => ({ name, found: [...(found.get(file) ?? [])] }));
const intended = (some: readonly Plant[]) =>
  some.map(({ name, rule }) => ({ name, found: rule === undefined ? [] : [rule] }));
const row = (some: readonly Plant[], folder: string) =>
  some.filter(({ file }) => file.startsWith(`src/${folder}/`));

describe.each(folders)("src/%s", (folder) => {
  it("may import what its row of the matrix names", () => {
    const some = row(allowed, folder);
    expect(some.length).toBeGreaterThan(0);
    expect(verdicts(some)).toEqual(intended(some));
  });

  it("may import nothing else of the house, and no package that another folder owns", () => {
    const some = row([...forbiddenImports, ...packages, ...pure], folder);
    expect(some.length).toBeGreaterThan(1);
    expect(verdicts(some)).toEqual(intended(some));
  });
});

describe("S1-23: no clock, randomness or environment outside runtime", () => {
  it.each([...clocks, ...hiddenClocks, hashing])("$name", (one) => {
    expect(verdicts([one])).toEqual(intended([one]));
  });
});

describe("the linter finds", () => {
  it.each([...promises, ...shapes, ...disguises])("$name", (one) => {
    expect(verdicts([one])).toEqual(intended([one]));
  });

  it("nothing where nothing was planted", () => {
    expect([...found.keys()].filter((file) => !plants.some((one) => one.file === file))).toEqual([]);
  });
});
