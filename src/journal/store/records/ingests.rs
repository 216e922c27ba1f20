//! The tables `ingest_jobs` and `results`: jobs that archive datasets, and the newest results of objects.

use super::{
    Records, Sql, Statement, StoreError, read_all, read_one, statements,
    value::{Cells, Value, values},
};
use crate::{
    journal::{
        ingest::{IngestJob, JobCount, JobId, JobSelection, JobState, ObjectResult},
        store::NewChange,
    },
    model::{SourceName, Timestamp, Uri},
};

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

statements! {
    /// A job that is being cancelled does not become a running one.
    WRITE = "INSERT INTO ingest_jobs AS stored
            (source, dataset, id, host, request, state, due, attempts, status, message, requested, updated)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (source, dataset) DO UPDATE SET
            (host, request, state, due, attempts, status, message, requested, updated) =
            (excluded.host, excluded.request,
             CASE WHEN stored.state = 'cancelling' AND excluded.state = 'running' THEN stored.state
                ELSE excluded.state END,
             excluded.due, excluded.attempts, excluded.status, excluded.message, excluded.requested, excluded.updated)";
    /// Asks a harvest to cancel a job, before all jobs that wait. One that has failed has nothing left to end.
    CANCEL = "UPDATE ingest_jobs SET
            state = CASE WHEN state IN ('failed', 'blocked') THEN 'cancelled' ELSE 'cancelling' END,
            due = CASE WHEN state IN ('failed', 'blocked') THEN NULL ELSE 0 END,
            updated = $2
        WHERE id = $1 AND (state IN ('waiting', 'running', 'failed', 'blocked') OR due IS NOT NULL)";
    /// Makes the job of an archived dataset due, which looks at the dataset as a watch does.
    REPEAT = "UPDATE ingest_jobs SET due = $2 WHERE id = $1 AND state = 'archived'";
    REMOVE_ALL = "DELETE FROM ingest_jobs WHERE source = $1";
    DUE = jobs_where!("source = $1 AND due <= $2 ORDER BY due LIMIT $3");
    /// The earliest due job of each host. The query steps from host to host in the index, so it takes as long for a host
    /// with a million jobs as for one with a single one.
    DUE_BY_HOST = jobs_where!(
        "id IN (
            WITH RECURSIVE hosts (host) AS (
                SELECT min(host) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL
                UNION ALL
                SELECT (SELECT min(host) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL AND host > hosts.host)
                FROM hosts WHERE hosts.host IS NOT NULL
            )
            SELECT (SELECT id FROM ingest_jobs
                WHERE source = $1 AND host = hosts.host AND due <= $2 ORDER BY due LIMIT 1)
            FROM hosts WHERE hosts.host IS NOT NULL
        ) ORDER BY due LIMIT $3"
    );
    /// The condition of the index `ingest_jobs_by_state`, word by word, so that the databases use it.
    IN_STATE = jobs_where!(
        "source = $1 AND state = $2 AND state NOT IN ('archived', 'cancelled') ORDER BY updated DESC LIMIT $3"
    );
    /// Reads only the index of the same condition.
    COUNTS = "SELECT source, state, count(*), count(CASE WHEN updated >= $1 THEN 1 END) FROM ingest_jobs
        WHERE state NOT IN ('archived', 'cancelled') GROUP BY source, state";
    NEWEST = jobs_where!(
        "(CAST($1 AS text) IS NULL OR id < $1) AND (CAST($2 AS text) IS NULL OR state = $2) ORDER BY id DESC LIMIT $3"
    );
    ONE = jobs_where!("id = $1");
    NEXT = "SELECT min(due) FROM ingest_jobs WHERE source = $1 AND due IS NOT NULL";
    WRITE_RESULT = "INSERT INTO results (object, seq, received, result) VALUES ($1, $2, $3, $4)
        ON CONFLICT (object) DO UPDATE SET (seq, received, result) = (excluded.seq, excluded.received, excluded.result)";
    REMOVE_RESULT = "DELETE FROM results WHERE object = $1";
    READ_RESULT = "SELECT seq, received, result FROM results WHERE object = $1";
}

