import type { Migration } from "../migrations.ts";

export interface OwnFunction {
  name: string;
  body: string;
  definer: boolean;
  /** The statement that puts it back. */
  source: string;
}

const definition =
  /create (?:or replace )?function fenceline\.(\w+)\(((?:(?!\$fn\$)[^])*)\$fn\$((?:(?!\$fn\$)[^])*)\$fn\$/g;

/** Our functions as the newest of the migrations leaves them. */
export const ownFunctions = (migrations: readonly Migration[]): OwnFunction[] => {
  const found = new Map<string, OwnFunction>();
  for (const { statements } of migrations)
    for (const [whole, name = "", head = "", body = ""] of statements.join(";\n").matchAll(definition))
      found.set(name, {
        name,
        body,
        definer: head.includes("security definer"),
        source: whole.replace(/^create (or replace )?function/, "create or replace function"),
      });
  return [...found.values()];
};
