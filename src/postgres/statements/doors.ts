/**
 * Every way past the guard that this database leaves open: read from its catalogs, not from functions that somebody may
 * have changed. Any role of ours but the worker may ask.
 */
import { z } from "zod";
import type { Database } from "../database.ts";
import { migrations } from "../migrations.ts";
import { triggerNames } from "../schema/guard.ts";
import { doorkeeperBody, doorkeeperNames } from "../schema/doorkeeper.ts";
import { ownFunctions } from "../schema/functions.ts";
import { sql, type Statement } from "../sql.ts";
import type { TableName } from "./guard.ts";

const kinds = [
  "unguarded",
  "swapped",
  "trigger",
  "foreign",
  "rule",
  "function",
  "owner",
  "role",
  "ddl",
  "probe",
  "issuer",
  "evict",
  "prepared",
  "storage",
  "subscription",
] as const;
export type DoorKind = (typeof kinds)[number];

export interface Door {
  kind: DoorKind;
  /** What it is, for people. */
  door: string;
  /** `open`: a write without the right token can get through. `warning`: refused or bounded less well than it could be. */
  state: "open" | "warning";
  /** The statement that closes it, or, in brackets, what has to be done. */
  closeWith: string;
}

const row = z.object({
  kind: z.enum(kinds),
  door: z.string(),
  state: z.enum(["open", "warning"]),
  closeWith: z.string(),
});

const { statement, apply, row: rowTrigger } = triggerNames;

const wantedTables = (tables: readonly TableName[]): string =>
  tables.map(({ schema, name }) => sql`(${schema}, ${name})`).join(", ");

const functionsKnown = (): string =>
  ownFunctions(migrations)
    .map(({ name, body, definer }) => sql`(${name}, md5(${body}), `.concat(`${definer})`))
    .join(", ");

/** Bits of `pg_trigger.tgtype`: row 1, before 2, insert 4, delete 8, update 16, truncate 32. */
const everything = 60;
const truncate = 32;
const beforeRow = 31;

const common = (resource: string, tables: readonly TableName[]) => `
with recursive
k as (select id, resource, issuer from fenceline.mark where ${sql`resource = ${resource}`}),
own as (
  -- Where a name leads today is asked of the catalog: to_regclass fails where this role may not use the schema.
  select g.relid, g.name, k.id, k.resource, c.relowner, c.relkind = 'p' as partitioned, n.oid as schema_id,
    n.nspname, n.nspowner, c.oid is not null as there,
    (select x.oid from pg_class x join pg_namespace y on y.oid = x.relnamespace
      where (y.nspname, x.relname) = ((parse_ident(g.name))[1], (parse_ident(g.name))[2])) as named
  from fenceline.guarded g join k on k.id = g.id
    left join pg_class c on c.oid = g.relid left join pg_namespace n on n.oid = c.relnamespace
),
member as (
  select relid as oid, relid as root, 0 as depth from own where there
  union all select i.inhrelid, m.root, m.depth + 1 from member m join pg_inherits i on i.inhparent = m.oid
),
part as (
  select m.oid, m.root, m.depth, c.relkind, c.relname, n.nspname, o.name, o.id, o.resource, o.partitioned,
    format('%I.%I', n.nspname, c.relname) as called
  from member m join own o on o.relid = m.root join pg_class c on c.oid = m.oid join pg_namespace n on n.oid = c.relnamespace
),
due as (
  select p.*, e.tgname, e.tgtype, e.enabled, e.function
  from part p cross join lateral (
    select '${statement}' as tgname, case when p.partitioned and p.depth > 0 then ${truncate} else ${everything} end as tgtype,
      'A' as enabled, 'fenceline.judge()' as function
    union all select '${rowTrigger}', ${beforeRow}, 'A', 'fenceline.judge_row()' where p.partitioned
    union all select '${apply}', ${beforeRow}, 'R', 'fenceline.judge_row()' where not p.partitioned
  ) e where p.relkind in ('r', 'p')
),
worker as (
  select r.oid, r.rolname, r.rolsuper, r.rolcreaterole, format('%I', r.rolname) as called
  from pg_roles r where r.rolcanlogin and r.oid in (
    with recursive granted as (
      select x.oid from pg_roles x where x.rolname = 'fenceline_worker'
      union select m.member from pg_auth_members m join granted on granted.oid = m.roleid
    ) select oid from granted)
),
wanted (nspname, relname) as (${tables.length === 0 ? "select null::text, null::text where false" : `values ${wantedTables(tables)}`})
`;

