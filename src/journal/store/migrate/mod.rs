//! Migration: moves a journal with all that it holds from one store to another, with its numbers and its identity.
//!
//! The source is locked and not changed. Its tables are copied page by page in order of their keys, and each page is
//! committed together with the position after it, so an interrupted migration resumes there. At the end both sides are
//! read again and compared. Only then is the target a journal: until then, a gateway refuses to open it.
//!
//! A store implements [`MigrationSource`] and [`MigrationTarget`], and knows nothing about other stores.

mod digest;
mod position;

use uuid::Uuid;

pub use self::digest::TableComparison;
pub(in crate::journal::store) use self::position::Position;
use super::{
    ConnectionOptions, OpenError, PostgresUrl, StoreError, StoreLocation,
    postgres::{
        PostgresOpenError,
        migrate::{PostgresSource, PostgresTarget},
    },
    sqlite::{
        self,
        migrate::{SqliteSource, SqliteTarget},
    },
    tables::{Cell, Row, Table, TableReader},
};
use crate::model::Seq;

/// Number of compared rows between two reports of progress.
const ROWS_PER_PROGRESS: u64 = 1_000;

/// Facts about a journal beside its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal::store) struct JournalFacts {
    /// Identity of the journal.
    pub(in crate::journal::store) identity: Uuid,
    /// Number of the newest change; 0 if there is none.
    pub(in crate::journal::store) head: Seq,
    /// Number of the newest seed ever written.
    pub(in crate::journal::store) newest_seed: i64,
    /// Newest identifier of a quarantined message ever given.
    pub(in crate::journal::store) newest_quarantined: i64,
    /// Newest identifier of a dead letter ever given.
    pub(in crate::journal::store) newest_dead_letter: i64,
}

/// A journal that is locked for a migration. Dropping it unlocks the journal.
pub(in crate::journal::store) trait MigrationSource: TableReader {
    /// Returns the facts beside the tables.
    fn facts(&self) -> Result<JournalFacts, StoreError>;
}

/// A journal that a migration fills.
pub(in crate::journal::store) trait MigrationTarget: TableReader {
    /// Returns the position after the rows that are committed; `None` if the migration is new.
    fn position(&self) -> Result<Option<Position>, StoreError>;

    /// Begins the migration of an empty journal.
    fn begin(&mut self, position: &Position) -> Result<(), StoreError>;

    /// Writes rows of one table and moves the position from `before` to `after`, in one transaction.
    fn write(&mut self, table: Table, rows: &[Row], before: &Position, after: &Position) -> Result<(), StoreError>;

    /// Prepares the tables for reading. No row is written afterwards.
    fn begin_comparison(&mut self) -> Result<(), StoreError>;

    /// Writes the facts beside the tables, and makes the target a journal that a gateway can open.
    fn finish(self: Box<Self>, facts: JournalFacts) -> Result<(), StoreError>;
}

/// Step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationStep {
    /// Rows are copied.
    Copy,
    /// The rows of both sides are read and compared.
    Compare,
}

/// Reasons why a migration failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A journal cannot be opened, or its location cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The source has no journal.
    #[error("there is no journal in {0}")]
    NoJournal(StoreLocation),
    /// A gateway uses the database.
    #[error(
        "the journal in {url} is in use by {sessions}; stop all gateways, because a journal cannot move while it changes"
    )]
    InUse {
        /// The database.
        url: PostgresUrl,
        /// Names of the sessions.
        sessions: String,
    },
    /// The target has a journal of its own.
    #[error("there is a journal in {0} already; give an empty folder or database as the target")]
    NotEmpty(StoreLocation),
    /// The target has a half-finished migration of another journal, or of an earlier state of this one.
    #[error(
        "{0} has a half-finished migration of another journal, or the journal has changed since that migration began; \
         empty the target and begin again"
    )]
    OtherJournal(StoreLocation),
    /// The copy differs from the source.
    #[error(
        "the copy of the table {table} differs from the source; the journal has changed during the migration, or is \
         damaged: check it with `tidings verify`, empty the target and begin again"
    )]
    Different {
        /// Name of the table.
        table: &'static str,
    },
    /// The source cannot be read.
    #[error("cannot read the journal to migrate: {}; repeat the command to resume", reason(.0))]
    Source(StoreError),
    /// The target cannot be written.
    #[error("cannot write the migrated journal: {}; repeat the command to resume", reason(.0))]
    Target(StoreError),
}

/// Returns the reason of an error without its advice, which is for a gateway.
fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Full => "the disk is full".to_owned(),
        StoreError::ReadOnly(reason, remedy) => format!("{reason}; {remedy}"),
        StoreError::Damaged(reason) => format!("{reason}; check the journal with `tidings verify`"),
        StoreError::DamagedChange { seq, what } => {
            format!("change {seq}: {what}; check the journal with `tidings verify`")
        }
        StoreError::DamagedObject { uri, what } => {
            format!("object {uri}: {what}; check the journal with `tidings verify`")
        }
        StoreError::Io(reason)
        | StoreError::Displaced(reason)
        | StoreError::Unavailable(reason)
        | StoreError::Missing(reason)
        | StoreError::TooLarge(reason)
        | StoreError::Refused(reason) => reason.clone(),
        // A migration has no duty.
        StoreError::DutyLost => error.to_string(),
    }
}

