-- All times are milliseconds since 1970 (UTC): to_timestamp(received / 1000.0) shows one as a date.
-- Columns with COLLATE "C" are ordered by octets, as the gateway compares them.

CREATE TABLE journal_head (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    head bigint NOT NULL DEFAULT 0,
    received bigint,
    seeds bigint NOT NULL DEFAULT 0,
    timeline text NOT NULL DEFAULT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    origin text NOT NULL DEFAULT ''
) WITH (fillfactor = 10);
COMMENT ON TABLE journal_head IS 'One row. Each batch locks it first, so batches commit in the order of their numbers.';
COMMENT ON COLUMN journal_head.identity IS 'Identifier of the journal. A restore or a failover gives a new one.';
COMMENT ON COLUMN journal_head.head IS 'Number of the newest change; 0 if there has been none.';
COMMENT ON COLUMN journal_head.received IS 'Time of receipt of the newest change.';
COMMENT ON COLUMN journal_head.seeds IS 'Number of the newest row ever written to seeds.';
COMMENT ON COLUMN journal_head.timeline IS 'Timeline of the server that wrote last. Another one means that a standby was promoted.';
COMMENT ON COLUMN journal_head.origin IS 'Identifiers of the database cluster and of this table. Others mean that a dump was restored.';
INSERT INTO journal_head DEFAULT VALUES;
UPDATE journal_head SET origin = (SELECT system_identifier FROM pg_control_system()) || '/' || tableoid;

