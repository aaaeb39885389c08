import { claimOf, pinned } from "./words.ts";

/**
 * The trigger is the judge. It takes the row FOR SHARE again and compares again: a worker can save its claim, roll back
 * to a savepoint, which gives the row lock back, wait for the advance and set the claim by hand. [R]
 *
 * `judge` runs once, AFTER the STATEMENT, so that `UPDATE … WHERE … AND (SELECT fenceline.enter(…))` passes. `judge_row`
 * runs BEFORE each ROW where no statement trigger fires: in logical apply, and in partitions written directly.
 */
const judgement = `
  select * into m from fenceline.mark k where k.id = tg_argv[0]::integer for share;
  claim := current_setting('fenceline.c' || tg_argv[0], true);
  if claim = ${claimOf("m", "m.granted")}
    and (m.mode = 'Hold' or (m.used = m.granted and m.used_by = pg_current_xact_id())) then`;

const sentence = `
  end if;
  perform fenceline.sentence(m, claim, tg_argv[1]);`;

export const createJudge = `
-- Says why a write is refused. A claim that proves itself for another token is stale; anything else is no claim.
create function fenceline.sentence(m fenceline.mark, claim text, resource text) returns void
language plpgsql ${pinned} as $fn$
declare
  offered text := substring(claim from '^[0-9]+:([0-9]{1,19}):[0-9a-f]{64}$');
begin
  if m.id is null then
    perform fenceline.unknown(resource, offered);
  end if;
  if offered is null or claim is distinct from ${claimOf("m", "offered")} then
    perform fenceline.refuse('FNC02', m, null);
  end if;
  perform fenceline.refuse(
    case when offered::numeric < m.granted then 'FNC01' when offered::numeric > m.granted then 'FNC04' else 'FNC08' end,
    m, offered);
end
$fn$;

-- Mode Hold: which token carried an effect, for people. One session notes it once, and waits for nobody.
create function fenceline.note(id integer, token bigint) returns void
language plpgsql ${pinned} as $fn$
begin
  update fenceline.used u set used = $2
    where u.id = (select w.id from fenceline.used w where w.id = $1 and w.used < $2 for update skip locked);
  perform set_config('fenceline.u' || $1, $2::text, false);
exception when serialization_failure then
  -- Another session noted it after this one's snapshot.
  null;
end
$fn$;

create function fenceline.judge() returns trigger
language plpgsql security definer ${pinned} as $fn$
declare
  m fenceline.mark;
  claim text;
begin${judgement}
    if m.mode = 'Hold' and current_setting('fenceline.u' || tg_argv[0], true) is distinct from m.granted::text then
      perform fenceline.note(m.id, m.granted);
    end if;
    return null;${sentence}
  return null;
end
$fn$;

create function fenceline.judge_row() returns trigger
language plpgsql security definer ${pinned} as $fn$
declare
  m fenceline.mark;
  claim text;
begin${judgement}
    if tg_op = 'DELETE' then
      return old;
    end if;
    return new;${sentence}
  return null;
end
$fn$`;
