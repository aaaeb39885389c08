import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { allPackages } from "../support/cluster/requirements.ts";
import { isStrict, maySetUp } from "../support/runner/machine.ts";
import {
  closingLine,
  countsOf,
  describeResult,
  exitCode,
  type Result,
  strict,
  type VitestReport,
} from "../support/runner/report.ts";

const house = join(import.meta.dirname, "../..");

const result = (name: string, more: Partial<Result> = {}): Result => ({
  name,
  seconds: 1.25,
  passed: 0,
  failed: 0,
  skipped: 0,
  ...more,
});
const file = (status: string, ...tests: string[]) => ({
  status,
  assertionResults: tests.map((one) => ({ status: one })),
});
const report = (more: Partial<VitestReport>): VitestReport => ({
  numPassedTests: 0,
  numFailedTests: 0,
  numPendingTests: 0,
  numTodoTests: 0,
  testResults: [],
  ...more,
});

describe("counts of a level", () => {
  it("are those of its report", () => {
    const counts = report({ numPassedTests: 7, numFailedTests: 2, numPendingTests: 1, numTodoTests: 1 });
    expect(countsOf(counts, 1)).toEqual({ passed: 7, failed: 2, skipped: 2 });
  });

  it("take a file that breaks before its tests for a failure", () => {
    const testResults = [file("failed"), file("failed", "passed", "failed"), file("passed", "passed")];
    expect(countsOf(report({ numPassedTests: 2, numFailedTests: 1, testResults }), 1).failed).toBe(2);
  });

  it("take a bad end for a failure, even if every test passed or there is no report", () => {
    expect(countsOf(report({ numPassedTests: 3 }), 1)).toEqual({ passed: 3, failed: 1, skipped: 0 });
    expect(countsOf(undefined, null)).toEqual({ passed: 0, failed: 1, skipped: 0 });
  });
});

describe("the closing line and the exit code", () => {
  const lint = result("lint", { passed: 1 });
  const unit = result("unit", { passed: 40 });
  const levels = ["unit", "e2e"];

  it("sum tests over levels, and one for each check", () => {
    expect(closingLine([lint, unit])).toBe("41 passed, 0 failed");
    expect(exitCode([lint, unit], levels)).toBe(0);
  });

  it("tell of failures and of what was skipped", () => {
    const results = [result("lint", { failed: 1 }), result("unit", { passed: 3, skipped: 2 })];
    expect(closingLine(results)).toBe("3 passed, 1 failed, 2 skipped");
    expect(exitCode(results, levels)).toBe(1);
  });

  it("do not take a run without any test for a success", () => {
    expect(exitCode([lint, result("unit")], levels)).toBe(1);
    expect(exitCode([], levels)).toBe(1);
    expect(exitCode([lint], levels)).toBe(0);
  });

  it("name a level that cannot run, without failing, unless on a build server", () => {
    const e2e = result("e2e", { notRun: "pods need root" });
    expect(exitCode([unit, e2e], levels)).toBe(0);
    expect(describeResult(e2e)).toContain("not run: pods need root");
    expect(closingLine([unit, strict(e2e)])).toBe("40 passed, 1 failed");
    expect(exitCode([unit, strict(e2e)], levels)).toBe(1);
  });

  it("fail for a skipped test on a build server", () => {
    expect(strict(result("unit", { passed: 1, skipped: 1 }))).toMatchObject({
      passed: 1,
      failed: 1,
      skipped: 0,
    });
  });
});

describe("setting a machine up", () => {
  const bystander = { asked: false, strict: false, root: false, debian: true, terminal: true };

  it("happens when asked, on a build server, or as root on Debian without a terminal", () => {
    expect(maySetUp(bystander)).toBe(false);
    expect(maySetUp({ ...bystander, asked: true })).toBe(true);
    expect(maySetUp({ ...bystander, strict: true })).toBe(true);
    expect(maySetUp({ ...bystander, root: true })).toBe(false);
    expect(maySetUp({ ...bystander, root: true, terminal: false })).toBe(true);
    expect(maySetUp({ ...bystander, root: true, terminal: false, debian: false })).toBe(false);
  });

  it("knows a build server by CI", () => {
    expect([{}, { CI: "" }, { CI: "0" }, { CI: "false" }].map(isStrict)).toEqual([
      false,
      false,
      false,
      false,
    ]);
    expect([{ CI: "true" }, { CI: "1" }, { CI: "yes" }].map(isStrict)).toEqual([true, true, true]);
  });

  it("installs before the tests exactly what the levels ask for", async () => {
    const lines = (await readFile(join(house, ".ci/packages"), "utf8")).split("\n");
    const listed = lines.filter((line) => line !== "" && !line.startsWith("#"));
    expect(listed.toSorted()).toEqual([...allPackages()].toSorted());
  });
});

/** `npm test` itself, as a person runs it, with a cluster of somebody's in the environment. */
const npmTest = (args: string[], more: NodeJS.ProcessEnv = {}) =>
  new Promise<{ code: number; lines: string[]; errors: string }>((resolve) => {
    const { CI: _, ...env } = process.env;
    execFile(
      process.execPath,
      [join(house, "test/run.ts"), ...args],
      { env: { ...env, KUBECONFIG: "/nowhere", KUBERNETES_SERVICE_HOST: "nowhere", ...more } },
      (error, stdout, stderr) =>
        resolve({
          code: typeof error?.code === "number" ? error.code : 0,
          lines: stdout.trimEnd().split("\n"),
          errors: stderr,
        }),
    );
  });

describe("npm test", () => {
  it("runs a level, narrowed, apart from clusters in the environment, and closes with one line", async () => {
    const { code, lines } = await npmTest(["--level", "unit", "--filter", "unit/environment.test.ts"]);
    expect(lines.at(-1)).toBe("1 passed, 0 failed");
    expect(code).toBe(0);
  }, 30_000);

  it("fails when no test ran, and names the level", async () => {
    const { code, lines } = await npmTest(["--level", "unit", "--filter", "there is no such file"]);
    expect(lines.at(-1)).toBe("0 passed, 0 failed");
    expect(lines.join("\n")).toMatch(/unit .* no test files/);
    expect(code).toBe(1);
  }, 30_000);

  it("takes a test cluster that is half named for a failure", async () => {
    const { code, lines } = await npmTest(["--level", "cluster"], { FENCELINE_TEST_CONTEXT: "mine" });
    expect(lines.at(-1)).toBe("0 passed, 1 failed");
    expect(lines.join("\n")).toMatch(/FENCELINE_TEST_CONTEXT is set but/);
    expect(code).toBe(1);
  }, 30_000);

  it("refuses an unknown level and option in one line", async () => {
    expect(await npmTest(["--level", "units"])).toMatchObject({
      code: 2,
      errors: expect.stringMatching(/^--level units: .+\n$/),
    });
    expect(await npmTest(["--quick"])).toMatchObject({ code: 2, errors: expect.stringMatching(/--quick/) });
  }, 30_000);
});
