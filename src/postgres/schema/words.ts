/** Words that stand in more than one statement of the schema. */

/** First half of the key of every gate, an advisory transaction lock; the second is `hashtext(resource)`. "FNCL". */
export const gateClass = 0x464e434c;

/** Every function is compiled with names of its own alone: apply workers run with an empty search_path. */
export const pinned = "set search_path = pg_catalog, pg_temp";

/** Takes a resource for alone, until the transaction ends: waits for all who entered, and keeps new ones waiting. */
export const takeGate = `perform pg_advisory_xact_lock(${gateClass}, hashtext($1));`;

/**
 * What is told to an issuer must survive a crash, whatever the role or the database is set to. Not a SET clause of the
 * function: that would end before the commit.
 */
export const durable = `if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;`;

/**
 * Is this the database whose marks these are? Start time tells copies and volume snapshots, timeline a promotion,
 * folder a TEMPLATE copy and a rename. Simple expressions: together less than 1 µs.
 */
export const atHome = (row: string): string =>
  `(pg_postmaster_start_time() = ${row}.started
    and substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) = ${row}.timeline
    and starts_with(pg_relation_filepath('fenceline.mark'), ${row}.folder))`;

/** What a claim for one token is proved with. */
export const keyOf = (secret: string, token: string): string => `sha256(${secret} || int8send(${token}))`;

/**
 * What \`enter\` leaves behind: proof that it was there, bound to this transaction and, by its key, to one token, and the
 * token for people to read. Bytes throughout: casts from and to text cost more than the digest.
 */
export const claimOf = (key: string, said: string): string =>
  `encode(sha256(${key} || xid8send(pg_current_xact_id())), 'hex') || ${said}`;
