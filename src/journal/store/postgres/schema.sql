-- All times are milliseconds since 1970 (UTC): to_timestamp(received / 1000.0) shows one as a date.
-- Columns with COLLATE "C" are ordered by octets, as the gateway compares them.

CREATE TABLE journal_head (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    head bigint NOT NULL DEFAULT 0,
    received bigint,
    seeds bigint NOT NULL DEFAULT 0,
    timeline text NOT NULL DEFAULT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    origin text NOT NULL DEFAULT '',
    accepted bigint NOT NULL DEFAULT 0,
    token_key uuid NOT NULL DEFAULT gen_random_uuid()
) WITH (fillfactor = 10);
COMMENT ON TABLE journal_head IS 'One row. Each batch locks it first, so batches commit in the order of their numbers.';
COMMENT ON COLUMN journal_head.identity IS 'Identifier of the journal. A restore or a failover gives a new one.';
COMMENT ON COLUMN journal_head.head IS 'Number of the newest change; 0 if there has been none.';
COMMENT ON COLUMN journal_head.received IS 'Time of receipt of the newest change.';
COMMENT ON COLUMN journal_head.seeds IS 'Number of the newest row ever written to seeds.';
COMMENT ON COLUMN journal_head.timeline IS 'Timeline of the server that wrote last. Another one means that a standby was promoted.';
COMMENT ON COLUMN journal_head.origin IS 'Identifiers of the database cluster and of this table. Others mean that a dump was restored.';
COMMENT ON COLUMN journal_head.accepted IS 'Newest time of acceptance that a batch has given to objects.';
COMMENT ON COLUMN journal_head.token_key IS 'Secret key of the tokens that readers of the registry get.';
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
    floor bigint NOT NULL,
    identities text
);
COMMENT ON TABLE restores IS 'Ranges of numbers that a restore or a failover has skipped: after head, up to floor.';
COMMENT ON COLUMN restores.identities IS 'Identifiers of the journals whose numbers end with head, separated by spaces.';

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
    purged_at bigint, purged_confirmed bigint,
    source text,
    accepted bigint NOT NULL,
    published bigint
) WITH (fillfactor = 80);
CREATE INDEX objects_by_acceptance ON objects (accepted, object);
CREATE INDEX objects_by_publication ON objects (published, object) WHERE published IS NOT NULL;
COMMENT ON TABLE objects IS 'The registry: last known state of each object. *_at is the time of the event that set a fact, *_confirmed that of the latest event that confirmed it.';
COMMENT ON COLUMN objects.items IS 'Number of rows in items; null if nobody has counted them yet.';
COMMENT ON COLUMN objects.types IS 'JSON: list of URIs.';
COMMENT ON COLUMN objects.source IS 'Source whose change or crawl was the first about the object; null if no change about it is left.';
COMMENT ON COLUMN objects.accepted IS 'Microseconds since 1970 at which the newest facts were accepted, in the order of the batches.';
COMMENT ON COLUMN objects.published IS 'The same for the newest facts that the public sees; null if it has never seen the object.';

CREATE TABLE items (
    object bigint NOT NULL,
    uri text COLLATE "C" NOT NULL,
    existence boolean NOT NULL, existence_at bigint, existence_confirmed bigint,
    content text, content_at bigint, content_confirmed bigint,
    state text, state_at bigint, state_confirmed bigint,
    initial_state text, initial_state_at bigint, initial_state_confirmed bigint,
    unannounced boolean NOT NULL,
    visible_from bigint, visible_until bigint, came bigint, denied bigint,
    PRIMARY KEY (object, uri)
) WITH (fillfactor = 80);
CREATE INDEX items_by_date ON items (coalesce(visible_from, visible_until), object, uri)
    WHERE coalesce(visible_from, visible_until) IS NOT NULL;
CREATE INDEX items_denied ON items (denied) WHERE denied IS NOT NULL;
COMMENT ON TABLE items IS 'The registry: last known state of each item of an object.';
COMMENT ON COLUMN items.content IS 'JSON: location of the content.';
COMMENT ON COLUMN items.initial_state IS 'State since the creation of the item, if no source reported one.';
COMMENT ON COLUMN items.unannounced IS 'Whether the state comes from a crawl, and no change has reported it.';
COMMENT ON COLUMN items.visible_from IS 'Announced date from which the item is public; null if it has come.';
COMMENT ON COLUMN items.visible_until IS 'Announced date until which the item is public; null if it has come.';
COMMENT ON COLUMN items.came IS 'The announced date that has set the state.';
COMMENT ON COLUMN items.denied IS 'The announced date that had set a state before, if the source has said another date afterwards.';

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
    id text NOT NULL,
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
CREATE INDEX quarantine_by_source ON quarantine (source, id);

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
    ended text,
    paused_by text,
    delivered bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE subscriptions IS 'Subscriptions with their cursors. A definition may contain a secret.';
