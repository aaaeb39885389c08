import { makeMemoryStore, type MemoryRows } from "../../src/store/memory.ts";
import { storeContract } from "./store.ts";

storeContract("memory", () => {
  const rows: MemoryRows = new Map();
  return {
    issuer: "this-cluster",
    store: (issuer = "this-cluster") => makeMemoryStore(issuer, rows),
    async seal(resource) {
      const row = rows.get(resource);
      if (row !== undefined) rows.set(resource, { ...row, sealed: true });
    },
    async remove(resource) {
      rows.delete(resource);
    },
  };
});
