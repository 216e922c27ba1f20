-- Times are milliseconds since 1970 (UTC): datetime(received / 1000, 'unixepoch') shows one as a date.

-- Facts about the journal: identity, newest_seed, token_key.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Ranges of numbers that a restore from a backup has skipped: after head, up to floor.
CREATE TABLE restores (
    head INTEGER PRIMARY KEY,
    floor INTEGER NOT NULL,
    identities TEXT -- UUIDs of the journals whose numbers end with head, separated by spaces; NULL if none is known
);

-- The journal: one row per change, never updated. Retention deletes the oldest.
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    received INTEGER NOT NULL,
    checksum INTEGER NOT NULL, -- CRC-32 of the number (8 octets, big-endian), json and visibility
    json TEXT NOT NULL,
    visibility TEXT, -- JSON: effect of the change for the public, if json does not contain it
    key BLOB -- first 16 octets of a SHA-256 digest of the event; null if it is in a run alone
);
CREATE UNIQUE INDEX changes_by_id ON changes (id);

-- Runs of event keys: those of the changes from first to last, of which the newest was received at received.
CREATE TABLE key_runs (
    run INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    received INTEGER NOT NULL,
    keys INTEGER NOT NULL
);

-- The keys of a run in their order, in 64 parts by their first six bits. A key has 16 octets and the number of its change
-- 8, the highest first.
CREATE TABLE key_parts (
    part INTEGER PRIMARY KEY, -- 64 times the number of the run, plus the six bits
    keys BLOB NOT NULL
);

-- Events of the deduplication window without effect, from sources whose states may recur.
CREATE TABLE unchanged (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    received INTEGER NOT NULL
);

-- The registry: last known state of each object. *_at is the time of the event that set a fact, *_confirmed that of the
-- latest event that confirmed it.
CREATE TABLE objects (
    object INTEGER PRIMARY KEY,
    uri TEXT NOT NULL UNIQUE,
    parent TEXT, parent_at INTEGER, parent_confirmed INTEGER,
    types TEXT NOT NULL, types_at INTEGER, types_confirmed INTEGER, -- types is JSON: list of URIs
    purged_at INTEGER, purged_confirmed INTEGER,
    source TEXT, -- source whose change or crawl was the first about the object; null if no change about it is left
    -- Microseconds since 1970 at which the newest facts were accepted, in the order of the batches, and those that the
    -- public sees; null if it has never seen the object.
    accepted INTEGER NOT NULL,
    published INTEGER
);
CREATE INDEX objects_by_acceptance ON objects (accepted);
CREATE INDEX objects_by_publication ON objects (published) WHERE published IS NOT NULL;

-- The registry: last known state of each item of an object.
CREATE TABLE items (
    object INTEGER NOT NULL REFERENCES objects (object),
    uri TEXT NOT NULL,
    existence INTEGER NOT NULL, existence_at INTEGER, existence_confirmed INTEGER,
    content TEXT, content_at INTEGER, content_confirmed INTEGER, -- content is JSON
    state TEXT, state_at INTEGER, state_confirmed INTEGER,
    -- State since the creation of the item, if no source reported one.
    initial_state TEXT, initial_state_at INTEGER, initial_state_confirmed INTEGER,
    unannounced INTEGER NOT NULL DEFAULT 0, -- whether the state comes from a crawl, and no change has reported it
    -- Announced dates that have not come, the one that has set the state, and the one that the source has denied.
    visible_from INTEGER, visible_until INTEGER, came INTEGER, denied INTEGER,
    PRIMARY KEY (object, uri)
) WITHOUT ROWID;
CREATE INDEX items_by_date ON items (coalesce(visible_from, visible_until))
    WHERE coalesce(visible_from, visible_until) IS NOT NULL;
CREATE INDEX items_denied ON items (denied) WHERE denied IS NOT NULL;

-- Facts from crawls that no change contains, each ordered after the change seq and before the next one.
CREATE TABLE seeds (
    number INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    object TEXT NOT NULL,
    delta TEXT NOT NULL -- JSON: new facts about the object and its items
);

-- Progress of the newest crawl of each source.
CREATE TABLE crawls (
    source TEXT PRIMARY KEY,
    id TEXT NOT NULL, -- UUID
    parts INTEGER NOT NULL,
    position TEXT NOT NULL,
    objects INTEGER NOT NULL,
    started INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    finished INTEGER NOT NULL
) WITHOUT ROWID;

-- Times of the events of each source that made changes. Weeks are numbered from 1970.
CREATE TABLE sources (
    source TEXT PRIMARY KEY,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    week INTEGER NOT NULL, -- week of last_event
    longest_pause INTEGER NOT NULL, -- longest time between two events that ended in that week, in milliseconds
    earlier_pause INTEGER NOT NULL -- the same of the week before
) WITHOUT ROWID;

-- Order times: that of the newest change up to each of these numbers, in milliseconds since 1970.
CREATE TABLE order_times (
    seq INTEGER PRIMARY KEY,
    order_time INTEGER NOT NULL
);

-- Spans of changes that are sealed in files.
CREATE TABLE segments (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL, -- number of the last change
    manifest TEXT NOT NULL -- JSON: contents and name of the file
);

-- Changes whose repository must be asked again, with a copy of each change.
CREATE TABLE incomplete_changes (
    seq INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    missing TEXT NOT NULL, -- object, content, items, rest
    json TEXT NOT NULL
);
CREATE INDEX incomplete_changes_by_source ON incomplete_changes (source, seq);

