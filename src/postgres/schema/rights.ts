/** Who may call what. Trigger functions need no right of the writer. */
export const grantRights = `
do $do$
declare routine regprocedure;
begin
  for routine in select p.oid from pg_proc p where p.pronamespace = 'fenceline'::regnamespace loop
    execute format('revoke all on function %s from public', routine);
  end loop;
end
$do$;
revoke all on schema fenceline from public;
revoke all on all tables in schema fenceline from public;
grant usage on schema fenceline to fenceline_admin, fenceline_issuer, fenceline_worker, fenceline_reader;
grant execute on function fenceline.enter(text, bigint) to fenceline_worker;
grant execute on function fenceline.mark(text), fenceline.refusals(text) to fenceline_reader, fenceline_issuer, fenceline_admin;
grant execute on function
  fenceline.advance(text, bigint, text, text),
  fenceline.reopen(text, bigint, text, text, text),
  fenceline.evict(integer),
  fenceline.reserve(text, bigint, bigint, text),
  fenceline.sequence_state(text),
  fenceline.sequence_open(text, bigint, text),
  fenceline.sequence_seal(text, text)
  to fenceline_issuer;
grant execute on function fenceline.probe(text) to fenceline_issuer, fenceline_admin;
grant execute on function
  fenceline.guard(regclass, text), fenceline.unguard(regclass), fenceline.configure(text, text, text),
  fenceline.take_over(text, text, text),
  fenceline.register(regclass, text), fenceline.unregister(regclass), fenceline.members(oid),
  fenceline.probe_column(oid), fenceline.judge()
  to fenceline_admin;
-- Whoever makes a partition makes its clones of the row trigger.
grant execute on function fenceline.judge_row() to public;
grant select on fenceline.guarded, fenceline.takeover to fenceline_admin, fenceline_issuer, fenceline_reader;
grant select (resource, id, granted, issuer, mode, advance) on fenceline.mark
  to fenceline_admin, fenceline_issuer, fenceline_reader`;