/// Jobs and results. Both are written with the changes of a batch ([`WriteBatch`](crate::journal::store::WriteBatch)): jobs
/// with the progress of their harvest, results with the changes that have them.
pub trait IngestStore: Records {
    /// Returns up to `limit` jobs.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn ingest_jobs(&self, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError> {
        let query = |sql: Sql, [first, second]: [Value<'_>; 2]| {
            read_all(self, &[Statement::new(sql, [first, second, limit.into()])], read_job)
        };
        match selection {
            JobSelection::Due(source, at) => query(DUE, values![source, *at]),
            JobSelection::DueByHost(source, at) => query(DUE_BY_HOST, values![source, *at]),
            JobSelection::InState(source, state) => query(IN_STATE, values![source, state.name()]),
            JobSelection::All { before, state } => {
                query(NEWEST, values![before.map(|id| id.to_string()), state.map(JobState::name)])
            }
            JobSelection::Some(ids) => {
                let queries = ids.iter().map(|id| Statement::new(ONE, values![id.to_string()]));
                read_all(self, &queries.collect::<Vec<_>>(), read_job)
            }
        }
    }

    /// Returns the numbers of jobs by source and state, and how many were modified at or after `since`, without those that
    /// are archived or cancelled.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn ingest_counts(&self, since: Timestamp) -> Result<Vec<JobCount>, StoreError> {
        read_all(self, &[Statement::new(COUNTS, values![since])], |row| {
            Ok(JobCount {
                source: row.source(0)?,
                state: row.named(1, "state of a job", JobState::ALL, JobState::name)?,
                jobs: row.unsigned(2)?,
                recent: row.unsigned(3)?,
            })
        })
    }

    /// Returns the time at which the next job of a source is due.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn next_ingest(&self, source: &SourceName) -> Result<Option<Timestamp>, StoreError> {
        let next = read_one(self, Statement::new(NEXT, values![source]), |row| row.optional_time(0))?;
        Ok(next.flatten())
    }

    /// Returns the newest result of work on an object.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn object_result(&self, object: &Uri) -> Result<Option<ObjectResult>, StoreError> {
        read_one(self, Statement::new(READ_RESULT, values![object]), |row| {
            Ok(ObjectResult { seq: row.seq(0)?, received: row.time(1)?, result: row.json(2)? })
        })
    }
}

impl<S: Records + ?Sized> IngestStore for S {}

/// Returns the statement that writes a job.
pub(super) fn write_job(job: &IngestJob) -> Statement<'_> {
    let IngestJob { source, dataset, id, host, request, state, due, attempts, status, message, requested, updated } =
        job;
    let (id, request, state) = (id.to_string(), request.as_str(), state.name());
    let (status, message) = (status.as_deref(), message.as_ref());
    let values =
        values![source, dataset, id, host, request, state, *due, *attempts, status, message, *requested, *updated];
    Statement::new(WRITE, values)
}

fn read_job(row: Cells<'_>) -> Result<IngestJob, StoreError> {
    Ok(IngestJob {
        source: row.source(0)?,
        dataset: row.uri(1)?,
        id: JobId(row.uuid(2)?),
        host: row.text(3)?.to_owned(),
        request: row.json(4)?,
        state: row.named(5, "state of a job", JobState::ALL, JobState::name)?,
        due: row.optional_time(6)?,
        attempts: u32::try_from(row.unsigned(7)?).map_err(crate::journal::store::rows::damaged)?,
        status: row.optional_text(8)?.map(str::to_owned),
        message: row.partner_text(9)?,
        requested: row.time(10)?,
        updated: row.time(11)?,
    })
}

/// Returns the statement that asks the harvest of a job to cancel it.
pub(super) fn cancel(job: JobId, at: Timestamp) -> Statement<'static> {
    Statement::new(CANCEL, values![job.to_string(), at])
}

/// Returns the statement that makes the job of an archived dataset due.
pub(super) fn repeat(job: JobId, at: Timestamp) -> Statement<'static> {
    Statement::new(REPEAT, values![job.to_string(), at])
}

/// Returns the statement that removes all jobs of a source.
pub(super) fn remove_all(source: &SourceName) -> Statement<'_> {
    Statement::new(REMOVE_ALL, values![source])
}

/// Returns the statements that write the results of changes, and remove those of purged objects.
pub(super) fn write_results(changes: &[NewChange]) -> impl Iterator<Item = Statement<'_>> {
    changes.iter().filter_map(|NewChange { change, .. }| {
        let object = &change.modification.object;
        match change.modification.report.as_ref().and_then(|report| report.result()) {
            Some(result) => {
                Some(Statement::new(WRITE_RESULT, values![object, change.seq, change.received, result.as_str()]))
            }
            None => change.settlement.purge.then(|| Statement::new(REMOVE_RESULT, values![object])),
        }
    })
}
