import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, readdir, rename, rm, symlink } from "node:fs/promises";
import path from "node:path";
import {
  ClusterError,
  cacheFolder,
  childEnvironment,
  components,
  goEnvironment,
  goFlags,
  moduleFolder,
  versions,
} from "./config.ts";
import { exec } from "./exec.ts";
import { withLock } from "./lock.ts";

/** Tells a person what goes on: one line per step. */
export type Say = (line: string) => void;

export const sayToStderr: Say = (line) => void process.stderr.write(`${line}\n`);

const goEnv = () => childEnvironment(goEnvironment);

const number = (version: string) => version.split(".").map((part) => Number.parseInt(part, 10));

/** Go's version, platform and fitness. Throws one sentence that says what to install. */
export const checkGo = async (): Promise<{ version: string; platform: string }> => {
  const wanted = /^go (\S+)$/m.exec(await readFile(path.join(moduleFolder, "go.mod"), "utf8"))?.[1] ?? "";
  const install = `install Go ${wanted} or newer from https://go.dev/dl`;
  const answer = await exec("go", ["env", "GOVERSION", "GOOS", "GOARCH"], {
    cwd: moduleFolder,
    env: goEnv(),
  }).catch((error: Error) => {
    const why = "code" in error && error.code === "ENOENT" ? "there is no go in PATH" : error.message;
    throw new ClusterError(`the test cluster is built with Go: ${why}; ${install}`);
  });
  const [version = "", os = "", arch = ""] = answer.trim().split("\n");
  const [major = 0, minor = 0] = number(version.replace("go", ""));
  const [wantedMajor = 0, wantedMinor = 0] = number(wanted);
  if (major < wantedMajor || (major === wantedMajor && minor < wantedMinor))
    throw new ClusterError(`the test cluster is built with Go: ${version} is too old; ${install}`);
  return { version, platform: `${os}/${arch}` };
};

/** Shows every few seconds that a long step is still alive. */
export const withProgress = async <T>(what: string, say: Say, work: () => Promise<T>): Promise<T> => {
  const begin = performance.now();
  const elapsed = () => {
    const seconds = Math.round((performance.now() - begin) / 1000);
    return `${Math.floor(seconds / 60)}m${String(seconds % 60).padStart(2, "0")}s`;
  };
  say(`${what} …`);
  const timer = setInterval(() => say(`${what} … ${elapsed()}`), 10_000);
  try {
    const result = await work();
    say(`${what}: done in ${elapsed()}`);
    return result;
  } finally {
    clearInterval(timer);
  }
};

/**
 * A folder in the cache that `make` fills once for each content hash of `parts`: written aside and renamed,
 * under a lock, so that what has the final name is whole.
 */
export const cached = async (
  name: string,
  parts: readonly string[],
  say: Say,
  make: (folder: string) => Promise<void>,
): Promise<string> => {
  const hash = createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 16);
  const folder = path.join(cacheFolder(), `${name}-${hash}`);
  if (existsSync(folder)) return folder;
  const wait = () => say(`waiting for another process that builds ${name}`);
  return withLock(
    `${folder}.lock`,
    async () => {
      if (existsSync(folder)) return folder;
      for (const stale of await readdir(cacheFolder()))
        if (stale.startsWith(`${name}-${hash}.part-`))
          await rm(path.join(cacheFolder(), stale), { recursive: true });
      const aside = await mkdtemp(`${folder}.part-`);
      await make(aside);
      await rename(aside, folder);
      return folder;
    },
    wait,
  );
};

const runGo = (say: Say, what: string, args: string[]) =>
  withProgress(what, say, () => exec("go", args, { cwd: moduleFolder, env: goEnv() }));

/** Everything a Go module is built from, but its dependencies, which go.sum pins. */
const sources = async (folder: string): Promise<string[]> => {
  const files = (await readdir(folder)).filter((file) => /\.go$|^go\.(mod|sum)$/.test(file)).toSorted();
  const texts = await Promise.all(files.map((file) => readFile(path.join(folder, file), "utf8")));
  return [...files, ...texts];
};

/** Builds the Go program whose module is `folder` once. Returns the binary. */
export const buildProgram = async (name: string, folder: string, say: Say = sayToStderr): Promise<string> => {
  const go = await checkGo();
  const flags = ["-trimpath", "-ldflags", "-s -w"];
  const parts = [...(await sources(folder)), go.version, go.platform, ...flags];
  const made = await cached(name, parts, say, async (aside) => {
    await withProgress(`building ${name}`, say, () =>
      exec("go", ["build", ...flags, "-o", path.join(aside, name), "."], { cwd: folder, env: goEnv() }),
    );
  });
  return path.join(made, name);
};

/** Builds Kubernetes and etcd once. Returns the folder with one entry per component (KUBEBUILDER_ASSETS). */
export const buildKube = async (say: Say = sayToStderr): Promise<string> => {
  const go = await checkGo();
  const parts = [
    ...(await sources(moduleFolder)),
    go.version,
    go.platform,
    ...goFlags,
    ...components,
    JSON.stringify(goEnvironment),
  ];
  return cached("kube", parts, say, async (folder) => {
    await runGo(
      say,
      "step 1 of 2: fetching the Go modules of Kubernetes and etcd (about 30 s the first time)",
      ["mod", "download"],
    );
    await runGo(
      say,
      `step 2 of 2: building Kubernetes ${versions.kubernetes} and etcd (about 4 minutes the first time)`,
      ["build", ...goFlags, "-o", path.join(folder, "kube"), "."],
    );
    for (const component of components) await symlink("kube", path.join(folder, component));
  });
};

/** Builds CoreDNS once, for clusters with nodes. Returns the binary. */
export const buildCoreDns = async (say: Say = sayToStderr): Promise<string> => {
  const go = await checkGo();
  const parts = [versions.coredns, go.version, go.platform, ...goFlags];
  const folder = await cached("coredns", parts, say, async (folder) => {
    await mkdir(folder, { recursive: true });
    const target = `github.com/coredns/coredns@v${versions.coredns}`;
    await withProgress(`building CoreDNS ${versions.coredns} (about 90 s the first time)`, say, () =>
      exec("go", ["install", "-trimpath", "-ldflags", "-s -w", target], {
        cwd: folder,
        env: { ...goEnv(), GOBIN: folder },
      }),
    );
  });
  return path.join(folder, "coredns");
};

/** Builds Helm once. Returns the binary. */
export const buildHelm = async (say: Say = sayToStderr): Promise<string> => {
  const go = await checkGo();
  const parts = [versions.helm, go.version, go.platform, ...goFlags];
  const folder = await cached("helm", parts, say, async (folder) => {
    await withProgress(`building Helm ${versions.helm} (about 90 s the first time)`, say, () =>
      exec(
        "go",
        ["install", "-trimpath", "-ldflags", "-s -w", `helm.sh/helm/v4/cmd/helm@v${versions.helm}`],
        {
          cwd: folder,
          env: { ...goEnv(), GOBIN: folder },
        },
      ),
    );
  });
  return path.join(folder, "helm");
};
