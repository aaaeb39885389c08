/** Every way that leads a write to a guarded table: what a worker, an owner and an administrator can do. */

/** Names of one try. `other` is a table beside the guarded one. */
export interface Names {
  table: string;
  other: string;
  resource: string;
}

export interface WorkerWay {
  way: string;
  /** Instead of an ordinary table with the columns id, v, last_fencing_token and the rows 1 to 3. */
  shape?: (names: Names) => string;
  /** Prepared by an administrator before the guard is put on. */
  before?: (names: Names) => string;
  /** And after it. */
  after?: (names: Names) => string;
  /** What the worker runs, in one transaction. */
  write: (names: Names) => string;
  /** Runs as a superuser. */
  as?: "postgres";
  /** Also with rows that come in through COPY. */
  copy?: string;
  /** It changes nothing even when it is let through. */
  idle?: true;
}

const partitioned = ({ table }: Names) =>
  `create table ${table} (id int primary key, v text, last_fencing_token bigint) partition by range (id);
   create table ${table}_low partition of ${table} for values from (0) to (1000);
   create table ${table}_high partition of ${table} for values from (1000) to (2000) partition by range (id);
   create table ${table}_deep partition of ${table}_high for values from (1000) to (2000)`;

const inherited = ({ table }: Names) =>
  `create table ${table} (id int, v text, last_fencing_token bigint);
   create table ${table}_child (more text) inherits (${table})`;

const child = ({ table, other }: Names, rule: string) =>
  `create table ${other} (id int primary key);
   insert into ${other} values (1), (2), (3);
   alter table ${table} add foreign key (id) references ${other} ${rule};
   grant all on ${other} to worker`;

