import { accessSync, constants, existsSync, mkdirSync, rmdirSync } from "node:fs";
import path from "node:path";
import { checkGo } from "./build.ts";
import { hierarchies } from "./cgroup.ts";
import { serverPrograms } from "../postgres/lab.ts";
import { exec } from "./exec.ts";
import { chooseCluster } from "./which.ts";

/**
 * `api`: etcd and API server, and a PostgreSQL beside them. `nodes`: pods too, in a box of its own. `postgres`: PostgreSQL
 * servers. `model`: the checker of the protocol's model.
 */
export type Level = "api" | "nodes" | "postgres" | "model";

/** Something this machine lacks. */
export interface Missing {
  name: string;
  /** One sentence: why it is needed, or what is wrong. */
  reason: string;
  /** Debian packages that bring it; empty if no package does. */
  packages: readonly string[];
}

/** Programs, what they are for, and the Debian package of each. */
const programs: Record<Level, readonly (readonly [program: string, use: string, debianPackage: string])[]> = {
  api: [
    ["openssl", "makes the cluster's certificates", "openssl"],
    ["setpriv", "ends the cluster with its owner", "util-linux"],
    ["flock", "lets one process build at a time", "util-linux"],
  ],
  nodes: [
    ["unshare", "makes the box", "util-linux"],
    ["nsenter", "enters it", "util-linux"],
    ["ip", "makes its network", "iproute2"],
    ["iptables", "serves kube-proxy and cuts pods off", "iptables"],
    ["sysctl", "lets nodes forward packets", "procps"],
    ["containerd", "runs containers", "containerd"],
    ["ctr", "loads images", "containerd"],
    ["runc", "runs containers", "runc"],
    ["/usr/lib/cni/bridge", "connects pods", "containernetworking-plugins"],
    ["busybox", "is what test pods run", "busybox-static"],
    ["buildah", "builds the image", "buildah"],
  ],
  postgres: [
    ["setpriv", "ends the servers with their owner", "util-linux"],
    ["/usr/sbin/pgbouncer", "is the pooler between workers and server", "pgbouncer"],
    [
      "/usr/lib/python3/dist-packages/psycopg/__init__.py",
      "is what workers in Python use",
      "python3-psycopg",
    ],
  ],
  model: [
    ["spin", "checks the model of the protocol", "spin"],
    ["cc", "compiles its search", "gcc"],
    ["/usr/include/stdio.h", "compiles its search", "libc6-dev"],
  ],
};

/** Any version that is supported will do; Debian names the folder and the package after it. */
const missingServer = (): Missing[] => {
  try {
    serverPrograms();
    return [];
  } catch {
    return [
      { name: "postgresql", reason: "a PostgreSQL server keeps the fence", packages: ["postgresql-15"] },
    ];
  }
};

/** Debian packages that all levels need, for whoever sets a machine up. */
export const allPackages = (): string[] => [
  ...new Set([
    ...Object.values(programs)
      .flat()
      .map(([, , name]) => name),
    "postgresql-15",
  ]),
];

const isThere = (program: string): boolean => {
  const mode = /\.(h|py)$/.test(program) ? constants.R_OK : constants.X_OK;
  const folders = program.startsWith("/") ? [""] : (process.env["PATH"] ?? "").split(":");
  return folders.some((folder) => {
    try {
      accessSync(path.join(folder, program), mode);
      return true;
    } catch {
      return false;
    }
  });
};

const missingPrograms = (level: Level): Missing[] =>
  programs[level]
    .filter(([program]) => !isThere(program))
    .map(([name, use, debianPackage]) => ({ name, reason: `${name} ${use}`, packages: [debianPackage] }));

const fact = (name: string, reason: string): Missing => ({ name, reason, packages: [] });

const missingBuilder = async (): Promise<Missing[]> => {
  try {
    await checkGo();
    return [];
  } catch (error) {
    return [fact("go", error instanceof Error ? error.message : String(error))];
  }
};

/** Can this process make namespaces and cgroups? Tried, since rights depend on more than being root. */
const missingRights = async (): Promise<Missing[]> => {
  if (process.getuid?.() !== 0)
    return [fact("root", "pods need root: network, mounts and cgroups of their own")];
  const found: Missing[] = [];
  const isolate = [
    "--net",
    "--mount",
    "--pid",
    "--ipc",
    "--uts",
    "--cgroup",
    "--fork",
    "--mount-proc",
    "true",
  ];
  if (isThere("unshare"))
    await exec("unshare", isolate).catch((error: Error) =>
      found.push(fact("namespaces", `this machine lets even root make no namespaces: ${error.message}`)),
    );
  if (hierarchies().length === 0) found.push(fact("cgroups", "no cgroups are mounted on /sys/fs/cgroup"));
  for (const point of hierarchies()) {
    const probe = path.join(point, `fenceline-probe-${process.pid}`);
    try {
      mkdirSync(probe);
      rmdirSync(probe);
    } catch {
      found.push(fact("cgroups", `no cgroup can be made in ${point}`));
    }
  }
  return found;
};

/** Everything that this machine lacks for a level; empty when it can run it. */
export const missing = async (level: Level): Promise<Missing[]> => {
  if (process.platform !== "linux" || !existsSync("/proc/self/stat"))
    return [fact("linux", "the test cluster runs on Linux alone")];
  if (level === "model") return missingPrograms("model");
  if (level === "postgres") return [...missingPrograms("postgres"), ...missingServer()];
  const choice = chooseCluster(process.env).kind;
  const builds = choice === "build" || level === "nodes";
  return [
    ...missingPrograms("api"),
    // Of the resources that are kept there.
    ...missingServer(),
    ...(builds ? await missingBuilder() : []),
    ...(level === "nodes" ? [...missingPrograms("nodes"), ...(await missingRights())] : []),
  ];
};

/** One line for people. */
export const describeMissing = (found: readonly Missing[]): string => {
  const packages = [...new Set(found.flatMap((item) => item.packages))];
  const install = packages.length > 0 ? ` (on Debian: apt-get install ${packages.join(" ")})` : "";
  return `${found.map((item) => item.reason).join("; ")}${install}`;
};
