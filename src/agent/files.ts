/** Files that are replaced as a whole: whoever reads one finds the old content or the new, never a part. */
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";

/** `mode`: of the file. */
export const replaceFile = async (file: string, text: string, mode: number): Promise<void> => {
  const draft = path.join(path.dirname(file), `.${path.basename(file)}.new`);
  await writeFile(draft, text, { mode });
  await rename(draft, file);
};

/** What an app reads of one resource. `token`: while `held` or `uncertain`. */
export interface Shown {
  state: string;
  token: string | undefined;
  /** The content of `holding.json`. */
  holding: string;
}

export interface AppFiles {
  /** Puts down what changed, so that a reader who finds `held` finds the token too. */
  show(shown: Shown): Promise<void>;
}

/** `folder` is made where it is missing. Everybody in the pod may read. */
export const makeAppFiles = (folder: string): AppFiles => {
  const file = (name: string) => path.join(folder, name);
  let last: { state: string; token: string | undefined } | undefined;
  return {
    async show({ state, token, holding }) {
      if (last === undefined) await mkdir(folder, { recursive: true, mode: 0o755 });
      const before = last;
      last = { state: "", token: "" };
      // An agent before this one may have left anything.
      if (before === undefined || before.token !== token)
        await (token === undefined
          ? rm(file("token"), { force: true })
          : replaceFile(file("token"), token, 0o644));
      if (before?.state !== state) await replaceFile(file("state"), state, 0o644);
      await replaceFile(file("holding.json"), holding, 0o644);
      last = { state, token };
    },
  };
};
