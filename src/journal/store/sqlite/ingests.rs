//! The tables `ingest_jobs` and `results`: jobs that archive datasets, and the newest results of objects.

use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::value::{self, params};
use super::{SqliteStore, rows};
use crate::{
    journal::{
        ingest::{IngestJob, JobId, JobSelection, JobState, ObjectResult},
        store::{IngestStore, NewChange, StoreError},
    },
    model::{SourceName, Text, Timestamp, Uri},
};

/// Statement that writes a job. A job that is being cancelled does not become a running one.
const WRITE_JOB: &str = "INSERT INTO ingest_jobs AS stored
    (source, dataset, id, host, request, state, due, attempts, status, message, requested, updated)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (source, dataset) DO UPDATE SET
        (host, request, state, due, attempts, status, message, requested, updated) =
        (excluded.host, excluded.request,
         iif(stored.state = 'cancelling' AND excluded.state = 'running', stored.state, excluded.state),
         excluded.due, excluded.attempts, excluded.status, excluded.message, excluded.requested, excluded.updated)";

/// Statement that asks a harvest to cancel a job, before all jobs that wait.
const CANCEL: &str = "UPDATE ingest_jobs SET state = 'cancelling', due = 0, updated = ?2
    WHERE id = ?1 AND (state IN ('waiting', 'running') OR due IS NOT NULL)";

const READ_JOBS: &str =
    "SELECT source, dataset, id, host, request, state, due, attempts, status, message, requested, updated
    FROM ingest_jobs";

/// Condition for the earliest due job of each host. The query steps from host to host in the index, so it takes as long
/// for a host with a million jobs as for one with a single one.
const DUE_BY_HOST: &str = "WHERE id IN (
        WITH RECURSIVE hosts (host) AS (
            SELECT min(host) FROM ingest_jobs WHERE source = ?1 AND due IS NOT NULL
            UNION ALL
            SELECT (SELECT min(host) FROM ingest_jobs WHERE source = ?1 AND due IS NOT NULL AND host > hosts.host)
            FROM hosts WHERE hosts.host IS NOT NULL
        )
        SELECT (SELECT id FROM ingest_jobs WHERE source = ?1 AND host = hosts.host AND due <= ?2 ORDER BY due LIMIT 1)
        FROM hosts WHERE hosts.host IS NOT NULL
    ) ORDER BY due LIMIT ?3";

const WRITE_RESULT: &str = "INSERT OR REPLACE INTO results (object, seq, received, result) VALUES (?, ?, ?, ?)";

impl IngestStore for SqliteStore {
    fn ingest_jobs(&self, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError> {
        self.readers.read(|connection| jobs(connection, selection, limit))
    }

    fn next_ingest(&self, source: &SourceName) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(|connection| {
            let sql = "SELECT min(due) FROM ingest_jobs WHERE source = ? AND due IS NOT NULL";
            let next: Option<i64> =
                connection.prepare_cached(sql)?.query_row(params![source.as_str()], |row| row.get(0))?;
            next.map(rows::time).transpose()
        })
    }

    fn object_result(&self, object: &Uri) -> Result<Option<ObjectResult>, StoreError> {
        self.readers.read(|connection| result(connection, object))
    }
}

/// Writes jobs.
pub(super) fn write_jobs(connection: &Connection, jobs: &[IngestJob]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let mut write = connection.prepare_cached(WRITE_JOB)?;
    for job in jobs {
        write.execute(params![
            job.source.as_str(),
            job.dataset.as_str(),
            job.id.to_string(),
            job.host,
            job.request.as_str(),
            job.state.name(),
            job.due.map(Timestamp::millis),
            job.attempts,
            job.status,
            job.message.as_ref().map(Text::as_str),
            job.requested.millis(),
            job.updated.millis(),
        ])?;
    }
    Ok(())
}

/// Writes the results of changes, and removes those of purged objects.
pub(super) fn write_results(connection: &Connection, changes: &[NewChange]) -> Result<(), StoreError> {
    for NewChange { change, .. } in changes {
        let object = change.modification.object.as_str();
        if let Some(result) = change.modification.report.as_ref().and_then(|report| report.result()) {
            let values = params![object, rows::number(change.seq.0), change.received.millis(), result.as_str()];
            connection.prepare_cached(WRITE_RESULT)?.execute(values)?;
        } else if change.settlement.purge {
            connection.prepare_cached("DELETE FROM results WHERE object = ?")?.execute(params![object])?;
        }
    }
    Ok(())
}

/// Asks the harvest of a job to cancel it.
pub(super) fn cancel(connection: &Connection, job: JobId, at: Timestamp) -> Result<usize, StoreError> {
    Ok(connection.prepare_cached(CANCEL)?.execute(params![job.to_string(), at.millis()])?)
}

fn jobs(connection: &Connection, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError> {
    let limit = rows::number(limit as u64);
    let query = |condition: &str, values: &[&dyn rusqlite::ToSql]| -> Result<Vec<IngestJob>, StoreError> {
        let mut statement = connection.prepare_cached(&format!("{READ_JOBS} {condition}"))?;
        let mut found = statement.query(values)?;
        let mut jobs = Vec::new();
        while let Some(row) = found.next()? {
            jobs.push(read_job(row)?);
        }
        Ok(jobs)
    };
    match selection {
        JobSelection::Due(source, at) => {
            query("WHERE source = ? AND due <= ? ORDER BY due LIMIT ?", &[&source.as_str(), &at.millis(), &limit])
        }
        JobSelection::DueByHost(source, at) => query(DUE_BY_HOST, &[&source.as_str(), &at.millis(), &limit]),
        JobSelection::InState(source, state) => {
            query("WHERE source = ? AND state = ? ORDER BY id LIMIT ?", &[&source.as_str(), &state.name(), &limit])
        }
        JobSelection::All { before, state } => query(
            "WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT ?3",
            &[&before.map(|id| id.to_string()), &state.map(JobState::name), &limit],
        ),
        JobSelection::Some(ids) => {
            let mut jobs = Vec::new();
            for id in ids {
                jobs.extend(query("WHERE id = ?", &[&id.to_string()])?);
            }
            Ok(jobs)
        }
    }
}

fn read_job(row: &Row<'_>) -> Result<IngestJob, StoreError> {
    let text = |index| row.get::<_, String>(index);
    Ok(IngestJob {
        source: SourceName::parse(&text(0)?).map_err(rows::damaged)?,
        dataset: rows::uri(&text(1)?)?,
        id: JobId(Uuid::parse_str(&text(2)?).map_err(rows::damaged)?),
        host: text(3)?,
        request: rows::json(&text(4)?)?,
        state: rows::job_state(&text(5)?)?,
        due: row.get::<_, Option<i64>>(6)?.map(rows::time).transpose()?,
        attempts: row.get(7)?,
        status: row.get(8)?,
        message: value::text(row, 9)?,
        requested: rows::time(row.get(10)?)?,
        updated: rows::time(row.get(11)?)?,
    })
}

fn result(connection: &Connection, object: &Uri) -> Result<Option<ObjectResult>, StoreError> {
    let sql = "SELECT seq, received, result FROM results WHERE object = ?";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?));
    let found: Option<(i64, i64, String)> =
        connection.prepare_cached(sql)?.query_row(params![object.as_str()], read).optional()?;
    let Some((seq, received, result)) = found else { return Ok(None) };
    Ok(Some(ObjectResult { seq: rows::seq(seq)?, received: rows::time(received)?, result: rows::json(&result)? }))
}