export const workerWays: readonly WorkerWay[] = [
  { way: "INSERT", write: ({ table }) => `insert into ${table} values (9, 'x')` },
  {
    way: "INSERT … SELECT of no row",
    write: ({ table }) => `insert into ${table} select 9 where false`,
    idle: true,
  },
  { way: "UPDATE", write: ({ table }) => `update ${table} set v = 'x'` },
  { way: "UPDATE of no row", write: ({ table }) => `update ${table} set v = 'x' where id = 99`, idle: true },
  { way: "DELETE", write: ({ table }) => `delete from ${table}` },
  {
    way: "INSERT … ON CONFLICT DO UPDATE",
    write: ({ table }) => `insert into ${table} values (1, 'x') on conflict (id) do update set v = 'x'`,
  },
  {
    way: "INSERT … ON CONFLICT DO NOTHING",
    write: ({ table }) => `insert into ${table} values (1, 'x') on conflict do nothing`,
    idle: true,
  },
  {
    way: "MERGE",
    write: ({ table }) =>
      `merge into ${table} t using (values (1), (9)) s (id) on t.id = s.id
       when matched then update set v = 'x' when not matched then insert values (s.id, 'x')`,
  },
  { way: "COPY FROM", write: ({ table }) => `copy ${table} (id, v) from stdin`, copy: "9\tx\n" },
  {
    way: "COPY FROM of no row",
    write: ({ table }) => `copy ${table} (id, v) from stdin`,
    copy: "",
    idle: true,
  },
  { way: "TRUNCATE", write: ({ table }) => `truncate ${table}` },
  {
    way: "TRUNCATE … CASCADE of another table",
    before: (names) => child(names, ""),
    write: ({ other }) => `truncate ${other} cascade`,
  },
  {
    way: "prepared statement",
    write: ({ table }) => `prepare p as update ${table} set v = 'x'; execute p; deallocate p`,
  },
  {
    way: "writable CTE",
    write: ({ table }) => `with w as (update ${table} set v = 'x' returning 1) select count(*) from w`,
  },
  {
    way: "cursor, WHERE CURRENT OF",
    write: ({ table }) =>
      `declare c cursor for select id from ${table} for update; fetch c; update ${table} set v = 'x' where current of c`,
  },
  { way: "DO block", write: ({ table }) => `do $$ begin update ${table} set v = 'x'; end $$` },
  {
    way: "function, SECURITY DEFINER",
    after: ({ table, other }) =>
      `create function ${other}() returns void language sql security definer as 'update ${table} set v = ''x'''`,
    write: ({ other }) => `select ${other}()`,
  },
  {
    way: "updatable view",
    after: ({ table, other }) =>
      `create view ${other} as select id, v from ${table}; grant all on ${other} to worker`,
    write: ({ other }) => `update ${other} set v = 'x'`,
  },
  {
    way: "view with an INSTEAD OF trigger",
    after: ({ table, other }) =>
      `create view ${other} as select count(*) as n from ${table}; grant all on ${other} to worker;
       create function ${other}_f() returns trigger language plpgsql security definer as
         $$ begin update ${table} set v = 'x'; return new; end $$;
       create trigger t instead of update on ${other} for each row execute function ${other}_f()`,
    write: ({ other }) => `update ${other} set n = 1`,
  },
  {
    way: "rule of another table",
    after: ({ table, other }) =>
      `create table ${other} (v text); grant all on ${other} to worker;
       create rule r as on insert to ${other} do instead update ${table} set v = new.v`,
    write: ({ other }) => `insert into ${other} values ('x')`,
  },
  {
    way: "trigger of another table",
    after: ({ table, other }) =>
      `create table ${other} (v text); grant all on ${other} to worker;
       create function ${other}_f() returns trigger language plpgsql security definer as
         $$ begin update ${table} set v = 'x'; return new; end $$;
       create trigger t after insert on ${other} for each row execute function ${other}_f()`,
    write: ({ other }) => `insert into ${other} values ('x')`,
  },
  {
    way: "constraint trigger at COMMIT",
    after: ({ table, other }) =>
      `create table ${other} (v text); grant all on ${other} to worker;
       create function ${other}_f() returns trigger language plpgsql security definer as
         $$ begin update ${table} set v = 'x'; return new; end $$;
       create constraint trigger t after insert on ${other} deferrable initially deferred
         for each row execute function ${other}_f()`,
    write: ({ other }) => `insert into ${other} values ('x')`,
  },
  {
    way: "foreign key, ON DELETE CASCADE",
    before: (names) => child(names, "on delete cascade"),
    write: ({ other }) => `delete from ${other} where id = 1`,
  },
  {
    way: "foreign key, ON DELETE CASCADE without a child",
    before: (names) => `${child(names, "on delete cascade")}; insert into ${names.other} values (50)`,
    write: ({ other }) => `delete from ${other} where id = 50`,
    idle: true,
  },
  {
    way: "foreign key, ON DELETE SET NULL",
    shape: ({ table }) => `create table ${table} (id int, v text, last_fencing_token bigint)`,
    before: (names) => child(names, "on delete set null"),
    write: ({ other }) => `delete from ${other} where id = 1`,
  },
  {
    way: "foreign key, ON UPDATE CASCADE",
    before: (names) => child(names, "on update cascade"),
    write: ({ other }) => `update ${other} set id = 77 where id = 1`,
  },
  { way: "partitioned table", shape: partitioned, write: ({ table }) => `update ${table} set v = 'x'` },
  {
    way: "partition, named directly: INSERT",
    shape: partitioned,
    write: ({ table }) => `insert into ${table}_low values (9, 'x')`,
  },
  {
    way: "partition, named directly: UPDATE",
    shape: partitioned,
    write: ({ table }) => `update ${table}_low set v = 'x'`,
  },
  {
    way: "partition, named directly: DELETE",
    shape: partitioned,
    write: ({ table }) => `delete from ${table}_low`,
  },
  {
    way: "partition of a partition, named directly",
    shape: partitioned,
    write: ({ table }) => `insert into ${table}_deep values (1009, 'x')`,
  },
  {
    way: "row that moves to another partition",
    shape: partitioned,
    write: ({ table }) => `update ${table} set id = 1500 where id = 1`,
  },
  {
    way: "TRUNCATE of one partition",
    shape: partitioned,
    write: ({ table }) => `truncate ${table}_low`,
  },
  {
    way: "INSERT into a partition that came after the guard",
    shape: partitioned,
    after: ({ table }) =>
      `create table ${table}_new partition of ${table} for values from (2000) to (3000); grant all on ${table}_new to worker`,
    write: ({ table }) => `insert into ${table}_new values (2001, 'x')`,
  },
  { way: "parent of an inheritance", shape: inherited, write: ({ table }) => `update ${table} set v = 'x'` },
  {
    way: "child of an inheritance, named directly",
    shape: inherited,
    write: ({ table }) => `insert into ${table}_child values (9, 'x')`,
  },
  {
    way: "PREPARE TRANSACTION",
    write: ({ table, other }) =>
      `update ${table} set v = 'x'; prepare transaction '${other}'; commit prepared '${other}'; begin`,
  },
  {
    way: "psql as a superuser",
    write: ({ table }) => `update ${table} set v = 'x'`,
    as: "postgres",
  },
  {
    way: "session_replication_role = replica",
    write: ({ table }) => `set local session_replication_role = replica; update ${table} set v = 'x'`,
    as: "postgres",
  },
  {
    way: "replica role, partition named directly",
    shape: partitioned,
    write: ({ table }) =>
      `set local session_replication_role = replica; insert into ${table}_low values (9, 'x')`,
    as: "postgres",
  },
];

export interface OwnerWay {
  way: string;
  who: "owner" | "administrator";
  shape?: (names: Names) => string;
  /** Run as the owner of the table, or as a superuser. */
  open: (names: Names) => string;
  /** Kinds that `findDoors` names then. Empty: nothing is left to be seen, and only the doorkeeper helps. */
  doors: readonly string[];
  /** Does the doorkeeper refuse it? */
  kept?: true;
}

