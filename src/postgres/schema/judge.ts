import { claimOf, keyOf, pinned } from "./words.ts";

/**
 * The trigger is the judge. It takes the row FOR SHARE again and compares again: a worker can save its claim, roll back
 * to a savepoint, which gives the row lock back, wait for the advance and set the claim by hand. [R]
 *
 * `judge` runs once, AFTER the STATEMENT, so that `UPDATE … WHERE … AND (SELECT fenceline.enter(…))` passes. `judge_row`
 * runs BEFORE each ROW where no statement trigger fires: in logical apply, and in partitions written directly.
 *
 * Its arguments are the setting that holds the claim, and the resource. Each expression costs anew in every transaction,
 * so what can be known before is stored in the row.
 */
const judgement = `
  select k.key, k.said, k.noted, k.mode = 'Hold' or (k.used = k.granted and k.used_by = pg_current_xact_id())
    into own_key, own_said, own_noted, fit
    from fenceline.mark k where k.resource = tg_argv[1] for share;
  if fit and current_setting(tg_argv[0], true) = ${claimOf("own_key", "own_said")} then`;

const sentence = `
  end if;
  perform fenceline.sentence(tg_argv[1], current_setting(tg_argv[0], true));`;

const own = `
  own_key bytea;
  own_said text;
  own_noted text;
  fit boolean;`;

export const createJudge = `
-- Says why a write is refused. A claim that proves itself for another token is stale; anything else is no claim.
create function fenceline.sentence(resource text, claim text) returns void
language plpgsql ${pinned} as $fn$
declare
  m fenceline.mark;
  offered text := substring(claim from '^[0-9a-f]{64}:([0-9]{1,19})$');
begin
  select * into m from fenceline.mark k where k.resource = $1 for share;
  if not found then
    perform fenceline.unknown($1, offered);
  end if;
  if offered is null or offered::numeric > 9223372036854775807
    or $2 <> ${claimOf(keyOf("m.secret", "offered::bigint"), "':' || offered")} then
    perform fenceline.refuse('FNC02', m, null);
  end if;
  perform fenceline.refuse(
    case when offered::bigint < m.granted then 'FNC01' when offered::bigint > m.granted then 'FNC04' else 'FNC08' end,
    m, offered);
end
$fn$;

-- Which token carried an effect, for people. One session notes it once, and waits for nobody.
create function fenceline.note(resource text) returns void
language plpgsql ${pinned} as $fn$
declare
  m fenceline.mark;
begin
  select * into m from fenceline.mark k where k.resource = $1;
  update fenceline.used u set used = m.granted
    where u.id = (select w.id from fenceline.used w where w.id = m.id and w.used < m.granted for update skip locked);
  perform set_config(m.noted, m.said, false);
exception when serialization_failure then
  -- Another session noted it after this one's snapshot.
  null;
end
$fn$;

create function fenceline.judge() returns trigger
language plpgsql security definer ${pinned} as $fn$
declare${own}
begin${judgement}
    if current_setting(own_noted, true) is distinct from own_said then
      perform fenceline.note(tg_argv[1]);
    end if;
    return null;${sentence}
  return null;
end
$fn$;

create function fenceline.judge_row() returns trigger
language plpgsql security definer ${pinned} as $fn$
declare${own}
begin${judgement}
    if tg_op = 'DELETE' then
      return old;
    end if;
    return new;${sentence}
  return null;
end
$fn$`;