-- Messages that no dialect could read.
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    received INTEGER NOT NULL,
    source TEXT NOT NULL,
    content_type TEXT,
    headers TEXT NOT NULL, -- JSON
    location TEXT NOT NULL, -- of the error in the message
    reason TEXT NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX quarantine_by_source ON quarantine (source, id);

-- Subscriptions with their cursors. A definition may contain a secret.
CREATE TABLE subscriptions (
    name TEXT PRIMARY KEY,
    made_by TEXT NOT NULL, -- config, api, hub
    definition TEXT NOT NULL, -- JSON; empty for one of the configuration
    cursor INTEGER NOT NULL, -- number of the last change that is delivered or skipped
    paused INTEGER NOT NULL,
    ended TEXT, -- reason why the subscription stopped by itself
    paused_by TEXT, -- who paused it; null if nobody is known
    delivered INTEGER -- time of the last confirmed message
) WITHOUT ROWID;

-- Changes that a receiver refused for good, as they were sent.
CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription TEXT NOT NULL,
    seq INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    reason TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    replay INTEGER NOT NULL, -- whether another attempt is requested
    json TEXT NOT NULL
);
CREATE INDEX dead_letters_by_subscription ON dead_letters (subscription, id);

-- Position of the harvest of each source, written together with the records before it.
CREATE TABLE harvests (
    source TEXT PRIMARY KEY,
    position TEXT NOT NULL, -- in the format of the kind of harvest
    requested INTEGER, -- when an administrator last requested a run
    definition TEXT, -- JSON: settings of a harvest that was made over HTTP; null for one of the configuration
    paused INTEGER NOT NULL DEFAULT 0,
    lease INTEGER -- end of the subscription at the hub of the feed
) WITHOUT ROWID;

-- The newest runs of the harvest of each source.
CREATE TABLE harvest_runs (
    id TEXT PRIMARY KEY, -- UUID of version 7: in the order of the runs
    source TEXT NOT NULL,
    started INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    state TEXT NOT NULL, -- running, completed, failed
    reason TEXT,
    pages INTEGER NOT NULL,
    records INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    repaired INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX harvest_runs_by_source ON harvest_runs (source, id);

-- Records that the repository of a source has listed, if it does not report all deletions.
CREATE TABLE harvest_records (
    source TEXT NOT NULL,
    identifier TEXT NOT NULL,
    listed INTEGER NOT NULL, -- start of the newest run that has listed it; -1 if it is no longer listed
    validator TEXT NOT NULL DEFAULT '', -- properties by which a harvest recognizes an unchanged record
    PRIMARY KEY (source, identifier)
) WITHOUT ROWID;

-- Jobs that archive datasets.
CREATE TABLE ingest_jobs (
    source TEXT NOT NULL,
    dataset TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE, -- UUID of version 7: in the order of the first requests
    request TEXT NOT NULL, -- JSON
    state TEXT NOT NULL, -- waiting, running, archived, failed, blocked, cancelling, cancelled
    due INTEGER, -- when the next attempt begins
    attempts INTEGER NOT NULL, -- successive attempts that have failed
    status TEXT,
    message TEXT,
    requested INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    -- Host from which the dataset is requested; before the first attempt, the publisher at a resolver can stand for it.
    host TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, dataset)
);
CREATE INDEX ingest_jobs_by_time ON ingest_jobs (source, due) WHERE due IS NOT NULL;
CREATE INDEX ingest_jobs_by_host ON ingest_jobs (source, host, due) WHERE due IS NOT NULL;
CREATE INDEX ingest_jobs_by_state ON ingest_jobs (source, state, updated) WHERE state NOT IN ('archived', 'cancelled');

-- The newest result of work on each object, such as the archiving of a dataset.
CREATE TABLE results (
    object TEXT PRIMARY KEY,
    seq INTEGER NOT NULL, -- the change that the result made
    received INTEGER NOT NULL,
    result TEXT NOT NULL -- JSON
);

-- Results of archiving datasets, with the columns of Sandcrawler's table.
CREATE VIEW ingest_fileset_platform AS
    SELECT result ->> '$.request.ingest_type' AS ingest_type,
        result ->> '$.request.base_url' AS base_url,
        strftime('%Y-%m-%dT%H:%M:%fZ', received / 1000.0, 'unixepoch') AS updated,
        result ->> '$.hit' AS hit,
        result ->> '$.status' AS status,
        result ->> '$.platform_name' AS platform_name,
        result ->> '$.platform_domain' AS platform_domain,
        result ->> '$.platform_id' AS platform_id,
        result ->> '$.ingest_strategy' AS ingest_strategy,
        result ->> '$.total_size' AS total_size,
        result ->> '$.file_count' AS file_count,
        result ->> '$.archiveorg_item_name' AS archiveorg_item_name,
        result ->> '$.fileset_bundle.archiveorg_bundle_path' AS archiveorg_item_bundle_path,
        result ->> '$.fileset_bundle.terminal.terminal_url' AS web_bundle_url,
        result ->> '$.fileset_bundle.terminal.terminal_dt' AS web_bundle_dt,
        result -> '$.manifest' AS manifest
    FROM results
    WHERE result ->> '$.platform_name' IS NOT NULL;
