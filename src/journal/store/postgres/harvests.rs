//! The tables `harvests`, `harvest_runs` and `harvest_records`: positions of harvests, the history of their runs, and the
//! records that repositories have listed.

use std::collections::{BTreeMap, HashMap};

use futures_util::FutureExt;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    connection::{Session, Step, pipeline},
    ingests, row,
    subscriptions::END_DUTY,
    value::Value,
};
use crate::{
    journal::{
        harvest::{
            Claim, FormerRecords, HarvestDefinition, HarvestProgress, HarvestRecord, HarvestRun, HarvestWrite,
            KEPT_RUNS, ListedCounts, ListedRecords, MAX_CLAIMS, RunCounts, RunId, SourcePosition,
        },
        nodes::DutyName,
        store::{HarvestStore, StoreError, rows},
    },
    model::{SourceName, Text, Timestamp},
};

pub(super) const WRITE_POSITION: &str = "INSERT INTO harvests (source, position) VALUES ($1, $2)
    ON CONFLICT (source) DO UPDATE SET position = excluded.position";

/// Statement that writes the positions of several sources.
pub(super) const WRITE_POSITIONS: &str = "INSERT INTO harvests (source, position)
    SELECT * FROM unnest($1::text[], $2::text[])
    ON CONFLICT (source) DO UPDATE SET position = excluded.position";

pub(super) const WRITE_RUN: &str = "INSERT INTO harvest_runs
        (id, source, started, updated, state, reason, pages, records, changes, quarantined, repaired)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (id) DO UPDATE SET (updated, state, reason, pages, records, changes, quarantined, repaired) =
        (excluded.updated, excluded.state, excluded.reason, excluded.pages, excluded.records, excluded.changes,
         excluded.quarantined, excluded.repaired)";

/// Statement that removes the oldest runs of a source.
pub(super) const TRIM: &str = "DELETE FROM harvest_runs WHERE source = $1
    AND id <= (SELECT id FROM harvest_runs WHERE source = $1 ORDER BY id DESC LIMIT 1 OFFSET $2::bigint)";

pub(super) const CLEAR_LISTED: &str = "DELETE FROM harvest_records WHERE source = $1";

/// Statement that keeps the records of a source under another name. Those that the name has already stay.
pub(super) const RENAME_LISTED: &str = "WITH former AS (DELETE FROM harvest_records WHERE source = $1
        RETURNING identifier, listed, validator)
    INSERT INTO harvest_records (source, identifier, listed, validator)
    SELECT $2::text, identifier, listed, validator FROM former
    ON CONFLICT (source, identifier) DO NOTHING";

/// Statement that removes the records of a source without a validator, and unlists the others.
pub(super) const UNLIST: &str = "WITH removed AS (DELETE FROM harvest_records WHERE source = $1 AND validator = '')
    UPDATE harvest_records SET listed = -1 WHERE source = $1 AND listed >= 0 AND validator <> ''";

pub(super) const REMOVE_LISTED: &str =
    "DELETE FROM harvest_records WHERE source = $1 AND identifier = ANY ($2::text[])";

/// Statement that writes listed records. A page may have an identifier twice, which one statement must not write twice.
pub(super) const WRITE_LISTED: &str = "INSERT INTO harvest_records (source, identifier, listed, validator)
    SELECT DISTINCT ON (identifier) $1::text, identifier, listed, validator
    FROM unnest($2::text[], $3::text[], $4::bigint[]) AS present (identifier, validator, listed)
    ON CONFLICT (source, identifier) DO UPDATE SET (listed, validator) = (excluded.listed, excluded.validator)";

const DEFINE: &str = "INSERT INTO harvests (source, position, definition) VALUES ($1, '', $2)
    ON CONFLICT (source) DO UPDATE SET definition = excluded.definition";

const SET_PAUSED: &str = "INSERT INTO harvests (source, position, paused) VALUES ($1, '', $2)
    ON CONFLICT (source) DO UPDATE SET paused = excluded.paused";

const SET_LEASE: &str = "INSERT INTO harvests (source, position, lease) VALUES ($1, '', $2)
    ON CONFLICT (source) DO UPDATE SET lease = excluded.lease";