const tableDoors = `
select 'unguarded' as kind, format('%I.%I is not guarded for %s', w.nspname, w.relname, k.resource) as door, 'open' as state,
  format('select fenceline.guard(%L, %L)', format('%I.%I', w.nspname, w.relname), k.resource) as "closeWith"
  from wanted w cross join k
  where not exists (select from own o where o.there and o.named = o.relid
    and (parse_ident(o.name))[1] = w.nspname and (parse_ident(o.name))[2] = w.relname)
union all
select 'swapped', format(case when o.named is not null then 'another table took the name of %s, which is guarded'
    when o.there then '%s, which is guarded, has another name now' else '%s, which was guarded, was dropped' end, o.name), 'open',
  case when o.named is not null then format('select fenceline.guard(%L, %L)', o.name, o.resource)
    when o.there then format('select fenceline.guard(%s::regclass, %L)', o.relid, o.resource)
    else format('select fenceline.unguard(%s::regclass)', o.relid) end
  from own o where o.named is distinct from o.relid
union all
select 'trigger', format('%s: trigger %s is %s', d.called, d.tgname, case
    when t.oid is null then 'missing'
    when t.tgenabled = 'D' then 'disabled'
    when t.tgenabled <> d.enabled then 'not enabled ' || case d.enabled when 'A' then 'always' else 'for logical apply' end
    else 'not ours' end), 'open',
  format('select fenceline.guard(%L, %L)', d.name, d.resource)
  from due d left join pg_trigger t on t.tgrelid = d.oid and t.tgname = d.tgname
  where (t.tgtype, t.tgenabled, t.tgfoid, t.tgargs, t.tgattr::text) is distinct from
      (d.tgtype, d.enabled::"char", to_regprocedure(d.function)::oid,
        convert_to('fenceline.c' || d.id, getdatabaseencoding()) || '\\x00' || convert_to(d.resource, getdatabaseencoding()) || '\\x00', '')
    or t.tgqual is not null
union all
select 'foreign', format('%s, a part of %s, is a foreign table: what it holds is written elsewhere', p.called, p.name), 'open',
  format('alter table %s detach partition %s', p.name, p.called)
  from part p where p.relkind = 'f'
union all
select 'rule', format('rule %s on %s rewrites what is written', r.rulename, p.called), 'open',
  format('drop rule %I on %s', r.rulename, p.called)
  from part p join pg_rewrite r on r.ev_class = p.oid where r.ev_type <> '1'
union all
select 'subscription', format('a subscription applies rows to %s: each is refused, and it tries for ever', p.called), 'warning',
  format('alter subscription %I disable', s.subname)
  from part p join pg_subscription_rel sr on sr.srrelid = p.oid join pg_subscription s on s.oid = sr.srsubid
union all
select 'probe', format('the probe may not try %s', o.name), 'warning', case
    when not has_schema_privilege('fenceline_owner', o.schema_id, 'USAGE')
      then format('grant usage on schema %I to fenceline_owner', o.nspname)
    else format('select fenceline.guard(%L, %L)', o.name, o.resource) end
  from own o where o.there and not (has_schema_privilege('fenceline_owner', o.schema_id, 'USAGE')
    and has_any_column_privilege('fenceline_owner', o.relid, 'UPDATE'))
union all
select 'issuer', format('no controller has issued for %s: a token dies with the first write above it, and a restore is not noticed', k.resource),
  'warning', '(declare a FencedResource with this database)'
  from k where k.issuer is null`;

