//! The tables `ingest_jobs` and `results`: jobs that archive datasets, and the newest results of objects.

use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    connection::{Session, Value},
    row,
};
use crate::{
    journal::{
        ingest::{IngestJob, JobId, JobSelection, JobState, ObjectResult},
        store::{IngestStore, NewChange, StoreError, rows},
    },
    model::{SourceName, Timestamp, Uri},
};

/// Statement that writes a job. A job that is being cancelled does not become a running one.
pub(super) const WRITE_JOB: &str = "INSERT INTO ingest_jobs AS stored
    (source, dataset, id, request, state, due, attempts, status, message, requested, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (source, dataset) DO UPDATE SET
        (request, state, due, attempts, status, message, requested, updated) =
        (excluded.request,
         CASE WHEN stored.state = 'cancelling' AND excluded.state = 'running' THEN stored.state ELSE excluded.state END,
         excluded.due, excluded.attempts, excluded.status, excluded.message, excluded.requested, excluded.updated)";

/// Statement that asks a harvest to cancel a job, before all jobs that wait.
const CANCEL: &str = "UPDATE ingest_jobs SET state = 'cancelling', due = 0, updated = $2
    WHERE id = $1 AND (state IN ('waiting', 'running') OR due IS NOT NULL)";

/// Returns the query for jobs with a condition.
macro_rules! jobs_where {
    ($condition:literal) => {
        concat!(
            "SELECT source, dataset, id, request, state, due, attempts, status, message, requested, updated
             FROM ingest_jobs WHERE ",
            $condition
        )
    };
}

pub(super) const WRITE_RESULT: &str = "INSERT INTO results (object, seq, received, result) VALUES ($1, $2, $3, $4)
    ON CONFLICT (object) DO UPDATE SET (seq, received, result) = (excluded.seq, excluded.received, excluded.result)";

pub(super) const REMOVE_RESULT: &str = "DELETE FROM results WHERE object = $1";

impl IngestStore for PostgresStore {
    fn ingest_jobs(&self, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError> {
        self.read(async |session| jobs(session, selection, limit).await)
    }

    fn next_ingest(&self, source: &SourceName) -> Result<Option<Timestamp>, StoreError> {
        self.read(async |session| {
            let sql = "SELECT min(due) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL";
            let found = session.query_one(sql, &[&source.as_str()]).await?;
            row::get::<Option<i64>>(&found, 0)?.map(rows::time).transpose()
        })
    }

    fn object_result(&self, object: &Uri) -> Result<Option<ObjectResult>, StoreError> {
        self.read(async |session| result(session, object).await)
    }
}

/// Writes jobs.
pub(super) async fn write_jobs(session: &Session, jobs: &[IngestJob]) -> Result<(), StoreError> {
    for job in jobs {
        let (id, attempts, due) = (job.id.to_string(), i64::from(job.attempts), job.due.map(Timestamp::millis));
        let values: &[Value<'_>] = &[
            &job.source.as_str(),
            &job.dataset.as_str(),
            &id,
            &job.request.as_str(),
            &job.state.name(),
            &due,
            &attempts,
            &job.status,
            &job.message,
            &job.requested.millis(),
            &job.updated.millis(),
        ];
        session.execute(WRITE_JOB, values).await?;
    }
    Ok(())
}

/// Writes the results of changes, and removes those of purged objects.
pub(super) async fn write_results(session: &Session, changes: &[NewChange]) -> Result<(), StoreError> {
    for NewChange { change, .. } in changes {
        let object = change.modification.object.as_str();
        if let Some(result) = change.modification.report.as_ref().and_then(|report| report.result()) {
            let (seq, received) = (rows::number(change.seq.0), change.received.millis());
            session.execute(WRITE_RESULT, &[&object, &seq, &received, &result.as_str()]).await?;
        } else if change.settlement.purge {
            session.execute(REMOVE_RESULT, &[&object]).await?;
        }
    }
    Ok(())
}

/// Asks the harvest of a job to cancel it.
pub(super) async fn cancel(session: &Session, job: JobId, at: Timestamp) -> Result<(), StoreError> {
    session.execute(CANCEL, &[&job.to_string(), &at.millis()]).await.map(drop)
}

async fn jobs(session: &Session, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError> {
    let limit = rows::number(limit as u64);
    let found = match selection {
        JobSelection::Due(source, at) => {
            let sql = jobs_where!("source = $1 AND due <= $2 ORDER BY due LIMIT $3::bigint");
            session.query(sql, &[&source.as_str(), &at.millis(), &limit]).await?
        }
        JobSelection::InState(source, state) => {
            let sql = jobs_where!("source = $1 AND state = $2 ORDER BY id LIMIT $3::bigint");
            session.query(sql, &[&source.as_str(), &state.name(), &limit]).await?
        }
        JobSelection::All { before, state } => {
            let sql = jobs_where!(
                "($1::text IS NULL OR id < $1) AND ($2::text IS NULL OR state = $2) ORDER BY id DESC LIMIT $3::bigint"
            );
            let (before, state) = (before.map(|id| id.to_string()), state.map(JobState::name));
            session.query(sql, &[&before, &state, &limit]).await?
        }
        JobSelection::Some(ids) => {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            session.query(jobs_where!("id = ANY ($1::text[])"), &[&ids]).await?
        }
    };
    found.iter().map(read_job).collect()
}

fn read_job(found: &Row) -> Result<IngestJob, StoreError> {
    Ok(IngestJob {
        source: SourceName::parse(row::get::<&str>(found, 0)?).map_err(rows::damaged)?,
        dataset: rows::uri(row::get(found, 1)?)?,
        id: JobId(Uuid::parse_str(row::get::<&str>(found, 2)?).map_err(rows::damaged)?),
        request: rows::json(row::get(found, 3)?)?,
        state: rows::job_state(row::get(found, 4)?)?,
        due: row::get::<Option<i64>>(found, 5)?.map(rows::time).transpose()?,
        attempts: u32::try_from(row::get::<i64>(found, 6)?).map_err(rows::damaged)?,
        status: row::get(found, 7)?,
        message: row::get(found, 8)?,
        requested: row::time(found, 9)?,
        updated: row::time(found, 10)?,
    })
}

async fn result(session: &Session, object: &Uri) -> Result<Option<ObjectResult>, StoreError> {
    let sql = "SELECT seq, received, result FROM results WHERE object = $1";
    let Some(found) = session.query_opt(sql, &[&object.as_str()]).await? else { return Ok(None) };
    Ok(Some(ObjectResult {
        seq: row::seq(&found, 0)?,
        received: row::time(&found, 1)?,
        result: rows::json(row::get(&found, 2)?)?,
    }))
}
