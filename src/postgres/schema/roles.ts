/**
 * Least rights. Roles belong to the whole server, so another database may have made them already.
 *
 * | role | may |
 * | --- | --- |
 * | fenceline_owner | own everything; nobody logs in as it |
 * | fenceline_admin | guard and unguard tables that it owns |
 * | fenceline_issuer | advance, evict, reopen, reserve, mark, probe |
 * | fenceline_worker | enter |
 * | fenceline_reader | mark |
 */
export const roleNames = [
  "fenceline_owner",
  "fenceline_admin",
  "fenceline_issuer",
  "fenceline_worker",
  "fenceline_reader",
] as const;

export const createRoles = `
do $do$
declare name text;
begin
  foreach name in array array[${roleNames.map((name) => `'${name}'`).join(", ")}] loop
    if to_regrole(name) is null then
      begin
        execute format('create role %I nologin', name);
      exception when duplicate_object or unique_violation then null;
      end;
    end if;
  end loop;
  -- Who installs must be able to act as the owner, now and at the next version.
  if not pg_has_role(current_user, 'fenceline_owner', 'MEMBER') then
    execute format('grant fenceline_owner, fenceline_admin to %I', current_user);
  end if;
  -- Ending those who hold up an advance.
  if not pg_has_role('fenceline_owner', 'pg_signal_backend', 'MEMBER') then
    begin
      grant pg_signal_backend to fenceline_owner;
    exception when insufficient_privilege then
      raise notice 'fenceline.evict can end nobody until an administrator runs: grant pg_signal_backend to fenceline_owner';
    end;
  end if;
end
$do$`;