export const ownerWays: readonly OwnerWay[] = [
  {
    way: "ALTER TABLE … DISABLE TRIGGER",
    who: "owner",
    open: ({ table }) => `alter table ${table} disable trigger fenceline_statement`,
    doors: ["trigger"],
    kept: true,
  },
  {
    way: "ALTER TABLE … ENABLE TRIGGER, no longer ALWAYS",
    who: "owner",
    open: ({ table }) => `alter table ${table} enable trigger user`,
    doors: ["trigger"],
    kept: true,
  },
  {
    way: "DISABLE TRIGGER, a write, ENABLE ALWAYS TRIGGER",
    who: "owner",
    open: ({ table }) =>
      `alter table ${table} disable trigger fenceline_statement; update ${table} set v = 'x';
       alter table ${table} enable always trigger fenceline_statement`,
    doors: [],
    kept: true,
  },
  {
    way: "DROP TRIGGER",
    who: "owner",
    open: ({ table }) => `drop trigger fenceline_statement on ${table}`,
    doors: ["trigger"],
    kept: true,
  },
  {
    way: "CREATE OR REPLACE TRIGGER of the same name",
    who: "owner",
    open: ({ table }) =>
      `create function nod() returns trigger language plpgsql as 'begin return null; end';
       create or replace trigger fenceline_statement after insert or update or delete or truncate on ${table}
         for each statement execute function nod()`,
    doors: ["trigger"],
    kept: true,
  },
  {
    way: "CREATE RULE … DO INSTEAD",
    who: "owner",
    open: ({ table }) => `create rule r as on update to ${table} do instead nothing`,
    doors: ["rule"],
    kept: true,
  },
  {
    way: "ALTER TABLE … TYPE … USING",
    who: "owner",
    open: ({ table }) => `alter table ${table} alter v type varchar(40) using 'x'`,
    doors: [],
    kept: true,
  },
  {
    way: "DROP TABLE, CREATE TABLE",
    who: "owner",
    open: ({ table }) => `drop table ${table}; create table ${table} (id int)`,
    doors: ["swapped"],
    kept: true,
  },
  {
    way: "another table takes the name",
    who: "owner",
    open: ({ table }) =>
      `create table ${table}_b (like ${table} including all);
       alter table ${table} rename to ${table.replace("public.", "")}_a;
       alter table ${table}_b rename to ${table.replace("public.", "")}`,
    doors: ["swapped"],
    kept: true,
  },
  {
    way: "new partition, TRUNCATE of it",
    who: "owner",
    shape: partitioned,
    open: ({ table }) =>
      `create table ${table}_new partition of ${table} for values from (2000) to (3000); truncate ${table}_new`,
    doors: ["trigger"],
  },
  {
    way: "ATTACH PARTITION of a filled table",
    who: "owner",
    shape: partitioned,
    open: ({ table }) =>
      `create table ${table}_new (like ${table}); insert into ${table}_new values (2001, 'x');
       alter table ${table} attach partition ${table}_new for values from (2000) to (3000)`,
    doors: ["trigger"],
  },
  {
    way: "DETACH PARTITION, and a write to it",
    who: "owner",
    shape: partitioned,
    open: ({ table }) => `alter table ${table} detach partition ${table}_low; delete from ${table}_low`,
    doors: [],
    kept: true,
  },
  {
    way: "new child of an inheritance",
    who: "owner",
    shape: inherited,
    open: ({ table }) =>
      `create table ${table}_new () inherits (${table}); insert into ${table}_new values (9, 'x')`,
    doors: ["trigger"],
  },
  {
    way: "a worker that owns the table",
    who: "administrator",
    open: ({ table }) => `alter table ${table} owner to worker`,
    doors: ["owner"],
  },
  {
    way: "TRIGGER right for a worker",
    who: "owner",
    open: ({ table }) => `grant trigger on ${table} to worker`,
    doors: ["owner"],
  },
  {
    way: "a worker that is a member of the owner",
    who: "administrator",
    open: () => "grant owner to worker",
    doors: ["owner"],
  },
  {
    way: "a worker that is a superuser",
    who: "administrator",
    open: () => "alter role worker superuser",
    doors: ["role"],
  },
  {
    way: "a worker that may give itself roles",
    who: "administrator",
    open: () => "alter role worker createrole",
    doors: ["role"],
  },
  {
    way: "a worker that may advance",
    who: "administrator",
    open: () => "grant fenceline_issuer to worker",
    doors: ["role"],
  },
  {
    way: "a worker that may execute advance",
    who: "administrator",
    open: () => "grant execute on function fenceline.advance(text, bigint, text, text) to public",
    doors: ["role"],
  },
  {
    way: "a worker with pg_write_all_data",
    who: "administrator",
    open: () => "grant pg_write_all_data to worker",
    doors: ["role"],
  },
  {
    way: "a worker that may change the marks",
    who: "administrator",
    open: () => "grant update on fenceline.mark to worker",
    doors: ["role"],
  },
  {
    way: "a worker that may read what claims are made of",
    who: "administrator",
    open: () => "grant select on fenceline.mark to worker",
    doors: ["role"],
  },
  {
    way: "another function in place of the judge",
    who: "administrator",
    open: () =>
      "create or replace function fenceline.judge() returns trigger language plpgsql as 'begin return null; end'",
    doors: ["function"],
  },
];
