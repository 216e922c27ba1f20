//! The tables `harvests`, `harvest_runs` and `harvest_records`: positions of harvests, the history of their runs, and the
//! records that repositories have listed.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior};
use uuid::Uuid;

use super::value::{self, params, storable_values};
use super::{SqliteStore, ingests, rows};
use crate::{
    journal::{
        harvest::{
            Claim, FormerRecords, HarvestDefinition, HarvestProgress, HarvestRecord, HarvestRun, HarvestWrite,
            KEPT_RUNS, ListedCounts, ListedRecord, ListedRecords, MAX_CLAIMS, RunCounts, RunId, SourcePosition,
        },
        store::{HarvestStore, StoreError},
    },
    model::{SourceName, Text, Timestamp},
};

const WRITE_POSITION: &str = "INSERT INTO harvests (source, position) VALUES (?, ?)
    ON CONFLICT (source) DO UPDATE SET position = excluded.position";

const DEFINE: &str = "INSERT INTO harvests (source, position, definition) VALUES (?, '', ?)
    ON CONFLICT (source) DO UPDATE SET definition = excluded.definition";

const SET_PAUSED: &str = "INSERT INTO harvests (source, position, paused) VALUES (?, '', ?)
    ON CONFLICT (source) DO UPDATE SET paused = excluded.paused";

const SET_LEASE: &str = "INSERT INTO harvests (source, position, lease) VALUES (?, '', ?)
    ON CONFLICT (source) DO UPDATE SET lease = excluded.lease";

const REQUEST: &str = "INSERT INTO harvests (source, position, requested) VALUES (?, '', ?)
    ON CONFLICT (source) DO UPDATE SET requested = excluded.requested";

const WRITE_RUN: &str = "INSERT OR REPLACE INTO harvest_runs
    (id, source, started, updated, state, reason, pages, records, changes, quarantined, repaired)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Statement that removes the oldest runs of a source.
