//! The tables `ingest_jobs` and `results`: jobs that archive datasets, and the newest results of objects.

use std::collections::BTreeMap;

use futures_util::future::join;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{PostgresStore, connection::Session, row, value::Value};
use crate::{
    journal::{
        ingest::{IngestJob, JobId, JobSelection, JobState, ObjectResult},
        store::{IngestStore, NewChange, StoreError, rows},
    },
    model::{SourceName, Text, Timestamp, Uri},
};

/// Statement that writes jobs. A job that is being cancelled does not become a running one.
pub(super) const WRITE_JOBS: &str = "INSERT INTO ingest_jobs AS stored
    (source, dataset, id, host, request, state, due, attempts, status, message, requested, updated)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                         $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[])
    ON CONFLICT (source, dataset) DO UPDATE SET
        (host, request, state, due, attempts, status, message, requested, updated) =
        (excluded.host, excluded.request,
         CASE WHEN stored.state = 'cancelling' AND excluded.state = 'running' THEN stored.state ELSE excluded.state END,
         excluded.due, excluded.attempts, excluded.status, excluded.message, excluded.requested, excluded.updated)";

/// Statement that asks a harvest to cancel a job, before all jobs that wait.
const CANCEL: &str = "UPDATE ingest_jobs SET state = 'cancelling', due = 0, updated = $2
    WHERE id = $1 AND (state IN ('waiting', 'running') OR due IS NOT NULL)";

/// Returns the query for jobs with a condition.
macro_rules! jobs_where {
    ($condition:literal) => {
        concat!(
            "SELECT source, dataset, id, host, request, state, due, attempts, status, message, requested, updated
             FROM ingest_jobs WHERE ",
            $condition
        )
    };
}

/// Query for the earliest due job of each host. It steps from host to host in the index, so it takes as long for a host with
/// a million jobs as for one with a single one.
const DUE_BY_HOST: &str = concat!(
    "WITH RECURSIVE hosts (host) AS (
        SELECT min(host) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL
        UNION ALL
        SELECT (SELECT min(host) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL AND host > hosts.host)
        FROM hosts WHERE hosts.host IS NOT NULL
    )
    SELECT earliest.* FROM hosts CROSS JOIN LATERAL (",
    jobs_where!("source = $1 AND host = hosts.host AND due <= $2 ORDER BY due LIMIT 1"),
    ") AS earliest ORDER BY earliest.due LIMIT $3::bigint"
);

pub(super) const WRITE_RESULTS: &str = "INSERT INTO results (object, seq, received, result)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
    ON CONFLICT (object) DO UPDATE SET (seq, received, result) = (excluded.seq, excluded.received, excluded.result)";

pub(super) const REMOVE_RESULTS: &str = "DELETE FROM results WHERE object = ANY ($1::text[])";

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

/// Jobs to write, one array per column.
#[derive(Default)]
struct JobColumns<'j> {
    source: Vec<&'j str>,
    dataset: Vec<&'j str>,
    id: Vec<String>,
    host: Vec<&'j str>,
    request: Vec<&'j str>,
    state: Vec<&'static str>,
    due: Vec<Option<i64>>,
    attempts: Vec<i64>,
    status: Vec<Option<&'j str>>,
    message: Vec<Option<&'j str>>,
    requested: Vec<i64>,
    updated: Vec<i64>,
}

/// Writes jobs.
pub(super) async fn write_jobs(session: &Session, jobs: &[IngestJob]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    // One statement cannot write a row twice, so the last job of a dataset counts.
    let newest: BTreeMap<_, _> = jobs.iter().map(|job| ((&job.source, &job.dataset), job)).collect();
    let mut columns = JobColumns::default();
    for job in newest.into_values() {
        columns.source.push(job.source.as_str());
        columns.dataset.push(job.dataset.as_str());
        columns.id.push(job.id.to_string());
        columns.host.push(&job.host);
        columns.request.push(job.request.as_str());
        columns.state.push(job.state.name());
        columns.due.push(job.due.map(Timestamp::millis));
        columns.attempts.push(job.attempts.into());
        columns.status.push(job.status.as_deref());
        columns.message.push(job.message.as_ref().map(Text::as_str));
        columns.requested.push(job.requested.millis());
        columns.updated.push(job.updated.millis());
    }
    let JobColumns { source, dataset, id, host, request, state, due, attempts, status, message, requested, updated } =
        &columns;
    let values: &[Value<'_>] =
        &[source, dataset, id, host, request, state, due, attempts, status, message, requested, updated];
    session.execute(WRITE_JOBS, values).await.map(drop)
}

/// Writes the results of changes, and removes those of purged objects.
pub(super) async fn write_results(session: &Session, changes: &[NewChange]) -> Result<(), StoreError> {
    // One statement cannot write a row twice, so the last change of an object counts, as it would one by one.
    let mut newest = BTreeMap::new();
    for NewChange { change, .. } in changes {
        let object = change.modification.object.as_str();
        if let Some(result) = change.modification.report.as_ref().and_then(|report| report.result()) {
            newest.insert(object, Some((rows::number(change.seq.0), change.received.millis(), result.as_str())));
        } else if change.settlement.purge {
            newest.insert(object, None);
        }
    }
    let (mut purged, mut objects) = (Vec::new(), Vec::new());
    let (mut seqs, mut received, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for (object, result) in newest {
        let Some((seq, at, result)) = result else {
            purged.push(object);
            continue;
        };
        objects.push(object);
        seqs.push(seq);
        received.push(at);
        results.push(result);
    }
    let remove = async { if purged.is_empty() { Ok(0) } else { session.execute(REMOVE_RESULTS, &[&purged]).await } };
    let write = async {
        if objects.is_empty() {
            return Ok(0);
        }
        session.execute(WRITE_RESULTS, &[&objects, &seqs, &received, &results]).await
    };
    let (removed, written) = join(remove, write).await;
    removed.and(written).map(drop)
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
        JobSelection::DueByHost(source, at) => {
            session.query(DUE_BY_HOST, &[&source.as_str(), &at.millis(), &limit]).await?
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
        host: row::get(found, 3)?,
        request: rows::json(row::get(found, 4)?)?,
        state: rows::job_state(row::get(found, 5)?)?,
        due: row::get::<Option<i64>>(found, 6)?.map(rows::time).transpose()?,
        attempts: u32::try_from(row::get::<i64>(found, 7)?).map_err(rows::damaged)?,
        status: row::get(found, 8)?,
        message: row::text(found, 9)?,
        requested: row::time(found, 10)?,
        updated: row::time(found, 11)?,
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
