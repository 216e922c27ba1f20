//! Both sides of a migration: a locked journal that is read, and a file that is filled.
//!
//! The target is a file of its own name until the migration is complete. While it exists, no journal can be opened in
//! its folder.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::value::{params, storable_values};
use super::{
    FILE_NAME, SqliteOptions, SqliteStore,
    backup::sync_folder,
    changes,
    dedupe::runs::{self, Run},
    inspect::inspect,
    lock::LockFile,
    open::{configure, create, identity, read_write, reader, version},
    open_error::{OpenError, explain, explain_store},
    restore::READY_NAME,
    schema, seeds,
    tables::{ALL_KEYS, SqliteTables, table_name, value},
};
use crate::journal::{
    private_files,
    store::{
        EventKey, StoreContent, StoreError, StoreLocation,
        migrate::{JournalFacts, MigrationError, MigrationSource, MigrationTarget, Position},
        tables::{Cell, Row, Table, TableReader},
    },
};

/// Name of the file that a migration fills. While a file with this name exists, no journal in the folder can be opened.
pub(super) const MIGRATING_NAME: &str = "journal.sqlite.migrating";

/// Table with the position of the migration. It is dropped at last; in a complete journal it has no meaning.
const CREATE_POSITION: &str = "CREATE TABLE migration (position TEXT NOT NULL)";

const CREATE_ALL_KEYS: &str = "CREATE TEMP TABLE all_event_keys
    (seq INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, received INTEGER NOT NULL)";

/// Statement for a key of a run or of a change. The newest change of a key counts. A change that retention has removed
/// counts as received with the newest change of its run.
const INSERT_KEY: &str = "INSERT OR REPLACE INTO all_event_keys (seq, key, received)
    VALUES (?1, ?2, coalesce((SELECT received FROM changes WHERE seq = ?1), ?3))";

/// A journal that is locked for a migration.
pub(in crate::journal::store) struct SqliteSource {
    connection: Connection,
    /// Holds the lock of the folder.
    _store: SqliteStore,
}

impl SqliteSource {
    /// Opens and locks the journal in a folder.
    pub(in crate::journal::store) fn open(folder: &Path) -> Result<Self, MigrationError> {
        if inspect(folder)? == StoreContent::Empty {
            return Err(MigrationError::NoJournal(StoreLocation::Folder(folder.to_owned())));
        }
        // Opening also migrates a file of an older version, and detects damage.
        let store = SqliteStore::open(folder, SqliteOptions::default())?;
        let path = folder.join(FILE_NAME);
        let connection = reader(&path).map_err(|error| explain(&path, &error))?;
        collect_keys(&connection).map_err(|error| explain_store(&path, error))?;
        connection.execute_batch("BEGIN").map_err(|error| explain(&path, &error))?;
        Ok(Self { connection, _store: store })
    }
}

/// Collects all event keys in a temporary table.
fn collect_keys(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(&format!("DROP TABLE IF EXISTS temp.{ALL_KEYS}"))?;
    connection.execute_batch(CREATE_ALL_KEYS)?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare(INSERT_KEY)?;
    let runs = runs::all(connection)?;
    for run in &runs {
        let mut keys = runs::read(connection, *run)?;
        keys.sort_unstable_by_key(|(_, seq)| *seq);
        for (EventKey(key), seq) in keys {
            insert.execute(params![super::rows::number(seq.0), key.as_slice(), run.received])?;
        }
    }
    let last = runs.last().map_or(0, |run| super::rows::number(run.last.0));
    let recent = "INSERT OR REPLACE INTO all_event_keys (seq, key, received)
        SELECT seq, key, received FROM changes WHERE seq > ? AND key IS NOT NULL ORDER BY seq";
    connection.execute(recent, [last])?;
    connection.execute_batch("COMMIT")?;
    Ok(())
}

impl TableReader for SqliteSource {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        SqliteTables { connection: &self.connection }.count(table)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        SqliteTables { connection: &self.connection }.page(table, after)
    }
}

impl MigrationSource for SqliteSource {
    fn facts(&self) -> Result<JournalFacts, StoreError> {
        let newest = |table: Table| -> rusqlite::Result<i64> {
            let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?";
            let newest = self.connection.query_row(sql, [table.name()], |row| row.get(0));
            Ok(newest.optional()?.unwrap_or_default())
        };
        Ok(JournalFacts {
            identity: identity(&self.connection)?,
            head: changes::head(&self.connection)?,
            newest_seed: seeds::newest(&self.connection)?,
            newest_quarantined: newest(Table::Quarantine)?,
            newest_dead_letter: newest(Table::DeadLetters)?,
        })
    }
}

/// A file that a migration fills.
pub(in crate::journal::store) struct SqliteTarget {
    connection: Connection,
    folder: PathBuf,
    /// Locked while the migration runs, so that no second process writes.
    _lock: LockFile,
}

impl SqliteTarget {
    /// Opens the half-finished migration in a folder, or creates an empty one.
    pub(in crate::journal::store) fn open(folder: &Path) -> Result<Self, MigrationError> {
        private_files::create_folder(folder).map_err(|error| OpenError::folder(folder, error))?;
        let lock = LockFile::acquire(folder, &folder.join(FILE_NAME))?;
        if [FILE_NAME, READY_NAME].iter().any(|name| folder.join(name).exists()) {
            return Err(MigrationError::NotEmpty(StoreLocation::Folder(folder.to_owned())));
        }
        let path = folder.join(MIGRATING_NAME);
        create(&path)?;
        let failed = |error: rusqlite::Error| explain(&path, &error);
        let mut connection = read_write(&path).map_err(failed)?;
        let version = version(&connection).map_err(failed)?;
        configure(&connection, version == 0).map_err(failed)?;
        // A file for the temporary tables, because the event keys of a large journal need much room.
        connection.pragma_update(None, "temp_store", "FILE").map_err(failed)?;
        // The log is synced with each checkpoint. After a power failure the migration resumes a little earlier.
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        schema::migrate(&mut connection, version).map_err(|error| explain_store(&path, error))?;
        Ok(Self { connection, folder: folder.to_owned(), _lock: lock })
    }
}