const roleDoors = `
select 'role', format('worker %s is a superuser: nothing holds it', w.called), 'open', format('alter role %s nosuperuser', w.called)
  from worker w where w.rolsuper
union all
select 'owner', format('worker %s can act as the owner of %s', w.called, o.name), 'open', case
    when o.relowner = w.oid then format('alter table %s owner to <a role that does not log in>', o.name)
    else format('revoke %I from %s', r.rolname, w.called) end
  from worker w cross join own o join pg_roles r on r.oid = o.relowner
  where not w.rolsuper and o.there and pg_has_role(w.oid, o.relowner, 'MEMBER')
union all
select 'owner', format('worker %s can act as the owner of schema %s, and drop %s', w.called, o.nspname, o.name), 'open',
  format('alter schema %I owner to <a role that does not log in>', o.nspname)
  from worker w cross join own o
  where not w.rolsuper and o.there and pg_has_role(w.oid, o.nspowner, 'MEMBER') and not pg_has_role(w.oid, o.relowner, 'MEMBER')
union all
select 'owner', format('worker %s may put triggers on %s', w.called, o.name), 'open', format('revoke trigger on %s from %s', o.name, w.called)
  from worker w cross join own o
  where not w.rolsuper and o.there and has_table_privilege(w.oid, o.relid, 'TRIGGER') and not pg_has_role(w.oid, o.relowner, 'MEMBER')
union all
select 'role', format('worker %s can act as %s', w.called, r.rolname), 'open', format('revoke %I from %s', r.rolname, w.called)
  from worker w join pg_roles r on pg_has_role(w.oid, r.oid, 'MEMBER')
  where not w.rolsuper and r.rolname in ('fenceline_owner', 'fenceline_admin', 'fenceline_issuer', 'pg_read_all_data',
    'pg_write_all_data', 'pg_write_server_files', 'pg_execute_server_program')
union all
select 'role', format('worker %s may give itself other roles', w.called), 'open', format('alter role %s nocreaterole', w.called)
  from worker w where not w.rolsuper and w.rolcreaterole
union all
select 'role', format('worker %s may run fenceline.%s', w.called, p.proname), 'open',
  format('revoke execute on function %s from public, %s', p.oid::regprocedure, w.called)
  from worker w join pg_proc p on p.pronamespace = 'fenceline'::regnamespace
  where not w.rolsuper and p.proname in ('advance', 'reopen', 'guard', 'unguard', 'configure', 'register', 'unregister', 'take_over')
    and has_function_privilege(w.oid, p.oid, 'EXECUTE')
    and not exists (select from pg_roles r where r.rolname in ('fenceline_owner', 'fenceline_admin', 'fenceline_issuer')
      and pg_has_role(w.oid, r.oid, 'MEMBER'))
union all
select 'role', format('worker %s may touch the marks', w.called), 'open', format('revoke all on fenceline.mark, fenceline.guarded from public, %s', w.called)
  from worker w where not w.rolsuper and (has_table_privilege(w.oid, 'fenceline.mark', 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
      or has_table_privilege(w.oid, 'fenceline.guarded', 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
      or has_any_column_privilege(w.oid, 'fenceline.mark', 'SELECT'))
    and not exists (select from pg_roles r where r.rolname in ('fenceline_owner', 'pg_read_all_data', 'pg_write_all_data')
      and pg_has_role(w.oid, r.oid, 'MEMBER'))`;

const serverDoors = () => `
select 'function', format('function fenceline.%s is not the one that was installed', f.name), 'open', f.name
  from (values ${functionsKnown()}) f (name, digest, definer)
    left join pg_proc p on p.pronamespace = 'fenceline'::regnamespace and p.proname = f.name
  where (md5(p.prosrc), p.prosecdef, p.proowner, p.proconfig) is distinct from
    (f.digest, f.definer, 'fenceline_owner'::regrole::oid, array['search_path=pg_catalog, pg_temp'])
union all
select 'ddl', 'the owners of guarded tables can switch a guard off for a moment, or rewrite rows', 'warning',
  '(run fenceline guard install as a superuser)'
  where (select count(*) from pg_event_trigger e join pg_proc p on p.oid = e.evtfoid join pg_roles r on r.oid = p.proowner
    where e.evtname in (${doorkeeperNames.map((name) => `'${name}'`).join(", ")}) and e.evtenabled = 'A'
      and p.pronamespace = 'fenceline'::regnamespace and p.proname = 'doorkeeper' and p.prosecdef
      and r.rolsuper and md5(p.prosrc) = ${sql`md5(${doorkeeperBody})`}) < ${doorkeeperNames.length}
union all
select 'evict', 'whoever holds up an advance cannot be ended', 'warning', 'grant pg_signal_backend to fenceline_owner'
  where not pg_has_role('fenceline_owner', 'pg_signal_backend', 'USAGE')
union all
select 'prepared', 'a prepared transaction can hold up an advance without a bound', 'warning', 'alter system set max_prepared_transactions = 0'
  where current_setting('max_prepared_transactions')::integer > 0
union all
select 'storage', name || ' is off: after a crash of the machine the marks may be damaged', 'warning', format('alter system set %I = on', name)
  from unnest(array['fsync', 'full_page_writes']) name where current_setting(name) = 'off'`;

/** Doors of one resource; `tables` are those that must be guarded, as far as somebody declared them. */
export const doors = (resource: string, tables: readonly TableName[] = []): Statement<Door> => ({
  text: `${common(resource, tables)} select kind, door, state, "closeWith" from (${tableDoors}
    union all ${roleDoors} union all ${serverDoors()}) found
    order by state, array_position(array[${kinds.map((kind) => `'${kind}'`).join(", ")}], kind), door`,
  row,
});

/** Throws {@link import("../errors.ts").DatabaseError}. Empty where nothing is known to be open. */
export const findDoors = async (
  database: Database,
  resource: string,
  tables: readonly TableName[] = [],
): Promise<Door[]> => {
  const sources = new Map(ownFunctions(migrations).map(({ name, source }) => [name, source]));
  return (await database.run(doors(resource, tables))).map((door) =>
    door.kind === "function" ? { ...door, closeWith: sources.get(door.closeWith) ?? "" } : door,
  );
};
