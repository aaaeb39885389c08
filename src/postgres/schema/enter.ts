import { atHome, claimOf, gateClass, pinned } from "./words.ts";

/**
 * A worker declares its token for this transaction.
 *
 * 1. The gate, shared: whoever wants to advance waits in one fair queue and then finds nobody on the row. [R]
 * 2. The row, FOR SHARE: above READ COMMITTED a plain read would still see the mark of an older snapshot. [R]
 * 3. Compare. 4. Leave a claim, which the trigger judges again under the lock.
 *
 * Nothing is ever upgraded from a shared lock: two sharers would wait for each other. What raises the row updates it
 * first, and shares it where that changed nothing.
 */
export const createEnter = `
create function fenceline.enter(resource text, token bigint) returns boolean
language plpgsql security definer ${pinned} as $fn$
declare
  m fenceline.mark;
  claim text;
begin
  if pg_advisory_xact_lock_shared(${gateClass}, hashtext($1)) is null then
    perform fenceline.unknown($1, $2::text);
  end if;
  select k.granted, k.key, k.said, k.setting, k.started, k.timeline, k.folder
    into m.granted, m.key, m.said, m.setting, m.started, m.timeline, m.folder
    from fenceline.mark k where k.resource = $1 and k.plain for share;
  if m.granted = $2 and ${atHome("m")} then
    claim := set_config(m.setting, ${claimOf("m.key", "m.said")}, true);
    return true;
  end if;
  return fenceline.enter_slowly($1, $2);
end
$fn$;

-- All that is not accepted at first sight: modes that raise the row, and every refusal.
create function fenceline.enter_slowly(resource text, token bigint) returns boolean
language plpgsql ${pinned} as $fn$
declare
  m fenceline.mark;
  accepted boolean;
begin
  if $2 < 1 then
    perform fenceline.malformed('token ' || $2);
  end if;
  update fenceline.mark k
    set granted = greatest(k.granted, $2),
      attempt = case when $2 > k.granted then null else k.attempt end,
      used = case k.mode when 'Once' then $2 else k.used end,
      used_by = case k.mode when 'Once' then pg_current_xact_id() else k.used_by end
    where k.resource = $1 and not k.plain
      and (k.issuer is null or ${atHome("k")})
      and $2 >= k.granted
      and case k.mode when 'Once' then $2 > k.used else $2 > k.granted end
      and ($2 = k.granted or k.advance = 'OnFirstWrite' or k.issuer is null)
    returning k.* into m;
  accepted := found;
  if not accepted then
    select * into m from fenceline.mark k where k.resource = $1 for share;
    if not found then
      perform fenceline.unknown($1, $2::text);
    end if;
    if m.issuer is not null and not ${atHome("m")} then
      perform fenceline.refuse('FNC07', m, $2::text);
    end if;
    case
      when $2 is null then perform fenceline.refuse('FNC02', m, null);
      when $2 < m.granted then perform fenceline.refuse('FNC01', m, $2::text);
      when $2 > m.granted then perform fenceline.refuse('FNC04', m, $2::text);
      when m.mode = 'Once' and m.used_by is distinct from pg_current_xact_id() then
        perform fenceline.refuse('FNC08', m, $2::text);
      else null;
    end case;
  end if;
  perform set_config(m.setting, ${claimOf("m.key", "m.said")}, true);
  return true;
end
$fn$`;
