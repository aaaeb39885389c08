/** What became of one step of `npm test`, counted in tests; a step that is no test level counts as one. */
export interface Result {
  name: string;
  seconds: number;
  passed: number;
  failed: number;
  skipped: number;
  /** Set when the step could not run at all: why. */
  notRun?: string;
  /** Something worth knowing that is no failure. */
  note?: string;
}

/** What vitest's JSON reporter writes, as far as it is read here. */
export interface VitestReport {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/**
 * The counts of one level. A file that breaks before its first test counts as one failure, and so does a run that
 * ends badly although every test passed (an unhandled error, a crash before the report: `report` is undefined).
 */
export const countsOf = (
  report: VitestReport | undefined,
  exitCode: number | null,
): Pick<Result, "passed" | "failed" | "skipped"> => {
  const brokenFiles =
    report?.testResults.filter(
      (file) => file.status === "failed" && file.assertionResults.every(({ status }) => status !== "failed"),
    ).length ?? 0;
  const failed = (report?.numFailedTests ?? 0) + brokenFiles;
  return {
    passed: report?.numPassedTests ?? 0,
    failed: failed === 0 && exitCode !== 0 ? 1 : failed,
    skipped: (report?.numPendingTests ?? 0) + (report?.numTodoTests ?? 0),
  };
};

/** On a build server nothing may be left out quietly: what was skipped or could not run has failed. */
export const strict = (result: Result): Result => ({
  ...result,
  failed: result.failed + result.skipped + (result.notRun === undefined ? 0 : 1),
  skipped: 0,
});

const sum = (results: readonly Result[], count: (result: Result) => number) =>
  results.reduce((total, result) => total + count(result), 0);

/** The last line of every run. */
export const closingLine = (results: readonly Result[]): string => {
  const skipped = sum(results, (result) => result.skipped);
  const counts = `${sum(results, ({ passed }) => passed)} passed, ${sum(results, ({ failed }) => failed)} failed`;
  return skipped > 0 ? `${counts}, ${skipped} skipped` : counts;
};

/** 0 only if something ran and nothing failed. `levels` names the steps that are test levels. */
export const exitCode = (results: readonly Result[], levels: readonly string[]): 0 | 1 => {
  const tests = results.filter(({ name }) => levels.includes(name));
  const ran = tests.length === 0 || sum(tests, ({ passed, failed }) => passed + failed) > 0;
  return ran && results.length > 0 && sum(results, ({ failed }) => failed) === 0 ? 0 : 1;
};

/** One line for people. */
export const describeResult = ({ name, seconds, passed, failed, skipped, notRun, note }: Result): string => {
  const verdict = failed > 0 ? "FAILED" : passed > 0 ? "ok" : "-";
  const counts = [
    passed + failed + skipped > 1 || skipped > 0 ? `${passed} passed` : "",
    failed > 0 && passed + failed > 1 ? `${failed} failed` : "",
    skipped > 0 ? `${skipped} skipped` : "",
    notRun === undefined ? "" : `not run: ${notRun}`,
    note ?? "",
  ].filter((text) => text !== "");
  return `${verdict.padEnd(6)}  ${name.padEnd(16)}${`${seconds.toFixed(1)} s`.padStart(8)}   ${counts.join(", ")}`.trimEnd();
};
