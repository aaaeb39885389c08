import { atHome, pinned } from "./words.ts";

/** Which database this is, and since when it runs. Two answers are equal only where nothing can have been forgotten. */
export const createIdentity = `
create function fenceline.home(out system text, out timeline text, out folder text, out started timestamptz)
language sql volatile ${pinned} as $fn$
  select (select system_identifier::text from pg_control_system()),
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    -- Of a file of this very database: base/<oid of the database>/, and another one in every copy.
    regexp_replace(pg_relation_filepath('fenceline.mark'), '[^/]*$', ''),
    pg_postmaster_start_time()
$fn$;

create function fenceline.identity() returns text
language sql volatile ${pinned} as $fn$
  select h.system || '.' || h.timeline || '.' || (select d.oid from pg_database d where d.datname = current_database()) || '.' || extract(epoch from h.started)
  from fenceline.home() h
$fn$;

-- Null while open. Without an issuer a resource is never closed: nobody could open it.
create function fenceline.closing(m fenceline.mark) returns text
language sql volatile ${pinned} as $fn$
  select case when m.issuer is not null and not ${atHome("m")} then fenceline.identity() end
$fn$`;
