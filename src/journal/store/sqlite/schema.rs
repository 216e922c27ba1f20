//! The tables, and the migrations of journals of older versions.

use rusqlite::Connection;

use super::{dedupe, version_8};
use crate::journal::store::StoreError;

/// Identifies a file as a journal of Tidings (`PRAGMA application_id`): the letters `TDNG`.
pub(super) const APPLICATION_ID: i32 = 0x5444_4E47;

/// Migration from one version to the next.
pub(super) enum Migration {
    /// SQL statements.
    Sql(&'static str),
    /// SQL statements, then a function that moves data, then SQL statements.
    SqlWithData(&'static str, fn(&Connection) -> Result<(), StoreError>, &'static str),
}

/// Migrations from each version to the next; the version is `PRAGMA user_version`. A released migration never changes,
/// because journals exist that it has migrated; new migrations are added at the end.
pub(super) const MIGRATIONS: [Migration; 16] = [
    Migration::Sql(
        "
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL
    ) WITHOUT ROWID;

    -- After each restore from a backup: the newest change of the backup was `head`, and the next one
    -- has the number `floor` + 1.
    CREATE TABLE restores (
        head INTEGER PRIMARY KEY,
        floor INTEGER NOT NULL
    );

    -- The journal: one row a change, never updated; retention takes the oldest.
    CREATE TABLE changes (
        seq INTEGER PRIMARY KEY,
        id BLOB NOT NULL,
        received INTEGER NOT NULL,
        checksum INTEGER NOT NULL, -- CRC-32 of seq (8 bytes, big-endian) and json
        json TEXT NOT NULL
    );
    CREATE UNIQUE INDEX changes_by_id ON changes (id);

    -- The events of the last while, so that a repeat is known.
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        key BLOB NOT NULL,
        received INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX events_by_key ON events (key);

    -- The registry. Times are milliseconds since 1970; *_at is the time of the change that set the
    -- fact, *_confirmed that of the latest event that found it so.
    CREATE TABLE objects (
        object INTEGER PRIMARY KEY,
        uri TEXT NOT NULL UNIQUE,
        parent TEXT, parent_at INTEGER, parent_confirmed INTEGER,
        types TEXT NOT NULL, types_at INTEGER, types_confirmed INTEGER,
        purged_at INTEGER, purged_confirmed INTEGER
    );
    CREATE TABLE items (
        object INTEGER NOT NULL REFERENCES objects (object),
        uri TEXT NOT NULL,
        existence INTEGER NOT NULL, existence_at INTEGER, existence_confirmed INTEGER,
        content TEXT, content_at INTEGER, content_confirmed INTEGER,
        state TEXT, state_at INTEGER, state_confirmed INTEGER,
        begins_in TEXT, begins_in_at INTEGER, begins_in_confirmed INTEGER,
        PRIMARY KEY (object, uri)
    ) WITHOUT ROWID;

    CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        received INTEGER NOT NULL,
        source TEXT NOT NULL,
        content_type TEXT,
        headers TEXT NOT NULL,
        place TEXT NOT NULL,
        reason TEXT NOT NULL,
        size INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    ",
    ),
    // Keys are random, so an index that was updated with each append wrote a page per key. Since this version the keys are
    // moved to the tree in batches, in order (see `dedupe`).
    Migration::Sql(
        "
    CREATE TABLE event_keys (
        key BLOB PRIMARY KEY,
        seq INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO event_keys SELECT key, seq FROM events ORDER BY key;
    INSERT INTO meta SELECT 'events_moved', max(seq) FROM events HAVING max(seq) IS NOT NULL;
    DROP INDEX events_by_key;
    ",
    ),
    Migration::Sql(
        "
    -- The events of the last while that changed nothing, of sources whose states may come back: one
    -- that is told again must not undo what has changed since.
    CREATE TABLE unchanged (
        number INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        received INTEGER NOT NULL
    );
    ",
    ),
    Migration::Sql(
        "
    -- What the public sees of a change, where the change does not tell it by itself: JSON.
    ALTER TABLE changes ADD COLUMN sight TEXT;

    -- Every subscription that has ever run and was not deleted. `definition` is the JSON that was put,
    -- of one that the configuration defines it is empty; that of a WebSub subscriber has its secret.
    CREATE TABLE subscriptions (
        name TEXT PRIMARY KEY,
        origin TEXT NOT NULL, -- config, api, hub
        definition TEXT NOT NULL,
        cursor INTEGER NOT NULL, -- all changes up to this one are done with
        paused INTEGER NOT NULL,
        ended TEXT -- why the receiver wants no more
    ) WITHOUT ROWID;

    -- What a receiver refused for good: the change as it would have been sent.
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        subscription TEXT NOT NULL,
        seq INTEGER NOT NULL,
        refused INTEGER NOT NULL,
        reason TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        replay INTEGER NOT NULL, -- whether it is to be sent again
        json TEXT NOT NULL
    );
    CREATE INDEX dead_letters_by_subscription ON dead_letters (subscription, id);
    ",
    ),
    // The newest rows of the registry are only in memory (until version 8).
    Migration::Sql(
        "
    -- The registry's tables hold everything up to the change `registry_moved` in `meta`, and may hold
    -- something of what came later: the changes tell that again. What events confirmed that are in no change
    -- stands here, up to `confirmations_moved` in the tables as well: all that is confirmed of an item,
    -- or that the object was found purged, as it was when `seq` was the newest change.
    CREATE TABLE confirmations (
        number INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        object TEXT NOT NULL,
        item TEXT, -- none for the object itself
        purged_confirmed INTEGER,
        existence_confirmed INTEGER, content_confirmed INTEGER, state_confirmed INTEGER,
        begins_in TEXT, begins_in_at INTEGER, begins_in_confirmed INTEGER
    );
    INSERT INTO meta SELECT 'registry_moved', max(seq) FROM changes HAVING max(seq) IS NOT NULL;
    ",
    ),
    // Event keys are in sorted runs, and those of the newest changes in the rows of the changes (see `dedupe`).
    Migration::SqlWithData(
        "
    -- The event that told a change, so that a repeat is known; none where it cannot be, or is in a run alone.
    ALTER TABLE changes ADD COLUMN key BLOB;

    -- Runs of keys: those of the changes from `first` to `last`, of which the newest was received at `received`.
    CREATE TABLE key_runs (
        run INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        received INTEGER NOT NULL,
        keys INTEGER NOT NULL
    );
    -- The keys of a run, in their order, cut into 64 parts by their first six bits: `part` is 64 times the number of the
    -- run, and those bits. A key has 16 bytes, and its change 8, the highest first.
    CREATE TABLE key_parts (
        part INTEGER PRIMARY KEY,
        keys BLOB NOT NULL
    );
    ",
        dedupe::migrate_from_tree,
        "
    DROP TABLE event_keys;
    DROP TABLE events;
    DELETE FROM meta WHERE name = 'events_moved';
    ",
    ),
    Migration::Sql(
        "
    -- Changes about which the repository that they come from did not tell all that it knows: it is asked again.
    CREATE TABLE incomplete (
        seq INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        untold TEXT NOT NULL, -- object, content, items, rest
        json TEXT NOT NULL -- of the change, which may have been removed
    );
    CREATE INDEX incomplete_by_source ON incomplete (source, seq);
    ",
    ),
    // Seeding: facts from crawls of repositories, which no change contains.
    Migration::Sql(
        "
    -- What was new to the registry of what a walk found, in its place: after the change `seq` and before the next
    -- one. The registry's tables hold it up to `seeds_moved` in `meta`; it stays until retention has taken the changes
    -- beside it, so that the registry can be told again from both.
    CREATE TABLE seeds (
        number INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        object TEXT NOT NULL,
        filled TEXT NOT NULL -- JSON: each fact with its clock
    );
    -- Whether a walk found the state, and no change has told it.
    ALTER TABLE items ADD COLUMN unheard INTEGER NOT NULL DEFAULT 0;

    -- How far the newest walk through the repository of each source is.
    CREATE TABLE walks (
        source TEXT PRIMARY KEY,
        id BLOB NOT NULL,
        part INTEGER NOT NULL, -- how many parts of it are here
        place TEXT NOT NULL, -- where it goes on, in the walker's own words
        objects INTEGER NOT NULL,
        began INTEGER NOT NULL,
        moved INTEGER NOT NULL,
        done INTEGER NOT NULL
    ) WITHOUT ROWID;
    ",
    ),
    // The registry's tables are complete again, because each batch writes the rows that it changes.
    Migration::SqlWithData(
        "",
        version_8::write_registry,
        "
    DROP TABLE confirmations;
    DELETE FROM meta WHERE name IN ('registry_moved', 'confirmations_moved');
    ",
    ),
    Migration::Sql(
        "
    -- Position of the harvest of each source, written together with the records before it.
    CREATE TABLE harvests (
        source TEXT PRIMARY KEY,
        position TEXT NOT NULL, -- in the format of the kind of harvest
        requested INTEGER -- when an administrator last requested a run
    ) WITHOUT ROWID;

    -- The newest runs of each harvest.
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
    ",
    ),
    Migration::Sql(
        "
    -- Settings of a harvest that was made over HTTP, as JSON; null for one of the configuration.
    ALTER TABLE harvests ADD COLUMN definition TEXT;
    ALTER TABLE harvests ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    ",
    ),
    Migration::Sql(
        "
    -- Records that the repository of a source has listed, if it does not report all deletions.
    CREATE TABLE harvest_records (
        source TEXT NOT NULL,
        identifier TEXT NOT NULL,
        listed INTEGER NOT NULL, -- start of the newest run that has listed it
        PRIMARY KEY (source, identifier)
    ) WITHOUT ROWID;
    ",
    ),
    Migration::Sql(
        "
    -- Properties by which a harvest recognizes an unchanged record.
    ALTER TABLE harvest_records ADD COLUMN validator TEXT NOT NULL DEFAULT '';
    -- End of the subscription at the hub of the feed.
    ALTER TABLE harvests ADD COLUMN lease INTEGER;
    ",
    ),
    Migration::Sql(
        "
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
        PRIMARY KEY (source, dataset)
    );
    CREATE INDEX ingest_jobs_by_time ON ingest_jobs (source, due) WHERE due IS NOT NULL;

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
    ",
    ),
    Migration::Sql(
        "
    -- Source whose change or crawl was the first about the object; null if no change about it is left.
    ALTER TABLE objects ADD COLUMN source TEXT;
    -- In the order of the changes, because grouping would sort the JSON of the whole journal.
    CREATE TEMP TABLE oldest_changes (object TEXT PRIMARY KEY, source TEXT) WITHOUT ROWID;
    INSERT OR IGNORE INTO oldest_changes
        SELECT json ->> '$.object', json ->> '$.source' FROM changes WHERE json_valid(json) ORDER BY seq;
    UPDATE objects SET source = (SELECT source FROM oldest_changes WHERE object = objects.uri);
    DROP TABLE oldest_changes;
    ",
    ),
    Migration::Sql(
        "
    -- Host from which a dataset is requested, so that each host has its share of the jobs. Before the first attempt it is
    -- the host of the dataset, or its publisher at a resolver.
    ALTER TABLE ingest_jobs ADD COLUMN host TEXT NOT NULL DEFAULT '';
    UPDATE ingest_jobs SET host = substr(dataset, instr(dataset, '://') + 3) WHERE instr(dataset, '://') > 0;
    UPDATE ingest_jobs SET host = substr(host, instr(host, '/') + 1) WHERE host GLOB 'doi.org/*'
        OR host GLOB 'dx.doi.org/*' OR host GLOB 'www.doi.org/*' OR host GLOB 'hdl.handle.net/*' OR host GLOB 'n2t.net/*';
    UPDATE ingest_jobs SET host = substr(dataset, instr(dataset, ':') + 1) WHERE host = '';
    UPDATE ingest_jobs SET host = substr(host, 1, instr(host || '/', '/') - 1);
    UPDATE ingest_jobs SET host = substr(host, 1, instr(host || ':', ':') - 1);
    CREATE INDEX ingest_jobs_by_host ON ingest_jobs (source, host, due) WHERE due IS NOT NULL;
    ",
    ),
];

