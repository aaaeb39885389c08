import { createHash } from "node:crypto";
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { exec } from "./exec.ts";

/**
 * Images that every node has: no registry is ever asked. A pod serves `/www/index.html` (`hello`) with
 * `httpd -f -p 8080 -h /www`. Names are resolved by `nslookup` alone: where a static busybox asks glibc
 * (`wget`), it crashes.
 */
export const images = { busybox: "localhost/busybox:1", pause: "localhost/pause:1" } as const;

const reproducible = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];

/** Architecture as images name it. */
const architecture = process.arch === "x64" ? "amd64" : process.arch;

/** Writes both images as one docker archive: a layer with the machine's own static busybox. */
export const writeImages = async (target: string): Promise<void> => {
  const folder = await mkdtemp(`${target}.part-`);
  const bin = path.join(folder, "root/bin");
  await mkdir(bin, { recursive: true });
  await mkdir(path.join(folder, "root/tmp"), { mode: 0o1777 });
  await mkdir(path.join(folder, "root/www"));
  await writeFile(path.join(folder, "root/www/index.html"), "hello\n");
  const busybox = (await exec("sh", ["-c", "command -v busybox"])).trim();
  await copyFile(busybox, path.join(bin, "busybox"));
  const applets = (await exec(busybox, ["--list"])).trim().split("\n");
  await Promise.all(
    applets.filter((name) => name !== "busybox").map((name) => symlink("busybox", path.join(bin, name))),
  );
  const layer = path.join(folder, "layer.tar");
  await exec("tar", [...reproducible, "-cf", layer, "-C", path.join(folder, "root"), "."]);
  const digest = createHash("sha256")
    .update(await readFile(layer))
    .digest("hex");
  const describe = async (name: string, config: object) => {
    const file = `${name.replaceAll(/\W/g, "-")}.json`;
    const rootfs = { type: "layers", diff_ids: [`sha256:${digest}`] };
    await writeFile(path.join(folder, file), JSON.stringify({ architecture, os: "linux", config, rootfs }));
    return { Config: file, RepoTags: [name], Layers: ["layer.tar"] };
  };
  const Env = ["PATH=/bin"];
  const manifest = [
    await describe(images.busybox, { Env, Cmd: ["sh"] }),
    await describe(images.pause, { Env, Entrypoint: ["/bin/sleep", "2147483647"] }),
  ];
  await writeFile(path.join(folder, "manifest.json"), JSON.stringify(manifest));
  const configs = manifest.map(({ Config }) => Config);
  await exec("tar", [...reproducible, "-cf", target, "-C", folder, "manifest.json", ...configs, "layer.tar"]);
  await rm(folder, { recursive: true });
};
