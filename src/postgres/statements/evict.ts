import { z } from "zod";
import { gateClass } from "../schema/words.ts";
import { sql, type Statement } from "../sql.ts";

/** `pid` 0: a prepared transaction, named by `prepared`. */
export interface Blocker {
  pid: number;
  prepared: string | null;
  ended: boolean;
}

/** Ends those who hold up this login's waiting advance of a resource. */
export const evict = (resource: string): Statement<Blocker> => ({
  text: sql`select e.blocker as pid, e.prepared, e.ended from pg_catalog.pg_locks l, fenceline.evict(l.pid) e
    where l.locktype = 'advisory' and l.classid = ${gateClass} and l.objsubid = 2 and l.mode = 'ExclusiveLock'
      and l.objid = (pg_catalog.hashtext(${resource})::bigint & 4294967295)::oid
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())`,
  row: z.object({ pid: z.int(), prepared: z.string().nullable(), ended: z.boolean() }),
});
