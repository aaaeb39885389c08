import { keyOf } from "./words.ts";

export const createTables = `
create table fenceline.mark (
  resource text collate "C" primary key check (resource ~ '^[^/[:space:]]+/[^/[:space:]]+$' and length(resource) <= 317),
  id integer generated always as identity unique,
  granted bigint not null default 0 check (granted >= 0),
  attempt text,
  issuer text,
  mode text not null default 'Hold' check (mode in ('Hold', 'Once')),
  advance text not null default 'OnGrant' check (advance in ('OnGrant', 'OnFirstWrite')),
  -- Mode Once: the token that carried the one effect, and in which transaction.
  used bigint not null default 0 check (used <= granted),
  used_by xid8,
  secret bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
  -- Where the mark was last known to be right. Null without an issuer: then nobody could open it again.
  started timestamptz,
  timeline text,
  folder text,
  check (issuer is null or (started is not null and timeline is not null and folder is not null)),
  -- Entering raises nothing: one read under a shared lock decides.
  plain boolean not null generated always as (mode = 'Hold' and advance = 'OnGrant' and issuer is not null and granted > 0) stored,
  -- What every write needs, made once: the key of the claim, the token in it, and the settings that hold claim and note.
  key bytea not null generated always as (${keyOf("secret", "granted")}) stored,
  said text not null generated always as (':' || granted) stored,
  setting text not null generated always as ('fenceline.c' || id) stored,
  noted text not null generated always as ('fenceline.u' || id) stored
) with (fillfactor = 50);
comment on table fenceline.mark is 'One row per resource: the highest token granted, compared with every write.';

create table fenceline.used (
  id integer primary key references fenceline.mark (id) on delete cascade,
  used bigint not null default 0
) with (fillfactor = 50);
comment on table fenceline.used is
  'Mode Hold: the highest token that carried an effect. For people: apart from the mark, so that it makes nobody wait.';

create table fenceline.guarded (
  relid oid primary key,
  -- As it was called: a table that took its place has another oid.
  name text not null,
  id integer not null references fenceline.mark (id)
);
comment on table fenceline.guarded is 'The tables that are guarded, each for one resource.';

create table fenceline.sequence (
  resource text collate "C" primary key,
  base bigint not null check (base >= 0),
  ceiling bigint not null check (ceiling >= base),
  issuer text not null,
  sealed boolean not null default false,
  -- The database it was written in: a restored or promoted one may have forgotten tokens that were handed out.
  system text not null,
  timeline text not null,
  folder text not null
) with (fillfactor = 50);
comment on table fenceline.sequence is 'Store PostgreSQL: no token above the ceiling was ever handed out.';

create table fenceline.takeover (
  resource text not null,
  before text,
  after text not null,
  reason text not null,
  login text not null default session_user,
  at timestamptz not null default now()
);
comment on table fenceline.takeover is 'Who gave a resource to another cluster, and why.'`;