CREATE TABLE writers (
    node uuid PRIMARY KEY,
    transaction uuid NOT NULL,
    written timestamptz NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE writers IS 'Last transaction of each open store, by which it finds out whether a commit succeeded after its connection was lost.';

CREATE TABLE restores (
    head bigint PRIMARY KEY,
    floor bigint NOT NULL
);
COMMENT ON TABLE restores IS 'Ranges of numbers that a restore or a failover has skipped: after head, up to floor.';

CREATE TABLE changes (
    seq bigint PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    received bigint NOT NULL,
    checksum bigint NOT NULL,
    json text NOT NULL,
    visibility text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
COMMENT ON TABLE changes IS 'The journal: one row per change, never updated. Retention deletes the oldest.';
COMMENT ON COLUMN changes.checksum IS 'CRC-32 of the number (8 octets, big-endian), json and visibility.';
COMMENT ON COLUMN changes.visibility IS 'JSON: effect of the change for the public, if json does not contain it.';

CREATE TABLE event_keys (
    key uuid PRIMARY KEY,
    seq bigint NOT NULL,
    received bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX event_keys_by_seq ON event_keys (seq);
COMMENT ON TABLE event_keys IS 'Events of the deduplication window, each with its first change. They outlast the changes.';
COMMENT ON COLUMN event_keys.key IS 'First 16 octets of a SHA-256 digest of the event.';
COMMENT ON COLUMN event_keys.received IS 'Time of receipt of the change.';

CREATE TABLE unchanged (
    key uuid PRIMARY KEY,
    number bigint NOT NULL UNIQUE,
    received bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE unchanged IS 'Events of the deduplication window without effect, from sources whose states may recur.';

CREATE TABLE objects (
    object bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uri text COLLATE "C" NOT NULL UNIQUE,
    items bigint,
    parent text, parent_at bigint, parent_confirmed bigint,
    types text NOT NULL, types_at bigint, types_confirmed bigint,
    purged_at bigint, purged_confirmed bigint
) WITH (fillfactor = 80);
COMMENT ON TABLE objects IS 'The registry: last known state of each object. *_at is the time of the event that set a fact, *_confirmed that of the latest event that confirmed it.';
COMMENT ON COLUMN objects.items IS 'Number of rows in items; null if nobody has counted them yet.';
COMMENT ON COLUMN objects.types IS 'JSON: list of URIs.';

CREATE TABLE items (
    object bigint NOT NULL,
    uri text COLLATE "C" NOT NULL,
    existence boolean NOT NULL, existence_at bigint, existence_confirmed bigint,
    content text, content_at bigint, content_confirmed bigint,
    state text, state_at bigint, state_confirmed bigint,
    initial_state text, initial_state_at bigint, initial_state_confirmed bigint,
    unannounced boolean NOT NULL,
    PRIMARY KEY (object, uri)
) WITH (fillfactor = 80);
COMMENT ON TABLE items IS 'The registry: last known state of each item of an object.';
COMMENT ON COLUMN items.content IS 'JSON: location of the content.';
COMMENT ON COLUMN items.initial_state IS 'State since the creation of the item, if no source reported one.';
COMMENT ON COLUMN items.unannounced IS 'Whether the state comes from a crawl, and no change has reported it.';

CREATE TABLE seeds (
    number bigint PRIMARY KEY,
    seq bigint NOT NULL,
    object text NOT NULL,
    delta text NOT NULL
);
COMMENT ON TABLE seeds IS 'Facts from crawls that no change contains, each ordered after the change seq and before the next one.';
COMMENT ON COLUMN seeds.delta IS 'JSON: new facts about the object and its items.';

CREATE TABLE crawls (
    source text COLLATE "C" PRIMARY KEY,
    id uuid NOT NULL,
    parts bigint NOT NULL,
    position text NOT NULL,
    objects bigint NOT NULL,
    started bigint NOT NULL,
    updated bigint NOT NULL,
    finished boolean NOT NULL
);
COMMENT ON TABLE crawls IS 'Progress of the newest crawl of each source.';

CREATE TABLE incomplete_changes (
    seq bigint PRIMARY KEY,
    source text COLLATE "C" NOT NULL,
    missing text NOT NULL,
    json text NOT NULL
);
CREATE INDEX incomplete_changes_by_source ON incomplete_changes (source, seq);
COMMENT ON TABLE incomplete_changes IS 'Changes whose repository must be asked again, with a copy of each change.';

CREATE TABLE quarantine (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received bigint NOT NULL,
    source text NOT NULL,
    content_type text,
    headers text NOT NULL,
    location text NOT NULL,
    reason text NOT NULL,
    size bigint NOT NULL,
    body bytea NOT NULL
);
COMMENT ON TABLE quarantine IS 'Messages that no dialect could read.';
COMMENT ON COLUMN quarantine.location IS 'Location of the error in the message.';

CREATE TABLE quarantine_size (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    messages bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE quarantine_size IS 'One row: number and size of the messages in the quarantine, because counting them would read the whole table.';
INSERT INTO quarantine_size DEFAULT VALUES;

CREATE TABLE subscriptions (
    name text COLLATE "C" PRIMARY KEY,
    made_by text NOT NULL,
    definition text NOT NULL,
    cursor bigint NOT NULL,
    paused boolean NOT NULL,
    ended text
) WITH (fillfactor = 50);
COMMENT ON TABLE subscriptions IS 'Subscriptions with their cursors. A definition may contain a secret.';
COMMENT ON COLUMN subscriptions.cursor IS 'Number of the last change that is delivered or skipped.';
COMMENT ON COLUMN subscriptions.ended IS 'Reason why the subscription stopped by itself.';

CREATE TABLE dead_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    refused bigint NOT NULL,
    reason text NOT NULL,
    attempts bigint NOT NULL,
    replay boolean NOT NULL,
    json text NOT NULL
);
CREATE INDEX dead_letters_by_subscription ON dead_letters (subscription, id);
COMMENT ON TABLE dead_letters IS 'Changes that a receiver refused for good, as they were sent.';
COMMENT ON COLUMN dead_letters.replay IS 'Whether another attempt is requested.';

CREATE TABLE probes (
    node uuid PRIMARY KEY,
    value bytea NOT NULL
);
ALTER TABLE probes ALTER COLUMN value SET STORAGE EXTERNAL;
COMMENT ON TABLE probes IS 'Empty. A node writes a row and removes it again to check whether the database can be written.';
