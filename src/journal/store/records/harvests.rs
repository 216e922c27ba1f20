//! The tables `harvests` and `harvest_runs`: positions of harvests, and the history of their runs.

use super::{
    DefinitionKind, RecordWrite, Records, Statement, StoreError, ingests, listed, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::{
        harvest::{
            HarvestDefinition, HarvestProgress, HarvestRecord, HarvestRun, HarvestWrite, KEPT_RUNS, RunCounts, RunId,
            RunState, SourcePosition,
        },
        nodes::DutyName,
    },
    model::SourceName,
};

statements! {
    WRITE_POSITION = "INSERT INTO harvests (source, position) VALUES ($1, $2)
        ON CONFLICT (source) DO UPDATE SET position = excluded.position";
    DEFINE = "INSERT INTO harvests (source, position, definition) VALUES ($1, '', $2)
        ON CONFLICT (source) DO UPDATE SET definition = excluded.definition";
    SET_PAUSED = "INSERT INTO harvests (source, position, paused) VALUES ($1, '', $2)
        ON CONFLICT (source) DO UPDATE SET paused = excluded.paused";
    SET_LEASE = "INSERT INTO harvests (source, position, lease) VALUES ($1, '', $2)
        ON CONFLICT (source) DO UPDATE SET lease = excluded.lease";
    REQUEST = "INSERT INTO harvests (source, position, requested) VALUES ($1, '', $2)
        ON CONFLICT (source) DO UPDATE SET requested = excluded.requested";
    REMOVE = "DELETE FROM harvests WHERE source = $1";
    READ = "SELECT position, requested, paused, lease FROM harvests WHERE source = $1";
    READ_DEFINITIONS = "SELECT source, definition FROM harvests WHERE definition IS NOT NULL ORDER BY source";
    WRITE_RUN = "INSERT INTO harvest_runs
            (id, source, started, updated, state, reason, pages, records, changes, quarantined, repaired)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (id) DO UPDATE SET (updated, state, reason, pages, records, changes, quarantined, repaired) =
            (excluded.updated, excluded.state, excluded.reason, excluded.pages, excluded.records, excluded.changes,
             excluded.quarantined, excluded.repaired)";
    REMOVE_OLD_RUNS = "DELETE FROM harvest_runs WHERE source = $1
        AND id <= (SELECT id FROM harvest_runs WHERE source = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)";
    REMOVE_RUNS = "DELETE FROM harvest_runs WHERE source = $1";
    READ_RUNS = "SELECT id, started, updated, state, reason, pages, records, changes, quarantined, repaired
        FROM harvest_runs WHERE source = $1 AND (CAST($2 AS text) IS NULL OR id < $2) ORDER BY id DESC LIMIT $3";
}

/// Progress and definitions of harvests. Their progress is written with the changes of a batch
/// ([`WriteBatch`](crate::journal::store::WriteBatch)).
pub trait HarvestStore: Records {
    /// Returns the position of a source's harvest; `None` if the source was never harvested and no run was requested.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest(&self, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError> {
        read_one(self, Statement::new(READ, values![source]), |row| {
            let position = row.text(0)?.into();
            let (requested, lease) = (row.optional_time(1)?, row.optional_time(3)?);
            Ok(HarvestRecord { position, requested, paused: row.flag(2)?, lease })
        })
    }

    /// Returns up to `limit` runs of a source's harvest before `before` (from the newest if `None`), newest first. The
    /// store keeps the newest [`KEPT_RUNS`] of each source.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest_runs(
        &self,
        source: &SourceName,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<HarvestRun>, StoreError> {
        let before = before.map(|before| before.to_string());
        read_all(self, &[Statement::new(READ_RUNS, values![source, before, limit])], |row| read_run(source, row))
    }

    /// Modifies a source's harvest. Only its removal moves the position.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was modified.
    fn write_harvest(&self, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError> {
        let statements = match write {
            HarvestWrite::Request(at) => vec![Statement::new(REQUEST, values![source, *at])],
            HarvestWrite::Define(text) => vec![Statement::new(DEFINE, values![source, text.expose()])],
            HarvestWrite::SetLease(lease) => vec![Statement::new(SET_LEASE, values![source, *lease])],
            HarvestWrite::SetPaused(paused) => vec![Statement::new(SET_PAUSED, values![source, *paused])],
            HarvestWrite::Restart => Vec::new(),
            HarvestWrite::CancelJob(job, at) => vec![ingests::cancel(*job, *at)],
            HarvestWrite::RepeatJob(job, at) => vec![ingests::repeat(*job, *at)],
            HarvestWrite::Remove => vec![
                listed::remove_all(source),
                ingests::remove_all(source),
                Statement::new(REMOVE_RUNS, values![source]),
                Statement::new(REMOVE, values![source]),
            ],
        };
        // Whichever node harvests a removed source can then write no more of it, and one that reads a broker begins again.
        let ends_duty = matches!(write, HarvestWrite::Remove | HarvestWrite::Restart);
        let ended_duties = ends_duty.then(|| DutyName::source(source)).into_iter().collect();
        let changed_definitions = Some(DefinitionKind::Harvests);
        self.execute(&RecordWrite { statements, ended_duties, changed_definitions, term: None }).map(drop)
    }

    /// Returns the harvests that were made over HTTP, in order of their sources.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest_definitions(&self) -> Result<Vec<HarvestDefinition>, StoreError> {
        read_all(self, &[Statement::new(READ_DEFINITIONS, [])], |row| {
            Ok(HarvestDefinition { source: row.source(0)?, text: row.text(1)?.to_owned().into() })
        })
    }
}

impl<S: Records + ?Sized> HarvestStore for S {}

fn read_run(source: &SourceName, row: Cells<'_>) -> Result<HarvestRun, StoreError> {
    Ok(HarvestRun {
        id: RunId(row.uuid(0)?),
        source: source.clone(),
        started: row.time(1)?,
        updated: row.time(2)?,
        state: row.named(3, "state of a run", RunState::ALL, RunState::name)?,
        reason: row.partner_text(4)?,
        counts: RunCounts {
            pages: row.unsigned(5)?,
            records: row.unsigned(6)?,
            changes: row.unsigned(7)?,
            quarantined: row.unsigned(8)?,
            repaired: row.unsigned(9)?,
        },
    })
}

/// Returns the statement that writes the position of a source that reads a broker.
pub(super) fn write_position_of(at: &SourcePosition) -> Statement<'_> {
    Statement::new(WRITE_POSITION, values![&at.source, &at.position])
}

/// Returns the statements that write the progress of a harvest.
pub(super) fn write_progress(progress: &HarvestProgress) -> Vec<Statement<'_>> {
    let HarvestProgress { position, run, listed } = progress;
    let HarvestRun { id, source, started, updated, state, reason, counts } = run;
    let RunCounts { pages, records, changes, quarantined, repaired } = *counts;
    let (id, state, reason) = (id.to_string(), state.name(), reason.as_ref());
    let run = values![id, source, *started, *updated, state, reason, pages, records, changes, quarantined, repaired];
    let mut statements = vec![
        Statement::new(WRITE_POSITION, values![source, position]),
        Statement::new(WRITE_RUN, run),
        Statement::new(REMOVE_OLD_RUNS, values![source, KEPT_RUNS]),
    ];
    statements.extend(listed::write(source, listed));
    statements
}