impl From<sqlite::OpenError> for MigrationError {
    fn from(error: sqlite::OpenError) -> Self {
        Self::Open(error.into())
    }
}

impl From<PostgresOpenError> for MigrationError {
    fn from(error: PostgresOpenError) -> Self {
        Self::Open(error.into())
    }
}

/// Result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationSummary {
    /// Identity of the journal.
    pub identity: Uuid,
    /// Number of the newest change; 0 if there is none.
    pub head: Seq,
    /// The tables, which are equal on both sides.
    pub tables: Vec<TableComparison>,
}

/// Moves the journal in `from` to `to`, or resumes an interrupted migration. `connection` has the settings for the
/// databases among them. Calls `progress` with the step, the number of
/// rows that are finished, and the number of all rows, which are those of both sides in the second step.
///
/// # Errors
/// Fails if the source is in use, if the target is neither empty nor has a half-finished migration of the same journal, or
/// if a side cannot be read or written. The migration can be resumed unless the error says otherwise.
pub fn migrate(
    from: &StoreLocation,
    to: &StoreLocation,
    connection: &ConnectionOptions,
    progress: &mut dyn FnMut(MigrationStep, u64, u64),
) -> Result<MigrationSummary, MigrationError> {
    let source: Box<dyn MigrationSource> = match from {
        StoreLocation::Folder(folder) => Box::new(SqliteSource::open(folder)?),
        StoreLocation::Postgres(url) => Box::new(PostgresSource::open(url, connection)?),
    };
    let mut target: Box<dyn MigrationTarget> = match to {
        StoreLocation::Folder(folder) => Box::new(SqliteTarget::open(folder)?),
        StoreLocation::Postgres(url) => Box::new(PostgresTarget::open(url, connection)?),
    };
    let facts = source.facts().map_err(MigrationError::Source)?;
    let start = match target.position().map_err(MigrationError::Target)? {
        Some(position) if position.is_of(&facts) => position,
        Some(_) => return Err(MigrationError::OtherJournal(to.clone())),
        None => {
            let start = Position::start(&facts);
            target.begin(&start).map_err(MigrationError::Target)?;
            start
        }
    };
    let total = total(&*source)?;
    copy(&*source, &mut *target, start, &mut |done| progress(MigrationStep::Copy, done, total))?;
    let tables = compare(&*source, &mut *target, &mut |done| progress(MigrationStep::Compare, done, 2 * total))?;
    target.finish(facts).map_err(MigrationError::Target)?;
    Ok(MigrationSummary { identity: facts.identity, head: facts.head, tables })
}

fn total(source: &dyn MigrationSource) -> Result<u64, MigrationError> {
    let counts = Table::ALL.into_iter().map(|table| source.count(table));
    counts.sum::<Result<u64, _>>().map_err(MigrationError::Source)
}

/// Copies the rows after a position.
fn copy(
    source: &dyn MigrationSource,
    target: &mut dyn MigrationTarget,
    start: Position,
    progress: &mut dyn FnMut(u64),
) -> Result<(), MigrationError> {
    let (mut position, resumed) = (start.clone(), start);
    for table in Table::ALL.into_iter().skip_while(|table| *table != resumed.table) {
        let mut after: Vec<Cell> = if table == resumed.table { resumed.after.clone() } else { Vec::new() };
        loop {
            progress(position.rows);
            let page = source.page(table, &after).map_err(MigrationError::Source)?;
            let Some(last) = page.last() else { break };
            after = last.key().to_vec();
            let next = position.advanced(table, after.clone(), page.len());
            target.write(table, &page, &position, &next).map_err(MigrationError::Target)?;
            position = next;
        }
    }
    Ok(())
}

/// Compares all tables of both sides.
fn compare(
    source: &dyn MigrationSource,
    target: &mut dyn MigrationTarget,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<TableComparison>, MigrationError> {
    target.begin_comparison().map_err(MigrationError::Target)?;
    let (mut tables, mut done) = (Vec::new(), 0);
    for table in Table::ALL {
        let comparison = TableComparison::new(table, source, target, &mut || {
            done += 1;
            if done % ROWS_PER_PROGRESS == 0 {
                progress(done);
            }
        })?;
        // A damaged source may have rows that no page returns, for example items of a missing object.
        let rows = source.count(table).map_err(MigrationError::Source)?;
        if !comparison.is_equal() || comparison.source.rows != rows {
            return Err(MigrationError::Different { table: table.name() });
        }
        tables.push(comparison);
    }
    progress(done);
    Ok(tables)
}