/// Returns the version that this program writes.
pub(super) fn current_version() -> i64 {
    MIGRATIONS.len() as i64
}

/// Migrates the journal from `version` to the current version. Each migration and its new version number are committed in
/// one transaction, so a crash leaves the journal at one of the versions.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> Result<(), StoreError> {
    let done = usize::try_from(version).unwrap_or(0);
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        let transaction = connection.transaction()?;
        match migration {
            Migration::Sql(sql) => transaction.execute_batch(sql)?,
            Migration::SqlWithData(before, move_data, after) => {
                transaction.execute_batch(before)?;
                move_data(&transaction)?;
                transaction.execute_batch(after)?;
            }
        }
        if index == 0 {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            let identity = uuid::Uuid::new_v4();
            transaction.execute("INSERT INTO meta VALUES ('identity', ?)", [identity.as_bytes().as_slice()])?;
        }
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Returns the number after which new changes are numbered, if it is greater than that of the newest change. A restored
/// journal skips the numbers that the lost journal may have given.
pub(super) fn floor(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(floor), 0) FROM restores", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::{Connection, MIGRATIONS, Migration};

    fn apply(connection: &Connection, migrations: &[Migration]) {
        for migration in migrations {
            match migration {
                Migration::Sql(sql) => connection.execute_batch(sql).unwrap(),
                Migration::SqlWithData(before, move_data, after) => {
                    connection.execute_batch(before).unwrap();
                    move_data(connection).unwrap();
                    connection.execute_batch(after).unwrap();
                }
            }
        }
    }

    #[test]
    fn jobs_of_version_15_get_hosts() {
        let connection = Connection::open_in_memory().unwrap();
        apply(&connection, &MIGRATIONS[..15]);
        let jobs = [
            ("https://a.example:8443/b/c", "a.example"),
            ("http://a.example", "a.example"),
            ("https://doi.org/10.5281/zenodo.2", "10.5281"),
            ("https://hdl.handle.net/1234/5", "1234"),
            ("doi:10.5281/zenodo.3", "10.5281"),
        ];
        for (dataset, _) in jobs {
            let insert = "INSERT INTO ingest_jobs SELECT 's', ?1, ?1, '{}', 'waiting', 1, 0, NULL, NULL, 1, 1";
            connection.execute(insert, [dataset]).unwrap();
        }
        apply(&connection, &MIGRATIONS[15..16]);
        for (dataset, host) in jobs {
            let sql = "SELECT host FROM ingest_jobs WHERE dataset = ?";
            let found: String = connection.query_row(sql, [dataset], |row| row.get(0)).unwrap();
            assert_eq!(found, host, "{dataset}");
        }
    }
}
