import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, it } from "vitest";
import { childEnvironment } from "../../support/cluster/config.ts";

const bin = path.join(import.meta.dirname, "../../../bin/fenceline.js");

it("says in one line that Node is too old, instead of stumbling over a file", () => {
  const old = "data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.20.2'})";
  const { status, stderr } = spawnSync(process.execPath, ["--import", old, bin, "version"], {
    encoding: "utf8",
    env: childEnvironment(),
  });
  expect(stderr).toBe("fenceline: this is Node 20.20.2: it needs Node 24 or newer\n");
  expect(status).toBe(1);
});
