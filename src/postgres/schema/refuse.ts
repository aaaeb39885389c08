import { pinned } from "./words.ts";

/**
 * Every refusal has one form: MESSAGE is the code, DETAIL one JSON object, HINT what to do. It is counted by a sequence,
 * because that survives the abort: all of them, and those of stale and of missing tokens apart. The issuer's own probe is
 * not counted.
 */
export const createRefuse = `
create function fenceline.raise(code text, message text, detail json, hint text) returns void
language plpgsql ${pinned} as $fn$
begin
  raise exception using errcode = code, message = message, detail = detail::text, hint = hint;
end
$fn$;

create function fenceline.refuse(code text, m fenceline.mark, offered text) returns void
language plpgsql ${pinned} as $fn$
declare
  probing boolean := current_setting('fenceline.probe', true) = 'on'
    and pg_has_role(session_user, 'fenceline_issuer', 'MEMBER');
  word text := case code
    when 'FNC01' then 'stale_fencing_token'
    when 'FNC02' then 'missing_fencing_token'
    when 'FNC04' then 'token_never_issued'
    when 'FNC07' then 'boundary_closed'
    when 'FNC08' then 'token_already_used'
  end;
  advice text := case code
    when 'FNC01' then 'A higher token was granted: stop this work. It is refused for good, do not try it again.'
    when 'FNC02' then format('Call fenceline.enter(%L, <token>) in this transaction before writing.', m.resource)
    when 'FNC04' then 'The token is above every one that was granted: take it from the holder''s own grant.'
    when 'FNC07' then 'The database was restarted, restored or replaced: wait until the controller opens it again.'
    when 'FNC08' then 'This token has carried its one effect, maybe by a commit whose answer was lost.'
  end;
begin
  if probing is not true then
    perform nextval('fenceline.refused_' || m.id);
    if code in ('FNC01', 'FNC02') then
      perform nextval('fenceline.' || case code when 'FNC01' then 'stale_' else 'missing_' end || m.id);
    end if;
  end if;
  raise exception using errcode = code, message = word, hint = advice,
    detail = json_build_object('resource', m.resource, 'offered', offered, 'accepted', m.granted::text)::text;
end
$fn$;

create function fenceline.unknown(resource text, offered text) returns void
language sql ${pinned} as $fn$
  select fenceline.raise('FNC03', 'unknown_resource',
    json_build_object('resource', $1, 'offered', $2, 'accepted', null),
    'No table is guarded under this name: check its spelling, namespace/name, or run fenceline guard install.')
$fn$;

create function fenceline.malformed(what text) returns void
language plpgsql ${pinned} as $fn$
begin
  raise exception using errcode = '22023', message = 'invalid_request', detail = what,
    hint = 'Tokens are 1 to 9223372036854775807.';
end
$fn$`;
