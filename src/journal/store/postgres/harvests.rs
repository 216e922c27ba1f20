//! The tables `harvests` and `harvest_runs`: positions of harvests, and the history of their runs.

use tokio_postgres::Row;
use uuid::Uuid;

use super::{connection::Session, row};
use crate::{
    journal::{
        harvest::{HarvestProgress, HarvestRecord, HarvestRun, KEPT_RUNS, RunCounts, RunId},
        store::{StoreError, rows},
    },
    model::{SourceName, Timestamp},
};

pub(super) const WRITE_POSITION: &str = "INSERT INTO harvests (source, position) VALUES ($1, $2)
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

const REQUEST: &str = "INSERT INTO harvests (source, position, requested) VALUES ($1, '', $2)
    ON CONFLICT (source) DO UPDATE SET requested = excluded.requested";

const READ_RUNS: &str = "SELECT id, started, updated, state, reason, pages, records, changes, quarantined, repaired
    FROM harvest_runs WHERE source = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $3::bigint";

/// Writes the progress of harvests.
pub(super) async fn write(session: &Session, harvests: &[HarvestProgress]) -> Result<(), StoreError> {
    for HarvestProgress { position, run } in harvests {
        let HarvestRun { id, source, started, updated, state, reason, counts } = run;
        let RunCounts { pages, records, changes, quarantined, repaired } = *counts;
        let [pages, records, changes, quarantined, repaired] =
            [pages, records, changes, quarantined, repaired].map(rows::number);
        let (id, state, source) = (id.to_string(), state.name(), source.as_str());
        let (started, updated, kept) = (started.millis(), updated.millis(), rows::number(KEPT_RUNS as u64));
        session.execute(WRITE_POSITION, &[&source, &&**position]).await?;
        let values: &[super::connection::Value<'_>] =
            &[&id, &source, &started, &updated, &state, reason, &pages, &records, &changes, &quarantined, &repaired];
        session.execute(WRITE_RUN, values).await?;
        session.execute(TRIM, &[&source, &kept]).await?;
    }
    Ok(())
}

/// Writes the time at which a run was requested.
pub(super) async fn request(session: &Session, source: &SourceName, at: Timestamp) -> Result<(), StoreError> {
    session.execute(REQUEST, &[&source.as_str(), &at.millis()]).await.map(drop)
}

/// Reads the position of a source's harvest.
pub(super) async fn record(session: &Session, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
    let sql = "SELECT position, requested FROM harvests WHERE source = $1";
    let Some(found) = session.query_opt(sql, &[&source.as_str()]).await? else { return Ok(None) };
    Ok(Some(HarvestRecord {
        position: row::get::<&str>(&found, 0)?.into(),
        requested: row::get::<Option<i64>>(&found, 1)?.map(rows::time).transpose()?,
    }))
}

/// Reads runs of a source, newest first.
pub(super) async fn runs(
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

fn read_run(source: &SourceName, found: &Row) -> Result<HarvestRun, StoreError> {
    Ok(HarvestRun {
        id: RunId(Uuid::parse_str(row::get::<&str>(found, 0)?).map_err(rows::damaged)?),
        source: source.clone(),
        started: row::time(found, 1)?,
        updated: row::time(found, 2)?,
        state: rows::run_state(row::get::<&str>(found, 3)?)?,
        reason: row::get(found, 4)?,
        counts: RunCounts {
            pages: row::unsigned(found, 5)?,
            records: row::unsigned(found, 6)?,
            changes: row::unsigned(found, 7)?,
            quarantined: row::unsigned(found, 8)?,
            repaired: row::unsigned(found, 9)?,
        },
    })
}
