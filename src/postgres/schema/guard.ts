import { claimOf, gateClass, keyOf, pinned, takeGate } from "./words.ts";

/** Names of our triggers on a guarded table; no two of ours on one table are called alike. */
export const triggerNames = {
  /** Once per statement, on every table that a person can name. */
  statement: "fenceline_statement",
  /** Per row in logical apply, where no statement trigger fires. */
  apply: "fenceline_apply",
  /** Per row, on a partitioned table: its clones guard partitions that are written directly. */
  row: "fenceline_row",
} as const;

const { statement, apply, row } = triggerNames;

/**
 * `guard` runs with the rights of its caller, who must own the table; what it registers goes through functions of the
 * owner of the schema, which check the same.
 */
export const createGuard = `
-- What is part of a table: its partitions or inheritance children, itself first.
create function fenceline.members(relation oid, out relid oid, out kind "char", out root boolean) returns setof record
language sql stable ${pinned} as $fn$
  with recursive tree as (
    select $1 as relid, 0 as depth
    union all select i.inhrelid, t.depth + 1 from tree t join pg_inherits i on i.inhparent = t.relid
  )
  select c.oid, c.relkind, t.depth = 0 from tree t join pg_class c on c.oid = t.relid order by t.depth, c.oid
$fn$;

create function fenceline.may_manage(resource_id integer) returns void
language plpgsql ${pinned} as $fn$
declare
  other text;
begin
  select g.name into other from fenceline.guarded g join pg_class c on c.oid = g.relid
    where g.id = $1 and not pg_has_role(session_user, c.relowner, 'MEMBER') limit 1;
  if found and not pg_has_role(session_user, 'fenceline_owner', 'MEMBER') then
    raise exception using errcode = '42501', message = format('%s is guarded for this resource and belongs to another role', other),
      hint = 'Ask the owner of every table of the resource, or a member of fenceline_owner.';
  end if;
end
$fn$;

create function fenceline.register(relation regclass, resource text, out setting text)
language plpgsql security definer ${pinned} as $fn$
declare
  found_id integer;
  c pg_class;
  held text;
begin
  if $2 is null or $2 !~ '^[^/[:space:]]+/[^/[:space:]]+$' or length($2) > 317 then
    perform fenceline.malformed('a resource is written namespace/name');
  end if;
  select * into c from pg_class where oid = $1;
  if c.relkind not in ('r', 'p') or c.relpersistence = 't' or c.relispartition then
    raise exception using errcode = '42809', message = format('%s cannot be guarded', $1),
      hint = 'Guard an ordinary table, or the root of a partitioned one.';
  end if;
  if not pg_has_role(session_user, c.relowner, 'MEMBER') then
    raise exception using errcode = '42501', message = format('%s belongs to another role', $1),
      hint = 'Run this as the owner of the table.';
  end if;
  ${takeGate.replace("$1", "$2")}
  insert into fenceline.mark (resource) values ($2) on conflict on constraint mark_pkey do nothing;
  select id into found_id from fenceline.mark k where k.resource = $2;
  perform fenceline.may_manage(found_id);
  insert into fenceline.used (id) values (found_id) on conflict do nothing;
  execute format('create sequence if not exists fenceline.refused_%s', found_id);
  execute format('create sequence if not exists fenceline.stale_%s', found_id);
  execute format('create sequence if not exists fenceline.missing_%s', found_id);
  select k.resource into held from fenceline.guarded g join fenceline.mark k on k.id = g.id
    where g.relid = $1 and g.id <> found_id;
  if found then
    raise exception using errcode = '55000', message = format('%s is guarded for %s already', $1, held),
      hint = format('One table has one resource: select fenceline.unguard(%L) first.', $1);
  end if;
  -- A table whose name this one took keeps its guard under the name that it has now, or is gone.
  update fenceline.guarded g set name = g.relid::regclass::text where g.name = $1::text and g.relid <> $1
    and exists (select from pg_trigger t where t.tgrelid = g.relid and t.tgname = '${statement}');
  delete from fenceline.guarded g where g.name = $1::text and g.relid <> $1;
  insert into fenceline.guarded (relid, name, id) values ($1, $1::text, found_id)
    on conflict (relid) do update set name = excluded.name;
  setting := (select k.setting from fenceline.mark k where k.id = found_id);
end
$fn$;

create function fenceline.unregister(relation regclass) returns void
language plpgsql security definer ${pinned} as $fn$
begin
  perform fenceline.may_manage(g.id) from fenceline.guarded g where g.relid = $1;
  delete from fenceline.guarded g where g.relid = $1;
end
$fn$;

-- Guards a table with all its partitions and children; again, to mend what was changed or to take in new ones.
create function fenceline.guard(relation regclass, resource text) returns void
language plpgsql ${pinned} as $fn$
declare
  setting text := fenceline.register($1, $2);
  partitioned boolean := (select c.relkind = 'p' from pg_class c where c.oid = $1);
  member record;
  events text;
begin
  execute format('lock table %s in share row exclusive mode', $1);
  for member in select * from fenceline.members($1) x where x.kind not in ('r', 'p') loop
    raise exception using errcode = '42809',
      message = format('%s is a part of %s and cannot be guarded', member.relid::regclass, $1),
      hint = 'Detach it first: a foreign table is written elsewhere.';
  end loop;
  for member in select * from fenceline.members($1) loop
    -- Statement triggers are never cloned. Rows of a partition have clones of the root's row trigger.
    events := case when partitioned and not member.root then 'truncate' else 'insert or update or delete or truncate' end;
    execute format(
      'create or replace trigger ${statement} after %s on %s for each statement execute function fenceline.judge(%L, %L)',
      events, member.relid::regclass, setting, $2);
    if partitioned and member.root then
      execute format(
        'create or replace trigger ${row} before insert or update or delete on %s for each row execute function fenceline.judge_row(%L, %L)',
        $1, setting, $2);
      execute format('alter table %s enable always trigger ${statement}, enable always trigger ${row}', $1);
    elsif partitioned then
      execute format('alter table only %s enable always trigger ${statement}', member.relid::regclass);
    else
      execute format(
        'create or replace trigger ${apply} before insert or update or delete on %s for each row execute function fenceline.judge_row(%L, %L)',
        member.relid::regclass, setting, $2);
      execute format('alter table only %s enable always trigger ${statement}, enable replica trigger ${apply}', member.relid::regclass);
    end if;
  end loop;
  -- For the probe, which updates no row.
  execute format('grant update (%I) on %s to fenceline_owner', fenceline.probe_column($1), $1);
  if not has_schema_privilege('fenceline_owner', (select c.relnamespace from pg_class c where c.oid = $1), 'USAGE') then
    begin
      execute (select format('grant usage on schema %I to fenceline_owner', n.nspname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = $1);
    exception when insufficient_privilege then
      raise notice 'the owner of its schema has to run: grant usage on the schema to fenceline_owner';
    end;
  end if;
end
$fn$;

-- Takes the triggers away. The mark stays: tokens never go back. A dropped table is named by its oid.
create function fenceline.unguard(relation regclass) returns void
language plpgsql ${pinned} as $fn$
declare
  member record;
begin
  perform fenceline.unregister($1);
  for member in select * from fenceline.members($1) loop
    execute format('drop trigger if exists ${statement} on %s', member.relid::regclass);
    execute format('drop trigger if exists ${apply} on %s', member.relid::regclass);
    if member.root then
      execute format('drop trigger if exists ${row} on %s', $1);
      execute format('revoke update (%I) on %s from fenceline_owner', fenceline.probe_column($1), $1);
    end if;
  end loop;
end
$fn$;

create function fenceline.configure(resource text, mode text, advance text) returns void
language plpgsql security definer ${pinned} as $fn$
declare
  m fenceline.mark;
begin
  ${takeGate}
  select * into m from fenceline.mark k where k.resource = $1 for update;
  if not found then
    perform fenceline.unknown($1, null);
  end if;
  perform fenceline.may_manage(m.id);
  -- What Hold noted as used stays used.
  update fenceline.mark k set mode = $2, advance = $3,
      used = least(k.granted, greatest(k.used, (select u.used from fenceline.used u where u.id = k.id)))
    where k.id = m.id and (k.mode, k.advance) is distinct from ($2, $3);
end
$fn$;

create function fenceline.probe_column(relation oid) returns name
language sql stable ${pinned} as $fn$
  select a.attname from pg_attribute a where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
  order by a.attnum limit 1
$fn$;

-- Proves that each table refuses: without a token, and a well-proved token below the mark; and that it is the token that
-- decides. SQLSTATE of each, 00000 for accepted. Updates no row, and what it did is rolled back.
create function fenceline.probe(resource text)
returns table (relation text, missing text, stale text, current text)
language plpgsql security definer ${pinned} as $fn$
declare
  m fenceline.mark;
  g record;
  claims text[];
  results text[];
  claim text;
begin
  perform pg_advisory_xact_lock_shared(${gateClass}, hashtext($1));
  select * into m from fenceline.mark k where k.resource = $1 for share;
  if not found then
    perform fenceline.unknown($1, null);
  end if;
  claims := array['', ${claimOf(keyOf("m.secret", "m.granted - 1"), "':' || (m.granted - 1)")}, ${claimOf("m.key", "m.said")}];
  for g in select * from fenceline.guarded x where x.id = m.id order by x.name loop
    results := '{}';
    foreach claim in array claims loop
      begin
        perform set_config(m.setting, claim, true), set_config('fenceline.probe', 'on', true);
        if m.mode = 'Once' then
          update fenceline.mark k set used = k.granted, used_by = pg_current_xact_id() where k.id = m.id;
        end if;
        execute format('update %s set %I = default where false', g.relid::regclass, fenceline.probe_column(g.relid));
        raise exception using errcode = 'FNC00';
      exception when others then
        results := results || case sqlstate when 'FNC00' then '00000' else sqlstate end;
      end;
    end loop;
    relation := g.name;
    missing := results[1];
    stale := results[2];
    current := results[3];
    return next;
  end loop;
end
$fn$`;