const TRIM: &str = "DELETE FROM harvest_runs WHERE source = ?1
    AND id <= (SELECT id FROM harvest_runs WHERE source = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";

const CLEAR_LISTED: &str = "DELETE FROM harvest_records WHERE source = ?";

const READ_RUNS: &str = "SELECT id, started, updated, state, reason, pages, records, changes, quarantined, repaired
    FROM harvest_runs WHERE source = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3";

impl HarvestStore for SqliteStore {
    fn harvest(&self, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
        self.readers.read(|connection| record(connection, source))
    }

    fn harvest_runs(
        &self,
        source: &SourceName,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<HarvestRun>, StoreError> {
        self.readers.read(|connection| runs(connection, source, before, limit))
    }

    fn listed_counts(&self, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError> {
        self.readers.read(|connection| listed_counts(connection, source, since))
    }

    fn missing_records(
        &self,
        source: &SourceName,
        since: Timestamp,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.readers.read(|connection| missing_records(connection, source, since, after, limit))
    }

    fn validators(&self, source: &SourceName, identifiers: &[String]) -> Result<HashMap<String, String>, StoreError> {
        self.readers.read(|connection| validators(connection, source, identifiers))
    }

    fn claims(&self, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError> {
        self.readers.read(|connection| claims(connection, source, identifiers))
    }

    fn shared_records(&self, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError> {
        self.readers.read(|connection| shared_records(connection, source, limit))
    }

    fn write_harvest(&self, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError> {
        modify(&mut self.write_side()?.connection, source, write)
    }

    fn harvest_definitions(&self) -> Result<Vec<HarvestDefinition>, StoreError> {
        self.readers.read(definitions)
    }
}

/// Writes the positions of sources that read brokers.
pub(super) fn write_positions(connection: &Connection, positions: &[SourcePosition]) -> Result<(), StoreError> {
    for SourcePosition { source, position } in positions {
        connection.prepare_cached(WRITE_POSITION)?.execute(params![source.as_str(), position.as_ref()])?;
    }
    Ok(())
}

/// Writes the progress of harvests.
pub(super) fn write(connection: &Connection, harvests: &[HarvestProgress]) -> Result<(), StoreError> {
    for HarvestProgress { position, run, listed, jobs } in harvests {
        let HarvestRun { id, source, started, updated, state, reason, counts } = run;
        let RunCounts { pages, records, changes, quarantined, repaired } = *counts;
        let [pages, records, changes, quarantined, repaired] =
            [pages, records, changes, quarantined, repaired].map(rows::number);
        connection.prepare_cached(WRITE_POSITION)?.execute(params![source.as_str(), position.as_ref()])?;
        connection.prepare_cached(WRITE_RUN)?.execute(params![
            id.to_string(),
            source.as_str(),
            started.millis(),
            updated.millis(),
            state.name(),
            reason.as_ref().map(Text::as_str),
            pages,
            records,
            changes,
            quarantined,
            repaired,
        ])?;
        connection.prepare_cached(TRIM)?.execute(params![source.as_str(), rows::number(KEPT_RUNS as u64)])?;
        write_listed(connection, source, listed)?;
        ingests::write_jobs(connection, jobs)?;
    }
    Ok(())
}

fn write_listed(connection: &Connection, source: &SourceName, listed: &ListedRecords) -> Result<(), StoreError> {
    let ListedRecords { former, gone, present, at } = listed;
    match former {
        FormerRecords::Keep => {}
        FormerRecords::Rename(name) => {
            let rename = "UPDATE OR REPLACE harvest_records SET source = ?2 WHERE source = ?1";
            connection.prepare_cached(rename)?.execute([source.as_str(), name.as_str()])?;
        }
        FormerRecords::Unlist => {
            let remove = "DELETE FROM harvest_records WHERE source = ? AND validator = ''";
            connection.prepare_cached(remove)?.execute([source.as_str()])?;
            let unlist = "UPDATE harvest_records SET listed = -1 WHERE source = ? AND listed >= 0";
            connection.prepare_cached(unlist)?.execute([source.as_str()])?;
        }
    }
    let mut remove = connection.prepare_cached("DELETE FROM harvest_records WHERE source = ? AND identifier = ?")?;
    for identifier in gone {
        remove.execute(params![source.as_str(), identifier])?;
    }
    let Some(at) = at else { return Ok(()) };
    let mut write = connection.prepare_cached("INSERT OR REPLACE INTO harvest_records VALUES (?, ?, ?, ?)")?;
    for record in present {
        let ListedRecord { identifier, validator, .. } = record;
        write.execute(params![source.as_str(), identifier, record.listed_millis(*at), validator])?;
    }
    Ok(())
}

/// Executes a modification by an administrator.
fn modify(connection: &mut Connection, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let run =
        |sql: &str, values: &[&dyn rusqlite::ToSql]| transaction.prepare_cached(sql)?.execute(storable_values(values));
    match write {
        HarvestWrite::Request(at) => run(REQUEST, &[&source.as_str(), &at.millis()])?,
        HarvestWrite::Define(text) => run(DEFINE, &[&source.as_str(), &text.expose()])?,
        HarvestWrite::SetLease(lease) => run(SET_LEASE, &[&source.as_str(), &lease.map(Timestamp::millis)])?,
        HarvestWrite::SetPaused(paused) => run(SET_PAUSED, &[&source.as_str(), paused])?,
        HarvestWrite::CancelJob(job, at) => ingests::cancel(&transaction, *job, *at)?,
        HarvestWrite::Remove => {
            run(CLEAR_LISTED, &[&source.as_str()])?;
            run("DELETE FROM ingest_jobs WHERE source = ?", &[&source.as_str()])?;
            run("DELETE FROM harvest_runs WHERE source = ?", &[&source.as_str()])?;
            run("DELETE FROM harvests WHERE source = ?", &[&source.as_str()])?
        }
    };
    transaction.commit()?;
    Ok(())
}

/// Reads the harvests that were made over HTTP.
fn definitions(connection: &Connection) -> Result<Vec<HarvestDefinition>, StoreError> {
    let sql = "SELECT source, definition FROM harvests WHERE definition IS NOT NULL ORDER BY source";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([])?;
    let mut definitions = Vec::new();
    while let Some(row) = found.next()? {
        let source = SourceName::parse(&row.get::<_, String>(0)?).map_err(rows::damaged)?;
        definitions.push(HarvestDefinition { source, text: row.get::<_, String>(1)?.into() });
    }
    Ok(definitions)
}

/// Reads the position of a source's harvest.
fn record(connection: &Connection, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
    let sql = "SELECT position, requested, paused, lease FROM harvests WHERE source = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![source.as_str()])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let time = |index| row.get::<_, Option<i64>>(index)?.map(rows::time).transpose();
    let position = row.get::<_, String>(0)?.into();
    Ok(Some(HarvestRecord { position, requested: time(1)?, paused: row.get(2)?, lease: time(3)? }))
}

/// Reads runs of a source, newest first.
fn runs(
    connection: &Connection,
    source: &SourceName,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<HarvestRun>, StoreError> {
    let mut statement = connection.prepare_cached(READ_RUNS)?;
    let before = before.map(|before| before.to_string());
    let mut found = statement.query(params![source.as_str(), before, rows::number(limit as u64)])?;
    let mut runs = Vec::new();
    while let Some(row) = found.next()? {
        runs.push(read_run(source, row)?);
    }
    Ok(runs)
}

/// Counts the listed records of a source.
fn listed_counts(connection: &Connection, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError> {
    let sql = "SELECT count(*), count(*) FILTER (WHERE listed < ?2) FROM harvest_records
        WHERE source = ?1 AND listed >= 0";
    let mut statement = connection.prepare_cached(sql)?;
    let (all, missing) = statement.query_row(params![source.as_str(), since.millis()], |row| {
        Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
    Ok(ListedCounts { all, missing })
}

/// Reads the identifiers of records that were not listed since a time.
fn missing_records(
    connection: &Connection,
    source: &SourceName,
    since: Timestamp,
    after: &str,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let sql =
        "SELECT identifier FROM harvest_records WHERE source = ? AND identifier > ? AND listed < ? AND listed >= 0
        ORDER BY identifier LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let values = params![source.as_str(), after, since.millis(), rows::number(limit as u64)];
    let found = statement.query_map(values, |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Reads the validators of listed records.
fn validators(
    connection: &Connection,
    source: &SourceName,
    identifiers: &[String],
) -> Result<HashMap<String, String>, StoreError> {
    let sql = "SELECT validator FROM harvest_records WHERE source = ? AND identifier = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut validators = HashMap::new();
    for identifier in identifiers {
        let found = statement.query_row(params![source.as_str(), identifier], |row| row.get(0)).optional()?;
        validators.extend(found.map(|validator| (identifier.clone(), validator)));
    }
    Ok(validators)
}

/// Reads the records of other sources with these identifiers.
fn claims(connection: &Connection, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError> {
    let sql = "SELECT listed.identifier, listed.source, listed.validator, listed.listed >= 0
        FROM harvests JOIN harvest_records AS listed ON listed.source = harvests.source AND listed.identifier = ?2
        WHERE harvests.source <> ?1 ORDER BY listed.source LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut claims = Vec::new();
    for identifier in identifiers {
        let found =
            statement.query_map(params![source.as_str(), identifier, rows::number(MAX_CLAIMS as u64)], read_claim)?;
        claims.extend(found.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(claims)
}

/// Reads the records of other sources that a source lists too.
fn shared_records(connection: &Connection, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError> {
    // The cross join keeps the order of the tables: each record is looked up by its key.
    let sql = "SELECT listed.identifier, listed.source, listed.validator, listed.listed >= 0
        FROM harvest_records AS own CROSS JOIN harvests
            CROSS JOIN harvest_records AS listed
                ON listed.source = harvests.source AND listed.identifier = own.identifier
        WHERE own.source = ?1 AND own.listed >= 0 AND harvests.source <> ?1
        ORDER BY listed.identifier, listed.source LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(params![source.as_str(), rows::number(limit as u64)], read_claim)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn read_claim(row: &Row<'_>) -> rusqlite::Result<Claim> {
    Ok(Claim { identifier: row.get(0)?, source: row.get(1)?, validator: row.get(2)?, is_listed: row.get(3)? })
}

fn read_run(source: &SourceName, row: &Row<'_>) -> Result<HarvestRun, StoreError> {
    let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
    Ok(HarvestRun {
        id: RunId(Uuid::parse_str(&row.get::<_, String>(0)?).map_err(rows::damaged)?),
        source: source.clone(),
        started: rows::time(row.get(1)?)?,
        updated: rows::time(row.get(2)?)?,
        state: rows::run_state(&row.get::<_, String>(3)?)?,
        reason: value::text(row, 4)?,
        counts: RunCounts {
            pages: unsigned(5)?,
            records: unsigned(6)?,
            changes: unsigned(7)?,
            quarantined: unsigned(8)?,
            repaired: unsigned(9)?,
        },
    })
}
