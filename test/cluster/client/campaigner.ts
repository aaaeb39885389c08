/** Leads until it is killed: `campaigner.ts NAMESPACE/NAME ACCESS`. Prints each token that it leads with. */
import { lead } from "../../../src/client/election.ts";
import { connect, type ConnectOptions } from "../../../src/client/holding.ts";

const [resource = "", access = ""] = process.argv.slice(2);

await lead(
  connect(JSON.parse(access) as ConnectOptions),
  resource,
  async ({ token }, signal) => {
    process.stdout.write(`${token}\n`);
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  },
  { signal: new AbortController().signal, label: "campaigner" },
);