impl TableReader for SqliteTarget {
    fn count(&self, table: Table) -> Result<u64, StoreError> {
        SqliteTables { connection: &self.connection }.count(table)
    }

    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError> {
        SqliteTables { connection: &self.connection }.page(table, after)
    }
}

impl MigrationTarget for SqliteTarget {
    fn position(&self) -> Result<Option<Position>, StoreError> {
        if !self.connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'migration'")?.exists([])? {
            return Ok(None);
        }
        let text: String = self.connection.query_row("SELECT position FROM migration", [], |row| row.get(0))?;
        Position::from_json(&text).map(Some)
    }

    fn begin(&mut self, position: &Position) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        transaction.execute_batch(CREATE_POSITION)?;
        transaction.execute("INSERT INTO migration (position) VALUES (?)", params![position.to_json()?])?;
        Ok(transaction.commit()?)
    }

    fn write(&mut self, table: Table, rows: &[Row], before: &Position, after: &Position) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        if table == Table::EventKeys {
            append_keys(&transaction, rows)?;
        } else {
            insert(&transaction, table, rows)?;
        }
        let sql = "UPDATE migration SET position = ? WHERE position = ?";
        if transaction.execute(sql, params![after.to_json()?, before.to_json()?])? != 1 {
            return Err(StoreError::Refused("the position of the migration has changed".to_owned()));
        }
        Ok(transaction.commit()?)
    }

    fn begin_comparison(&mut self) -> Result<(), StoreError> {
        collect_keys(&self.connection)
    }

    fn finish(self: Box<Self>, facts: JournalFacts) -> Result<(), StoreError> {
        let Self { mut connection, folder, _lock } = *self;
        connection.execute_batch(&format!("DROP TABLE temp.{ALL_KEYS}"))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction()?;
        write_facts(&transaction, facts)?;
        transaction.commit()?;
        // Without a write-ahead log the journal is a single file, which one rename completes. Until then the file keeps
        // the position, so that a crash in between is harmless.
        let mode: String = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        if mode != "delete" {
            return Err(StoreError::Unavailable("another process reads the file".to_owned()));
        }
        connection.close().map_err(|(_, error)| error)?;
        let (filled, journal) = (folder.join(MIGRATING_NAME), folder.join(FILE_NAME));
        let renamed = File::open(&filled)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&filled, &journal))
            .and_then(|()| sync_folder(&journal));
        renamed.map_err(|error| StoreError::Io(format!("cannot rename {}: {error}", filled.display())))?;
        Ok(read_write(&journal)?.execute_batch("DROP TABLE migration")?)
    }
}

/// Inserts rows. An item gets the number of its object instead of the object's URI.
fn insert(transaction: &Transaction<'_>, table: Table, rows: &[Row]) -> Result<(), StoreError> {
    let columns: Vec<_> = table.columns().iter().map(|(name, _)| *name).collect();
    let mut values = vec!["?"; columns.len()];
    if table == Table::Items {
        values[0] = "(SELECT object FROM objects WHERE uri = ?)";
    }
    let (name, columns, values) = (table_name(table), columns.join(", "), values.join(", "));
    let sql = format!("INSERT INTO {name} ({columns}) VALUES ({values})");
    let mut statement = transaction.prepare_cached(&sql)?;
    for row in rows {
        statement.execute(storable_values(row.cells().iter().map(value)))?;
    }
    Ok(())
}

/// Adds event keys, which are in the order of their changes, to the newest run, or to a new run if that one is full.
fn append_keys(connection: &Connection, rows: &[Row]) -> Result<(), StoreError> {
    let newest = runs::all(connection)?.pop();
    let extended = newest.filter(|run| run.keys + rows.len() <= runs::DEFAULT_KEYS);
    let mut keys = extended.map(|run| runs::read(connection, run)).transpose()?.unwrap_or_default();
    let mut received = extended.map_or(i64::MIN, |run| run.received);
    for row in rows {
        keys.push((EventKey(row.uuid("key")?.into_bytes()), row.seq("seq")?));
        received = received.max(row.integer("received")?);
    }
    let keys = runs::in_order(keys);
    let (Some(first), Some(last)) = (keys.iter().map(|(_, seq)| *seq).min(), keys.iter().map(|(_, seq)| *seq).max())
    else {
        return Ok(());
    };
    let number = extended.map_or_else(|| newest.map_or(1, |run| run.number + 1), |run| run.number);
    Ok(runs::write(connection, Run { number, first, last, received, keys: keys.len() }, &keys)?)
}

fn write_facts(transaction: &Transaction<'_>, facts: JournalFacts) -> Result<(), StoreError> {
    let JournalFacts { identity, head: _, newest_seed, newest_quarantined, newest_dead_letter } = facts;
    let set = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)";
    transaction.execute(set, params!["identity", identity.as_bytes().as_slice()])?;
    if newest_seed > 0 {
        transaction.execute(set, params![seeds::NEWEST, newest_seed])?;
    }
    for (table, newest) in [(Table::Quarantine, newest_quarantined), (Table::DeadLetters, newest_dead_letter)] {
        transaction.execute("DELETE FROM sqlite_sequence WHERE name = ?", params![table.name()])?;
        transaction.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", params![table.name(), newest])?;
    }
    Ok(())
}
