import { triggerNames } from "./guard.ts";
import { pinned } from "./words.ts";

export const doorkeeperNames = ["fenceline_ddl", "fenceline_drop", "fenceline_rewrite"] as const;

const [onCommand, onDrop, onRewrite] = doorkeeperNames;
const { statement, apply, row } = triggerNames;

/** Body of the doorkeeper, which `findDoors` compares with what is installed. */
export const doorkeeperBody = `
declare
  what record;
  root oid;
begin
  if tg_event = 'table_rewrite' then
    -- 4: the values of a column are computed anew, by any expression.
    if pg_event_trigger_table_rewrite_reason() & 4 <> 0
      and fenceline.guarded_root(pg_event_trigger_table_rewrite_oid()) is not null then
      perform fenceline.keep(pg_event_trigger_table_rewrite_oid()::regclass::text, 'its rows would be rewritten');
    end if;
  elsif tg_event = 'sql_drop' then
    for what in select d.address_names as names, x.oid
      from pg_event_trigger_dropped_objects() d
        left join pg_namespace n on n.nspname = d.address_names[1]
        left join pg_class x on x.relnamespace = n.oid and x.relname = d.address_names[2]
      where d.object_type = 'trigger' and d.address_names[3] in ('${statement}', '${apply}', '${row}')
    loop
      -- What was unguarded first has no trigger of ours when it is dropped.
      if what.oid is null or fenceline.guarded_root(what.oid) is not null then
        perform fenceline.keep(format('%I.%I', what.names[1], what.names[2]), 'its guard would be gone');
      end if;
    end loop;
  else
    for what in select c.classid, c.objid, c.command_tag as tag,
        coalesce(t.tgrelid, r.ev_class, c.objid) as relid
      from pg_event_trigger_ddl_commands() c
        left join pg_trigger t on c.classid = 'pg_trigger'::regclass and t.oid = c.objid
        left join pg_rewrite r on c.classid = 'pg_rewrite'::regclass and r.oid = c.objid
      where c.classid in ('pg_class'::regclass, 'pg_trigger'::regclass, 'pg_rewrite'::regclass)
    loop
      root := fenceline.guarded_root(what.relid);
      continue when root is null;
      if what.classid = 'pg_rewrite'::regclass then
        perform fenceline.keep(what.relid::regclass::text, 'a rule would rewrite what is written');
      elsif exists (
        select from pg_trigger t join fenceline.guarded g on g.relid = root
        where t.tgrelid = what.relid and t.tgname in ('${statement}', '${apply}', '${row}')
          and (t.tgqual is not null or t.tgattr::text <> ''
            or t.tgfoid <> (case t.tgname when '${statement}' then 'fenceline.judge()' else 'fenceline.judge_row()' end)::regprocedure
            or not starts_with(encode(t.tgargs, 'escape'), 'fenceline.c' || g.id || '\\000')
            or t.tgtype <> case when t.tgname <> '${statement}' then 31
              when t.tgrelid <> root and exists (select from pg_class x where x.oid = root and x.relkind = 'p') then 32 else 60 end
            -- Between making a trigger and enabling it lies one command.
            or (what.tag = 'ALTER TABLE' and t.tgenabled <> case t.tgname when '${apply}' then 'R' else 'A' end))) then
        perform fenceline.keep(what.relid::regclass::text, 'its guard would be weaker');
      elsif exists (select from fenceline.guarded g where g.relid = root and g.name <> g.relid::regclass::text) then
        perform fenceline.keep((select g.name from fenceline.guarded g where g.relid = root), 'another table could take its name');
      elsif exists (
        select from pg_trigger t where t.tgname = '${statement}' and t.tgfoid = 'fenceline.judge()'::regprocedure
          and fenceline.guarded_root(t.tgrelid) is null) then
        perform fenceline.keep(root::regclass::text, 'a part of it would be detached');
      end if;
    end loop;
  end if;
end
`;

/**
 * Event triggers that keep the owners of guarded tables from opening them, also for a moment that nobody would see.
 * Only a superuser can make them; where another login installs, \`findDoors\` says what that leaves open. The function
 * belongs to the superuser, because whatever runs in an event trigger runs in the sessions of superusers too.
 */
export const createDoorkeeper = `
do $do$
begin
  if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
    return;
  end if;
  create or replace function fenceline.doorkeeper() returns event_trigger
  language plpgsql security definer ${pinned} as $fn$${doorkeeperBody}$fn$;
  revoke all on function fenceline.doorkeeper() from public;
  drop event trigger if exists ${onCommand};
  drop event trigger if exists ${onDrop};
  drop event trigger if exists ${onRewrite};
  create event trigger ${onCommand} on ddl_command_end execute function fenceline.doorkeeper();
  create event trigger ${onDrop} on sql_drop execute function fenceline.doorkeeper();
  create event trigger ${onRewrite} on table_rewrite execute function fenceline.doorkeeper();
  alter event trigger ${onCommand} enable always;
  alter event trigger ${onDrop} enable always;
  alter event trigger ${onRewrite} enable always;
end
$do$`;

export const dropDoorkeeper = doorkeeperNames.map((name) => `drop event trigger if exists ${name}`).join(";");

/** What the doorkeeper asks; part of the schema, so that the function itself stays the only thing of a superuser. */
export const createKeeping = `
-- The guarded table that a relation is, or is a part of.
create function fenceline.guarded_root(relation oid) returns oid
language sql stable security definer ${pinned} as $fn$
  with recursive up as (
    select $1 as oid
    union select i.inhparent from up join pg_inherits i on i.inhrelid = up.oid
  )
  select g.relid from up join fenceline.guarded g on g.relid = up.oid limit 1
$fn$;

create function fenceline.keep(relation text, reason text) returns void
language plpgsql ${pinned} as $fn$
begin
  raise exception using errcode = '42501', message = format('%s is guarded: %s', $1, $2),
    hint = format('In one transaction: select fenceline.unguard(%L), this command, and fenceline.guard again.', $1);
end
$fn$`;