const REQUEST: &str = "INSERT INTO harvests (source, position, requested) VALUES ($1, '', $2)
    ON CONFLICT (source) DO UPDATE SET requested = excluded.requested";

const READ_RUNS: &str = "SELECT id, started, updated, state, reason, pages, records, changes, quarantined, repaired
    FROM harvest_runs WHERE source = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $3::bigint";

impl HarvestStore for PostgresStore {
    fn harvest(&self, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
        self.read(async |session| record(session, source).await)
    }

    fn harvest_runs(
        &self,
        source: &SourceName,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<HarvestRun>, StoreError> {
        self.read(async |session| runs(session, source, before, limit).await)
    }

    fn listed_counts(&self, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError> {
        self.read(async |session| listed_counts(session, source, since).await)
    }

    fn missing_records(
        &self,
        source: &SourceName,
        since: Timestamp,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.read(async |session| missing_records(session, source, since, after, limit).await)
    }

    fn validators(&self, source: &SourceName, identifiers: &[String]) -> Result<HashMap<String, String>, StoreError> {
        self.read(async |session| validators(session, source, identifiers).await)
    }

    fn claims(&self, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError> {
        self.read(async |session| claims(session, source, identifiers).await)
    }

    fn shared_records(&self, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError> {
        self.read(async |session| shared_records(session, source, limit).await)
    }

    fn write_harvest(&self, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError> {
        self.write(async |session| modify(session, source, write).await)
    }

    fn harvest_definitions(&self) -> Result<Vec<HarvestDefinition>, StoreError> {
        self.read(async |session| definitions(session).await)
    }
}

/// Writes the positions of sources that read brokers.
pub(super) async fn write_positions(session: &Session, positions: &[SourcePosition]) -> Result<(), StoreError> {
    if positions.is_empty() {
        return Ok(());
    }
    // One statement cannot write a row twice, and a later position replaces an earlier one.
    let newest: BTreeMap<_, _> = positions.iter().map(|at| (at.source.as_str(), &*at.position)).collect();
    let (sources, positions): (Vec<_>, Vec<_>) = newest.into_iter().unzip();
    session.execute(WRITE_POSITIONS, &[&sources, &positions]).await.map(drop)
}

/// Writes the progress of harvests.
pub(super) async fn write(session: &Session, harvests: &[HarvestProgress]) -> Result<(), StoreError> {
    let mut steps = Vec::new();
    for HarvestProgress { position, run, listed, jobs } in harvests {
        let source = run.source.as_str();
        steps.push(write_position(session, source, position).boxed_local());
        steps.push(write_run(session, run).boxed_local());
        steps.push(trim_runs(session, source).boxed_local());
        steps.extend(listed_steps(session, source, listed));
        steps.push(ingests::write_jobs(session, jobs).boxed_local());
    }
    pipeline(steps).await
}

async fn write_position(session: &Session, source: &str, position: &str) -> Result<(), StoreError> {
    session.execute(WRITE_POSITION, &[&source, &position]).await.map(drop)
}

async fn write_run(session: &Session, run: &HarvestRun) -> Result<(), StoreError> {
    let HarvestRun { id, source, started, updated, state, reason, counts } = run;
    let RunCounts { pages, records, changes, quarantined, repaired } = *counts;
    let [pages, records, changes, quarantined, repaired] =
        [pages, records, changes, quarantined, repaired].map(rows::number);
    let (id, state, source) = (id.to_string(), state.name(), source.as_str());
    let (started, updated) = (started.millis(), updated.millis());
    let reason = reason.as_ref().map(Text::as_str);
    let values: &[Value<'_>] =
        &[&id, &source, &started, &updated, &state, &reason, &pages, &records, &changes, &quarantined, &repaired];
    session.execute(WRITE_RUN, values).await.map(drop)
}

async fn trim_runs(session: &Session, source: &str) -> Result<(), StoreError> {
    session.execute(TRIM, &[&source, &rows::number(KEPT_RUNS as u64)]).await.map(drop)
}

/// Returns the statements that write listed records.
fn listed_steps<'s>(session: &'s Session, source: &'s str, listed: &'s ListedRecords) -> Vec<Step<'s>> {
    let ListedRecords { former, gone, present, at } = listed;
    let treat = match former {
        FormerRecords::Keep => None,
        FormerRecords::Rename(name) => Some(
            async move { session.execute(RENAME_LISTED, &[&source, &name.as_str()]).await.map(drop) }.boxed_local(),
        ),
        FormerRecords::Unlist => Some(async move { session.execute(UNLIST, &[&source]).await.map(drop) }.boxed_local()),
    };
    let remove = async move { session.execute(REMOVE_LISTED, &[&source, gone]).await.map(drop) };
    let write = move |at: Timestamp| async move {
        let identifiers: Vec<_> = present.iter().map(|record| &*record.identifier).collect();
        let validators: Vec<_> = present.iter().map(|record| &*record.validator).collect();
        let listed: Vec<_> = present.iter().map(|record| record.listed_millis(at)).collect();
        session.execute(WRITE_LISTED, &[&source, &identifiers, &validators, &listed]).await.map(drop)
    };
    let remove = (!gone.is_empty()).then(|| remove.boxed_local());
    let write = at.filter(|_| !present.is_empty()).map(|at| write(at).boxed_local());
    treat.into_iter().chain(remove).chain(write).collect()
}

/// Executes a modification by an administrator.
async fn modify(session: &Session, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError> {
    let name = source.as_str();
    match write {
        HarvestWrite::Request(at) => session.execute(REQUEST, &[&name, &at.millis()]).await.map(drop),
        HarvestWrite::Define(text) => session.execute(DEFINE, &[&name, &text.expose()]).await.map(drop),
        HarvestWrite::SetLease(lease) => {
            session.execute(SET_LEASE, &[&name, &lease.map(Timestamp::millis)]).await.map(drop)
        }
        HarvestWrite::SetPaused(paused) => session.execute(SET_PAUSED, &[&name, paused]).await.map(drop),
        HarvestWrite::CancelJob(job, at) => ingests::cancel(session, *job, *at).await,
        HarvestWrite::Remove => {
            // First, as in every transaction. Whichever node harvests the source can then write no more of it.
            session.execute(END_DUTY, &[&DutyName::source(source).as_str()]).await?;
            session.execute(CLEAR_LISTED, &[&name]).await?;
            session.execute("DELETE FROM ingest_jobs WHERE source = $1", &[&name]).await?;
            session.execute("DELETE FROM harvest_runs WHERE source = $1", &[&name]).await?;
            session.execute("DELETE FROM harvests WHERE source = $1", &[&name]).await.map(drop)
        }
    }
}

/// Reads the harvests that were made over HTTP.
async fn definitions(session: &Session) -> Result<Vec<HarvestDefinition>, StoreError> {
    let sql = "SELECT source, definition FROM harvests WHERE definition IS NOT NULL ORDER BY source";
    let read = |found: &Row| {
        let source = SourceName::parse(row::get::<&str>(found, 0)?).map_err(rows::damaged)?;
        Ok(HarvestDefinition { source, text: row::get::<String>(found, 1)?.into() })
    };
    session.query(sql, &[]).await?.iter().map(read).collect()
}

/// Reads the position of a source's harvest.
async fn record(session: &Session, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
    let sql = "SELECT position, requested, paused, lease FROM harvests WHERE source = $1";
    let Some(found) = session.query_opt(sql, &[&source.as_str()]).await? else { return Ok(None) };
    let time = |index| row::get::<Option<i64>>(&found, index)?.map(rows::time).transpose();
    let position = row::get::<&str>(&found, 0)?.into();
    Ok(Some(HarvestRecord { position, requested: time(1)?, paused: row::get(&found, 2)?, lease: time(3)? }))
}

/// Reads runs of a source, newest first.
async fn runs(
    session: &Session,
    source: &SourceName,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<HarvestRun>, StoreError> {
    let before = before.map(|before| before.to_string());
    let limit = rows::number(limit as u64);
    let found = session.query(READ_RUNS, &[&source.as_str(), &before, &limit]).await?;
    found.iter().map(|found| read_run(source, found)).collect()
}

/// Counts the listed records of a source.
async fn listed_counts(session: &Session, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError> {
    let sql = "SELECT count(*), count(*) FILTER (WHERE listed < $2) FROM harvest_records
        WHERE source = $1 AND listed >= 0";
    let found = session.query_opt(sql, &[&source.as_str(), &since.millis()]).await?;
    // An aggregate without groups always has a row.
    let count = |index| found.as_ref().map_or(Ok(0), |found| row::unsigned(found, index));
    Ok(ListedCounts { all: count(0)?, missing: count(1)? })
}

/// Reads the identifiers of records that were not listed since a time.
async fn missing_records(
    session: &Session,
    source: &SourceName,
    since: Timestamp,
    after: &str,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let sql =
        "SELECT identifier FROM harvest_records WHERE source = $1 AND identifier > $2 AND listed < $3 AND listed >= 0
        ORDER BY identifier LIMIT $4::bigint";
    let values: &[Value<'_>] = &[&source.as_str(), &after, &since.millis(), &rows::number(limit as u64)];
    session.query(sql, values).await?.iter().map(|found| row::get::<String>(found, 0)).collect()
}

/// Reads the validators of listed records.
async fn validators(
    session: &Session,
    source: &SourceName,
    identifiers: &[String],
) -> Result<HashMap<String, String>, StoreError> {
    let sql = "SELECT identifier, validator FROM harvest_records WHERE source = $1 AND identifier = ANY ($2::text[])";
    let found = session.query(sql, &[&source.as_str(), &identifiers]).await?;
    found.iter().map(|found| Ok((row::get(found, 0)?, row::get(found, 1)?))).collect()
}

/// Reads the records of other sources with these identifiers.
async fn claims(session: &Session, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError> {
    let sql = "SELECT claim.* FROM unnest($2::text[]) AS asked (identifier), LATERAL (
            SELECT listed.identifier, listed.source, listed.validator, listed.listed >= 0
            FROM harvests JOIN harvest_records AS listed
                ON listed.source = harvests.source AND listed.identifier = asked.identifier
            WHERE harvests.source <> $1 ORDER BY listed.source COLLATE \"C\" LIMIT $3
        ) AS claim";
    let limit = rows::number(MAX_CLAIMS as u64);
    session.query(sql, &[&source.as_str(), &identifiers, &limit]).await?.iter().map(read_claim).collect()
}

/// Reads the records of other sources that a source lists too.
async fn shared_records(session: &Session, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError> {
    let sql = "SELECT listed.identifier, listed.source, listed.validator, listed.listed >= 0
        FROM harvest_records AS own
            JOIN harvests ON harvests.source <> own.source
            JOIN harvest_records AS listed
                ON listed.source = harvests.source AND listed.identifier = own.identifier
        WHERE own.source = $1 AND own.listed >= 0
        ORDER BY listed.identifier COLLATE \"C\", listed.source COLLATE \"C\" LIMIT $2";
    let limit = rows::number(limit as u64);
    session.query(sql, &[&source.as_str(), &limit]).await?.iter().map(read_claim).collect()
}

fn read_claim(found: &Row) -> Result<Claim, StoreError> {
    Ok(Claim {
        identifier: row::get(found, 0)?,
        source: row::get(found, 1)?,
        validator: row::get(found, 2)?,
        is_listed: row::get(found, 3)?,
    })
}

fn read_run(source: &SourceName, found: &Row) -> Result<HarvestRun, StoreError> {
    Ok(HarvestRun {
        id: RunId(Uuid::parse_str(row::get::<&str>(found, 0)?).map_err(rows::damaged)?),
        source: source.clone(),
        started: row::time(found, 1)?,
        updated: row::time(found, 2)?,
        state: rows::run_state(row::get::<&str>(found, 3)?)?,
        reason: row::text(found, 4)?,
        counts: RunCounts {
            pages: row::unsigned(found, 5)?,
            records: row::unsigned(found, 6)?,
            changes: row::unsigned(found, 7)?,
            quarantined: row::unsigned(found, 8)?,
            repaired: row::unsigned(found, 9)?,
        },
    })
}
