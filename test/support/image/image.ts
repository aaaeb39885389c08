/**
 * The image of the project, built from its Dockerfile by buildah, on a base that is made of this machine: Node from npm
 * and the libraries it is linked with. Nothing is pulled. Built once for each content.
 */
import { createHash } from "node:crypto";
import { copyFileSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { cached, type Say, sayToStderr, withProgress } from "../cluster/build.ts";
import { exec } from "../cluster/exec.ts";

const root = path.join(import.meta.dirname, "../../..");

/** Name of the image without a tag. The policy that looks at agents knows it too. */
export const repository = "ghcr.io/fenceline/fenceline";

/** What the Dockerfile can see. */
const sources = (): string[] =>
  globSync(
    [
      "Dockerfile",
      ".dockerignore",
      "bin/**/*",
      "crds/**/*",
      "deploy/image/*",
      "src/**/*.ts",
      "package*.json",
      "tsconfig*.json",
    ],
    { cwd: root, withFileTypes: true },
  )
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".test.ts"))
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
    .toSorted();

const digest = (files: readonly string[]): string => {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(path.join(root, file)));
  return hash.digest("hex");
};

/** The Node of this checkout, and every library that it is linked with. */
const baseFiles = async (): Promise<{ node: string; libraries: string[] }> => {
  const node = process.execPath;
  const linked = await exec("ldd", [node]);
  const libraries = [...linked.matchAll(/(\/\S+) \(0x/g)].map(([, file = ""]) => file);
  return { node, libraries };
};

const buildah = (storage: string, args: readonly string[]): Promise<string> =>
  exec("buildah", [
    "--storage-driver",
    "overlay",
    "--root",
    path.join(storage, "root"),
    "--runroot",
    path.join(storage, "run"),
    ...args,
  ]);

/** Files and users that a program expects of a system. */
const writeBase = (folder: string, { node, libraries }: Awaited<ReturnType<typeof baseFiles>>): void => {
  const put = (from: string, to: string) => {
    const target = path.join(folder, "base", to);
    mkdirSync(path.dirname(target), { recursive: true });
    copyFileSync(from, target);
  };
  put(node, "usr/local/bin/node");
  for (const library of libraries) put(library, library);
  for (const [file, text] of Object.entries({
    "etc/passwd": "root:x:0:0::/root:/bin/false\nnonroot:x:65532:65532::/home/nonroot:/bin/false\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "tmp/.keep": "",
  })) {
    mkdirSync(path.dirname(path.join(folder, "base", file)), { recursive: true });
    writeFileSync(path.join(folder, "base", file), text);
  }
  writeFileSync(
    path.join(folder, "Containerfile"),
    "FROM scratch\nCOPY base /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n",
  );
};

/** Builds the image with this tag. Returns a docker archive. */
export const buildImage = async (tag: string, say: Say = sayToStderr): Promise<string> => {
  const base = await baseFiles();
  const own = readFileSync(import.meta.filename, "utf8");
  const parts = [digest(sources()), process.version, process.arch, ...base.libraries, tag, own];
  const folder = await cached("image", parts, say, (folder) =>
    withProgress(`building the image ${tag}`, say, async () => {
      const storage = path.join(folder, "storage");
      writeBase(folder, base);
      const bud = ["bud", "--isolation", "chroot", "--quiet"];
      await buildah(storage, [...bud, "-t", "localhost/fenceline-base:1", folder]);
      const name = `${repository}:${tag}`;
      const settings = ["BASE=localhost/fenceline-base:1", `VERSION=${tag}`];
      const given = settings.flatMap((setting) => ["--build-arg", setting]);
      await buildah(storage, [...bud, ...given, "-t", name, root]);
      await buildah(storage, [
        "push",
        "--quiet",
        name,
        `docker-archive:${path.join(folder, "image.tar")}:${name}`,
      ]);
      for (const idle of [storage, path.join(folder, "base")])
        await rm(idle, { recursive: true, force: true });
    }),
  );
  return path.join(folder, "image.tar");
};