COMMENT ON COLUMN subscriptions.cursor IS 'Number of the last change that is delivered or skipped.';
COMMENT ON COLUMN subscriptions.ended IS 'Reason why the subscription stopped by itself.';
COMMENT ON COLUMN subscriptions.paused_by IS 'Who paused it; null if nobody is known.';
COMMENT ON COLUMN subscriptions.delivered IS 'Time of the last confirmed message.';

CREATE TABLE sources (
    source text COLLATE "C" PRIMARY KEY,
    first_event bigint NOT NULL,
    last_event bigint NOT NULL,
    week bigint NOT NULL,
    longest_pause bigint NOT NULL,
    earlier_pause bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE sources IS 'Times of the events of each source that made changes, in milliseconds since 1970.';
COMMENT ON COLUMN sources.week IS 'Week of last_event, numbered from 1970.';
COMMENT ON COLUMN sources.longest_pause IS 'Longest time between two events that ended in that week.';
COMMENT ON COLUMN sources.earlier_pause IS 'The same of the week before.';

CREATE TABLE order_times (
    seq bigint PRIMARY KEY,
    order_time bigint NOT NULL
);
COMMENT ON TABLE order_times IS 'Order times: that of the newest change up to each of these numbers, in milliseconds since 1970.';

CREATE TABLE segments (
    first bigint PRIMARY KEY,
    last bigint NOT NULL,
    manifest text NOT NULL
);
COMMENT ON TABLE segments IS 'Spans of changes that are sealed in files.';
COMMENT ON COLUMN segments.manifest IS 'JSON: contents and name of the file.';

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

CREATE TABLE nodes (
    instance uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    address text,
    version text NOT NULL,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires timestamptz NOT NULL,
    head bigint NOT NULL,
    leaving boolean NOT NULL DEFAULT false,
    offers text[] NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE nodes IS 'Live nodes. A node renews its row, and thereby all its duties, several times per lease.';
COMMENT ON COLUMN nodes.instance IS 'Identifier of this run of the node.';
COMMENT ON COLUMN nodes.expires IS 'End of the lease, by the clock of this server. Any node removes the row afterwards.';
COMMENT ON COLUMN nodes.head IS 'Number of the newest change that the node knew at its last renewal.';
COMMENT ON COLUMN nodes.offers IS 'Duties of the configuration of this node. Only nodes that offer such a duty get it.';

CREATE TABLE duties (
    name text COLLATE "C" PRIMARY KEY,
    term uuid NOT NULL UNIQUE,
    holder uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX duties_by_holder ON duties (holder);
COMMENT ON TABLE duties IS 'Work that exactly one node does at a time. A duty has a row while a node has it.';
COMMENT ON COLUMN duties.term IS 'New for each tenure. A write for a duty is refused if the row with its term is gone.';

CREATE TABLE definition_revisions (
    kind text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE definition_revisions IS 'One row for subscriptions and one for harvests: number of modifications by people, apart from cursors and new dead letters. Nodes read the definitions again when it changes.';
INSERT INTO definition_revisions (kind) VALUES ('subscriptions'), ('harvests');

CREATE TABLE harvests (
    source text COLLATE "C" PRIMARY KEY,
    position text NOT NULL,
    requested bigint,
    definition text,
    paused boolean NOT NULL DEFAULT false,
    lease bigint
);
COMMENT ON TABLE harvests IS 'Position of the harvest of each source.';
COMMENT ON COLUMN harvests.position IS 'Where the harvest continues, in the format of its kind. Written together with the records before it.';
COMMENT ON COLUMN harvests.requested IS 'When an administrator last requested a run.';
COMMENT ON COLUMN harvests.definition IS 'Settings of a harvest that was made over HTTP, as JSON; null for one of the configuration.';
COMMENT ON COLUMN harvests.paused IS 'Whether an administrator has paused the harvest.';
COMMENT ON COLUMN harvests.lease IS 'End of the subscription at the hub of the feed.';

CREATE TABLE harvest_runs (
    id text COLLATE "C" PRIMARY KEY,
    source text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    updated bigint NOT NULL,
    state text NOT NULL,
    reason text,
    pages bigint NOT NULL,
    records bigint NOT NULL,
    changes bigint NOT NULL,
    quarantined bigint NOT NULL,
    repaired bigint NOT NULL
);
CREATE INDEX harvest_runs_by_source ON harvest_runs (source, id);
COMMENT ON TABLE harvest_runs IS 'The newest runs of the harvest of each source.';
COMMENT ON COLUMN harvest_runs.id IS 'UUID of version 7: in the order of the runs.';
COMMENT ON COLUMN harvest_runs.state IS 'running, completed or failed.';
COMMENT ON COLUMN harvest_runs.updated IS 'When the last page was written, or the run ended.';
COMMENT ON COLUMN harvest_runs.changes IS 'Changes that the records of the run made.';
COMMENT ON COLUMN harvest_runs.quarantined IS 'Records that could not be read.';
COMMENT ON COLUMN harvest_runs.repaired IS 'Pages with errors that the harvest repaired.';

CREATE TABLE harvest_records (
    source text COLLATE "C" NOT NULL,
    identifier text COLLATE "C" NOT NULL,
    listed bigint NOT NULL,
    validator text NOT NULL DEFAULT '',
    PRIMARY KEY (source, identifier)
);
COMMENT ON TABLE harvest_records IS 'Records that the repository of a source has listed, if it does not report all deletions.';
COMMENT ON COLUMN harvest_records.listed IS 'Start of the newest run that has listed the record; -1 if it is no longer listed.';
COMMENT ON COLUMN harvest_records.validator IS 'Properties by which a harvest recognizes an unchanged record.';

CREATE TABLE ingest_jobs (
    source text COLLATE "C" NOT NULL,
    dataset text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    request text NOT NULL,
    state text NOT NULL,
    due bigint,
    attempts bigint NOT NULL,
    status text,
    message text,
    requested bigint NOT NULL,
    updated bigint NOT NULL,
    host text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (source, dataset)
);
CREATE INDEX ingest_jobs_by_time ON ingest_jobs (source, due) WHERE due IS NOT NULL;
CREATE INDEX ingest_jobs_by_host ON ingest_jobs (source, host, due) WHERE due IS NOT NULL;
CREATE INDEX ingest_jobs_by_state ON ingest_jobs (source, state, updated) WHERE state NOT IN ('archived', 'cancelled');
COMMENT ON TABLE ingest_jobs IS 'Jobs that archive datasets.';
COMMENT ON COLUMN ingest_jobs.id IS 'UUID of version 7: in the order of the first requests.';
COMMENT ON COLUMN ingest_jobs.host IS 'Host from which the dataset is requested; before the first attempt, the publisher at a resolver can stand for it.';
COMMENT ON COLUMN ingest_jobs.request IS 'JSON of the request.';
COMMENT ON COLUMN ingest_jobs.state IS 'waiting, running, archived, failed, blocked, cancelling or cancelled.';
COMMENT ON COLUMN ingest_jobs.due IS 'When the next attempt begins.';
COMMENT ON COLUMN ingest_jobs.attempts IS 'Successive attempts that have failed.';

CREATE TABLE results (
    object text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    received bigint NOT NULL,
    result text NOT NULL
);
COMMENT ON TABLE results IS 'The newest result of work on each object, such as the archiving of a dataset.';
COMMENT ON COLUMN results.seq IS 'The change that the result made.';
COMMENT ON COLUMN results.result IS 'JSON of the result.';

CREATE VIEW ingest_fileset_platform AS
    SELECT r #>> '{request,ingest_type}' AS ingest_type,
        r #>> '{request,base_url}' AS base_url,
        to_timestamp(received / 1000.0) AS updated,
        (r ->> 'hit')::boolean AS hit,
        r ->> 'status' AS status,
        r ->> 'platform_name' AS platform_name,
        r ->> 'platform_domain' AS platform_domain,
        r ->> 'platform_id' AS platform_id,
        r ->> 'ingest_strategy' AS ingest_strategy,
        (r ->> 'total_size')::bigint AS total_size,
        (r ->> 'file_count')::bigint AS file_count,
        r ->> 'archiveorg_item_name' AS archiveorg_item_name,
        r #>> '{fileset_bundle,archiveorg_bundle_path}' AS archiveorg_item_bundle_path,
        r #>> '{fileset_bundle,terminal,terminal_url}' AS web_bundle_url,
        r #>> '{fileset_bundle,terminal,terminal_dt}' AS web_bundle_dt,
        r -> 'manifest' AS manifest
    FROM (SELECT received, result::jsonb AS r FROM results) AS parsed
    WHERE r ? 'platform_name';
COMMENT ON VIEW ingest_fileset_platform IS 'Results of archiving datasets, with the columns of Sandcrawler''s table.';
