import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { cli } from "./inprocess.ts";

let folder: string;
const file = (name: string) => join(folder, name);
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-usage-"));
  await writeFile(file("token"), "a-bearer");
  await writeFile(file("empty"), "\n");
});
afterAll(() => rm(folder, { recursive: true }));

describe("exec that was typed wrong", { timeout: 30_000 }, () => {
  const to = ["exec", "--resource", "shop/orders", "--server", "https://127.0.0.1:1"];
  const base = () => [...to, "--token-file", file("token")];

  it.each<[string, () => string[], string]>([
    ["no resource", () => ["exec", "--", "true"], "'--resource <ns/name>' not specified"],
    ["no command", () => [...base(), "--"], "which command? write it after --"],
    ["no dashes", () => [...base(), "true"], "write the command after --, as in: fenceline exec … -- true"],
    ["an unknown flag", () => [...base(), "--waite", "--", "true"], "unknown option '--waite'"],
    ["no namespace", () => ["exec", "--resource", "orders", "--", "true"], "write namespace/name"],
    [
      "a wait that is no number",
      () => [...base(), "--wait", "soon", "--", "true"],
      "--wait soon: give seconds",
    ],
    [
      "a grace that is no number",
      () => [...base(), "--grace", "-1", "--", "true"],
      "--grace -1: give seconds",
    ],
    ["an endless label", () => [...base(), "--label", "x".repeat(129), "--", "true"], "1 to 128 printable"],
    ["controls in a label", () => [...base(), "--label", "a\u001b[1m", "--", "true"], "1 to 128 printable"],
    ["no server", () => ["exec", "--resource", "a/b", "--", "true"], "name it by --server"],
    [
      "no TLS",
      () => ["exec", "--resource", "a/b", "--server", "http://h", "--", "true"],
      "write https://host:8443",
    ],
    [
      "a password",
      () => ["exec", "--resource", "a/b", "--server", "https://u:p@h", "--", "true"],
      "at most a path",
    ],
    ["nobody asking", () => [...to, "--", "true"], "--token-file or --service-account, one of them"],
    ["two asking", () => [...base(), "--service-account", "a", "--", "true"], "one of them"],
    [
      "no CA file",
      () => [...base(), "--ca-file", "/no/ca", "--", "true"],
      "cannot read --ca-file /no/ca: ENOENT",
    ],
    [
      "a CA file that is none",
      () => [...base(), "--ca-file", file("token"), "--", "true"],
      "no certificate in PEM",
    ],
    [
      "no token file",
      () => [...to, "--token-file", "/no/t", "--", "true"],
      "cannot read --token-file /no/t: ENOENT",
    ],
    ["an empty token file", () => [...to, "--token-file", file("empty"), "--", "true"], "empty is empty"],
    [
      "no cluster",
      () => [...to, "--service-account", "a", "--", "true"],
      "no cluster: /nonexistent/.kube/config",
    ],
    ["a bad account", () => [...to, "--service-account", "A/../b", "--", "true"], "write namespace/name"],
  ])("%s: one line and 120", async (_, args, text) => {
    const said = await cli(args());
    expect(said.stderr).toContain(text);
    expect(said.stderr).toMatch(/^fenceline: [^\n]*\n$/);
    expect(said).toMatchObject({ code: 120, stdout: "" });
  });
});

describe("every other command that was typed wrong", { timeout: 30_000 }, () => {
  it.each<[string, string[], string]>([
    ["no command", [], "no command given: see fenceline --help"],
    ["an unknown one", ["gett"], "unknown command 'gett' (Did you mean get?): see fenceline --help"],
    ["an unknown flag", ["version", "--loud"], "unknown option '--loud'"],
    ["too many words", ["version", "now"], "too many arguments"],
    ["controller without configuration", ["controller"], "required option '--config <file>' not specified"],
  ])("%s: one line and 2", async (_, args, text) => {
    const said = await cli(args);
    expect(said.stderr).toContain(text);
    expect(said.stderr).toMatch(/^fenceline: [^\n]*\n$/);
    expect(said).toMatchObject({ code: 2, stdout: "" });
  });

  it("as a plugin it names itself so", async () => {
    expect((await cli([], { plugin: true })).stderr).toContain("see kubectl fence --help");
    expect((await cli(["--help"], { plugin: true })).stdout).toContain("Usage: kubectl fence");
  });

  it("help is no error", async () => {
    const said = await cli(["exec", "--help"]);
    expect(said).toMatchObject({ code: 0, stderr: "" });
    expect(said.stdout).toContain("--no-wait");
  });

  it("version", async () => {
    expect(await cli(["version"])).toEqual({ code: 0, stdout: "fenceline 1.2.3\n", stderr: "" });
  });

  it("controller hands its configuration on, and tells in one line why it could not begin", async () => {
    const controller = ({ config }: { config: string }) => Promise.reject(new Error(`bad\n${config}`));
    const said = await cli(["controller", "--config", "c.yaml"], { controller });
    expect(said).toMatchObject({ code: 1, stderr: "fenceline: bad c.yaml\n" });
  });
});
