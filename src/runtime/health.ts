/** One thing that must be right. `fault` says in a few words what is wrong, or nothing. */
export interface Check {
  name: string;
  fault(): string | undefined;
}

/** Asks every check; the text has one line for each, those that fail first. */
export const runChecks = (checks: readonly Check[]): { ok: boolean; text: string } => {
  const results = checks.map((check) => ({ name: check.name, fault: faultOf(check) }));
  const bad = results.filter(({ fault }) => fault !== undefined);
  const good = results.filter(({ fault }) => fault === undefined);
  const lines = [
    ...bad.map(({ name, fault }) => `[-] ${name}: ${fault}`),
    ...good.map(({ name }) => `[+] ${name}`),
    bad.length ? "not ok" : "ok",
  ];
  return { ok: bad.length === 0, text: `${lines.join("\n")}\n` };
};

/** A check that fails to answer is no good news. */
const faultOf = (check: Check): string | undefined => {
  try {
    return check.fault();
  } catch (error) {
    return `the check itself failed: ${error instanceof Error ? error.message : String(error)}`;
  }
};
