import { durable, pinned, takeGate } from "./words.ts";

/** Store PostgreSQL. Not a sequence of SQL: a value of `nextval` can come back after a crash before commit. */
export const createSequence = `
create function fenceline.sequence_at_home(s fenceline.sequence) returns boolean
language sql volatile ${pinned} as $fn$
  select (s.system, s.timeline, s.folder) = (h.system, h.timeline, h.folder) from fenceline.home() h
$fn$;

-- The block (base, ceiling]: fewer than count at the end of the range. No row: none; sequence_state says why.
create function fenceline.reserve(resource text, count bigint, at_least bigint, issuer text)
returns table (base bigint, ceiling bigint)
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
declare
  s fenceline.sequence;
begin
  if $2 is null or $2 < 0 or $3 is null or $3 < 0 then
    perform fenceline.malformed('reserve needs a count and a lowest token, both 0 or more');
  end if;
  ${durable}
  select * into s from fenceline.sequence q where q.resource = $1 for update;
  if not found or s.sealed or s.issuer is distinct from $4 or not fenceline.sequence_at_home(s) then
    return;
  end if;
  base := greatest(s.ceiling, $3);
  if $2 > 0 and base = 9223372036854775807 then
    return;
  end if;
  ceiling := case when base > 9223372036854775807 - $2 then 9223372036854775807 else base + $2 end;
  if ceiling > s.ceiling then
    update fenceline.sequence q set ceiling = reserve.ceiling where q.resource = $1;
  end if;
  return next;
end
$fn$;

create function fenceline.sequence_state(resource text)
returns table (base bigint, ceiling bigint, sealed boolean, issuer text, copied boolean)
language sql security definer ${pinned} as $fn$
  select s.base, s.ceiling, s.sealed, s.issuer, not fenceline.sequence_at_home(s)
  from fenceline.sequence s where s.resource = $1
$fn$;

-- Makes it, or opens a copy anew. One that is open, or that another cluster issued, stays as it is.
create function fenceline.sequence_open(resource text, at bigint, by text)
returns table (base bigint, ceiling bigint, sealed boolean, issuer text, copied boolean)
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_column
begin
  ${durable}
  insert into fenceline.sequence as s (resource, base, ceiling, issuer, system, timeline, folder)
    select $1, $2, $2, $3, h.system, h.timeline, h.folder from fenceline.home() h
  on conflict on constraint sequence_pkey do update
    set base = greatest(s.ceiling, excluded.base), ceiling = greatest(s.ceiling, excluded.ceiling),
      system = excluded.system, timeline = excluded.timeline, folder = excluded.folder
    where s.issuer = excluded.issuer and not fenceline.sequence_at_home(s);
  return query select * from fenceline.sequence_state($1);
end
$fn$;

-- Nothing is reserved any more: the tokens move to another store.
create function fenceline.sequence_seal(resource text, issuer text) returns void
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
begin
  ${durable}
  update fenceline.sequence s set sealed = true where s.resource = $1 and s.issuer = $2;
end
$fn$;

-- Gives guard and sequence of a resource to another cluster. What stands there stays, and belongs to no attempt any
-- more: the next token is above it. The cluster before is refused from here on.
create function fenceline.take_over(resource text, issuer text, reason text) returns void
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
declare
  m fenceline.mark;
  before text;
begin
  if coalesce($2, '') = '' or coalesce($3, '') = '' then
    perform fenceline.malformed('take_over needs an issuer and a reason');
  end if;
  ${durable}
  ${takeGate}
  select * into m from fenceline.mark k where k.resource = $1 for update;
  select coalesce(m.issuer, s.issuer) into before
    from (values (1)) x left join fenceline.sequence s on s.resource = $1;
  if m.id is null and before is null then
    perform fenceline.unknown($1, null);
  end if;
  perform fenceline.may_manage(m.id);
  update fenceline.mark k
    set issuer = $2, attempt = null, started = coalesce(k.started, h.started),
      timeline = coalesce(k.timeline, h.timeline), folder = coalesce(k.folder, h.folder)
    from fenceline.home() h where k.id = m.id;
  update fenceline.sequence s set issuer = $2 where s.resource = $1;
  insert into fenceline.takeover (resource, before, after, reason) values ($1, before, $2, $3);
end
$fn$`;
