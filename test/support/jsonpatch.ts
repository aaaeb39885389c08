import type { Operation } from "../../src/webhook/inject.ts";

interface Found {
  parent: unknown[] | Record<string, unknown>;
  key: string;
}

const find = (root: unknown, path: string): Found => {
  const keys = path.slice(1).split("/");
  const key = keys.pop() ?? "";
  let parent = root as Found["parent"];
  for (const each of keys) {
    const next: unknown = Array.isArray(parent) ? parent[Number(each)] : parent[each];
    if (typeof next !== "object" || next === null) throw new Error(`${path}: there is no ${each}`);
    parent = next as Found["parent"];
  }
  return { parent, key };
};

const applyOne = (root: unknown, operation: Operation): void => {
  const { parent, key } = find(root, operation.path);
  if (!Array.isArray(parent)) {
    if (operation.op !== "add" && !(key in parent)) throw new Error(`${operation.path}: nothing there`);
    if (operation.op === "remove") delete parent[key];
    else parent[key] = structuredClone(operation.value);
    return;
  }
  const index = key === "-" ? parent.length : Number(key);
  if (index > parent.length || (operation.op !== "add" && index === parent.length))
    throw new Error(`${operation.path}: nothing there`);
  if (operation.op === "remove") parent.splice(index, 1);
  else parent.splice(index, operation.op === "add" ? 0 : 1, structuredClone(operation.value));
};

/** The value after a JSON patch, as RFC 6902 has it; the value itself stays. Throws where the patch does not fit. */
export const patched = <T>(value: T, patch: readonly Operation[]): T => {
  const root = structuredClone(value);
  for (const operation of patch) applyOne(root, operation);
  return root;
};
