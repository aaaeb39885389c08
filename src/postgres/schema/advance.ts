import { atHome, durable, gateClass, pinned, takeGate } from "./words.ts";

const backstop = `
  -- Whoever waits here is helped by evict; this ends what a client forgot.
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '10s', true);
  end if;`;

const checkIssuer = `
  if not found then
    perform fenceline.unknown($1, $2::text);
  end if;
  if m.issuer is distinct from issuer and m.issuer is not null then
    perform fenceline.raise('FNC06', 'issuer_mismatch',
      json_build_object('resource', $1, 'offered', $2::text, 'accepted', m.granted::text, 'issuer', m.issuer),
      'Another cluster issues the tokens of this resource: use another resource name, or take it over by hand.');
  end if;`;

/** What the issuer does: raise the mark, open it after a restart, look at it, end those who hold it up. */
export const createAdvance = `
-- Strict: only above the mark, or exactly the attempt that stands there. True where it raised. Never opens, never lowers.
create function fenceline.advance(resource text, token bigint, attempt text, issuer text) returns boolean
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
declare
  m fenceline.mark;
begin
  if $2 is null or $2 < 1 or coalesce($3, '') = '' or coalesce($4, '') = '' then
    perform fenceline.malformed('advance needs a token, an attempt and an issuer');
  end if;
  ${durable}${backstop}
  ${takeGate}
  select * into m from fenceline.mark k where k.resource = $1 for update;${checkIssuer}
  if m.issuer is not null and not ${atHome("m")} then
    perform fenceline.raise('FNC07', 'boundary_closed',
      json_build_object('resource', $1, 'offered', $2::text, 'accepted', m.granted::text, 'closing', fenceline.identity()),
      'The database was restarted, restored or replaced: fenceline.reopen opens it again.');
  end if;
  if m.issuer is not null and m.granted = $2 and m.attempt = $3 then
    return false;
  end if;
  if $2 <= m.granted then
    perform fenceline.raise('FNC01', 'stale_fencing_token',
      json_build_object('resource', $1, 'offered', $2::text, 'accepted', m.granted::text),
      'The mark is above, or at this token for another attempt: read the Lease again.');
  end if;
  update fenceline.mark k
    set granted = $2, attempt = $3, issuer = $4,
      started = h.started, timeline = h.timeline, folder = h.folder
    from fenceline.home() h where k.id = m.id;
  return true;
end
$fn$;

-- Opens what is closed by exactly this closing id, at the higher of mark and token. Null for a closing id: nobody issued
-- here yet. True where it opened.
create function fenceline.reopen(resource text, token bigint, attempt text, closing text, issuer text) returns boolean
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
declare
  m fenceline.mark;
begin
  if $2 is null or $2 < 0 or coalesce($5, '') = '' then
    perform fenceline.malformed('reopen needs a token, or 0, and an issuer');
  end if;
  ${durable}${backstop}
  ${takeGate}
  select * into m from fenceline.mark k where k.resource = $1 for update;${checkIssuer}
  if (m.issuer is null and $4 is not null)
    or (m.issuer is not null and fenceline.closing(m) is distinct from $4)
    or (m.issuer is not null and $4 is null) then
    return false;
  end if;
  update fenceline.mark k
    set granted = greatest(k.granted, $2), attempt = case when $2 > k.granted then $3 else k.attempt end,
      issuer = $5, started = h.started, timeline = h.timeline, folder = h.folder
    from fenceline.home() h where k.id = m.id;
  return true;
end
$fn$;

create function fenceline.mark(resource text, out granted bigint, out used bigint, out refused bigint, out closing text)
language plpgsql security definer ${pinned} as $fn$
#variable_conflict use_variable
declare
  m fenceline.mark;
begin
  select * into m from fenceline.mark k where k.resource = $1;
  if not found then
    perform fenceline.unknown($1, null);
  end if;
  granted := m.granted;
  used := greatest(m.used, (select u.used from fenceline.used u where u.id = m.id));
  refused := coalesce(pg_sequence_last_value(to_regclass('fenceline.refused_' || m.id)), 0);
  closing := fenceline.closing(m);
end
$fn$;

-- Of what was refused: old tokens, and none.
create function fenceline.refusals(resource text, out stale bigint, out missing bigint)
language sql stable security definer ${pinned} as $fn$
  select coalesce(pg_sequence_last_value(to_regclass('fenceline.stale_' || k.id)), 0),
    coalesce(pg_sequence_last_value(to_regclass('fenceline.missing_' || k.id)), 0)
  from fenceline.mark k where k.resource = $1
$fn$;

-- Ends those who block a waiting advance of the caller's own login, nobody else. One row for each: pid 0 is a prepared
-- transaction. Not ended are those, and sessions of superusers.
create function fenceline.evict(pid integer) returns table (blocker integer, prepared text, ended boolean)
language plpgsql security definer ${pinned} as $fn$
declare
  gate record;
begin
  -- The session waits in our advance if it wants a gate for alone.
  select l.objid, l.database into gate from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.pid = $1 and a.usename = session_user and l.locktype = 'advisory' and l.classid = ${gateClass}
      and l.objsubid = 2 and l.mode = 'ExclusiveLock'
    limit 1;
  if not found then
    return;
  end if;
  for blocker in select distinct b from unnest(pg_blocking_pids($1)) b loop
    prepared := null;
    ended := false;
    if blocker = 0 then
      -- Its locks name no session, and its transaction only by the virtual one that they share.
      select string_agg(distinct x.gid, ', ') into prepared from pg_locks l
        join pg_locks t on t.pid is null and t.locktype = 'transactionid' and t.virtualtransaction = l.virtualtransaction
        join pg_prepared_xacts x on x.transaction = t.transactionid
        where l.pid is null and x.database = current_database()
          and ((l.locktype = 'advisory' and l.classid = ${gateClass} and l.objid = gate.objid)
            or l.relation = 'fenceline.mark'::regclass);
    elsif exists (
      -- Another advance of the same issuer waits or works: it ends by itself.
      select from pg_locks l join pg_stat_activity a on a.pid = l.pid
        where l.pid = blocker and a.usename = session_user and l.locktype = 'advisory' and l.classid = ${gateClass}
          and l.objid = gate.objid and l.objsubid = 2 and l.mode = 'ExclusiveLock') then
      continue;
    else
      begin
        ended := pg_terminate_backend(blocker);
      exception when insufficient_privilege then null;
      end;
    end if;
    return next;
  end loop;
end
$fn$`;
